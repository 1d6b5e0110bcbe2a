"""Scopes that apply to new nodes: names, devices, control inputs, contexts."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from weft_graph.ir.device_spec import DeviceParts, DeviceSpec, parse
from weft_graph.ir.node import Context, Node, Output
from weft_tensor import errors
from weft_tensor.nesting import format_value

_TOP_NAME = re.compile(r"[A-Za-z0-9.][A-Za-z0-9_.\-/>]*")
_INNER_NAME = re.compile(r"[A-Za-z0-9_.\-/>]*")


def check_scope_name(name: str, top: bool) -> None:
    """Raise InvalidArgumentError unless `name` is a valid name of a node or scope."""
    if not (_TOP_NAME if top else _INNER_NAME).fullmatch(name):
        start = "a letter, digit or dot" if top else "a letter, digit, dot or underscore"
        raise errors.InvalidArgumentError(
            f"{name!r} is not a valid name: it must start with {start} and continue with "
            "letters, digits and _ . / > -"
        )


class ControlScope:
    """One `with control_dependencies` block: its control inputs, and the nodes created inside."""

    __slots__ = ("nodes", "resets", "seen")

    def __init__(self, nodes: Sequence[Node], resets: bool) -> None:
        self.nodes = tuple(nodes)
        self.resets = resets
        self.seen: set[Node] = set()


def check_visible(item: Any, context: Context | None) -> None:
    """Raise InvalidArgumentError if a value is in a loop that does not contain `context`."""
    node: Node = getattr(item, "node", item)  # an output has one, a node is one
    enclosing = None if node.context is None else node.context.home_of(node)
    while enclosing is not None and not (context is not None and context.is_inside(enclosing)):
        if enclosing.repeats:
            raise errors.InvalidArgumentError(
                f"{node.name!r} is inside the loop {enclosing.name!r} and has no value outside; "
                "return it from the body as a loop variable",
                op=node.type,
                node=node.name,
                line=node.line or None,
            )
        enclosing = enclosing.outer


def check_inputs(inputs: Sequence[Output], controls: Sequence[Node]) -> None:
    """Raise InvalidArgumentError if a node outside all contexts would use a value in a loop."""
    for source in inputs:
        if source.node.context is not None:
            check_visible(source, None)
    for control in controls:
        if control.context is not None:
            check_visible(control, None)


class BuildScopes(threading.local):
    """The scopes of one graph, separate for each thread that builds it.

    Attributes:
      variable_creators: variable creator functions, outermost first; used by weft_graph.variables.
    """

    def __init__(self) -> None:
        self.name_prefix = ""
        self.devices: list[Any] = []
        self.controls: list[ControlScope] = []
        self.colocations: list[Node] = []
        self.attrs: dict[str, Any] = {}
        self.overrides: dict[str, str] = {}
        self.container = ""
        self.context: Context | None = None
        self.variable_creators: list[Any] = []

    # ---------------------------------------------------------- control inputs

    @contextmanager
    def control(self, nodes: Iterable[Node] | None) -> Iterator[ControlScope | None]:
        """Push control inputs; None clears them and leaves branches and loops, as in TensorFlow."""
        scope = ControlScope(() if nodes is None else tuple(nodes), resets=nodes is None)
        saved = self.context, self.controls
        if nodes is None:
            self.context, self.controls = None, []
        else:
            self.controls = [*self.controls, scope]
        try:
            yield scope
        finally:
            self.context, self.controls = saved

    @contextmanager
    def leave_contexts(self) -> Iterator[None]:
        """Leave all branches and loops, and the control inputs pushed inside them."""
        if self.context is None:
            yield
            return
        with self.inside(None):
            yield

    @contextmanager
    def inside(self, context: Context | None) -> Iterator[None]:
        """Enter a branch or a loop, and leave the current control inputs."""
        saved = self.context, self.controls
        self.context, self.controls = context, []
        try:
            yield
        finally:
            self.context, self.controls = saved

    def control_inputs(self, inputs: Sequence[Output]) -> tuple[Node, ...]:
        """Return the control inputs that a node with these inputs needs.

        A scope is skipped if an input was created inside it, because that input already waits for
        it.
        """
        controls: dict[Node, None] = {}
        producers = {source.node for source in inputs}
        for scope in self.controls:
            if scope.seen.isdisjoint(producers):
                controls.update(dict.fromkeys(scope.nodes))
        return tuple([node for node in controls if node not in producers])

    def saw(self, node: Node) -> None:
        """Record a node created inside the current scopes."""
        for scope in self.controls:
            scope.seen.add(node)

    # ------------------------------------------------------------------ device

    @contextmanager
    def device(self, request: Any) -> Iterator[None]:
        """Push a device request."""
        if request is not None and not callable(request):
            request = _parts(request)
        saved = self.devices
        self.devices = [] if request is None else [*saved, request]
        try:
            yield
        finally:
            self.devices = saved

    def device_for(self, node: Node) -> str:
        """Return the canonical request for `node`.

        Inner scopes override parts of outer ones; the result of a function overrides scopes inside
        it.
        """
        parts = parse(node.device)
        for request in reversed(self.devices):
            if callable(request):
                node.device = parts.to_string()
                parts = _parts(request(node))
            else:
                parts = request.merge(parts)
        return parts.to_string()

    def colocated_device(self, device: str) -> str:
        """Return the device request of a node's colocated nodes, inner scopes first."""
        requests = [
            colocated.device for colocated in reversed(self.colocations) if colocated.device
        ]
        return requests[0] if requests else device

    # -------------------------------------------------------------- attributes

    @contextmanager
    def colocate(self, node: Node | None, ignore_existing: bool) -> Iterator[None]:
        """Push a colocation request, or clear outer ones; device requests are cleared as well."""
        saved_colocations, saved_devices = self.colocations, self.devices
        keep = [] if ignore_existing or node is None else saved_colocations
        self.colocations = keep if node is None else [*keep, node]
        self.devices = []
        try:
            yield
        finally:
            self.colocations, self.devices = saved_colocations, saved_devices

    @contextmanager
    def override_gradients(self, overrides: dict[str, str]) -> Iterator[None]:
        """Push gradient overrides by op type."""
        saved = self.overrides
        self.overrides = saved | overrides
        try:
            yield
        finally:
            self.overrides = saved

    @contextmanager
    def in_container(self, name: str) -> Iterator[None]:
        """Put the resources of nodes created inside into a named container."""
        saved = self.container
        self.container = name
        try:
            yield
        finally:
            self.container = saved

    @contextmanager
    def with_attrs(self, attrs: dict[str, Any]) -> Iterator[None]:
        """Push attributes for every node created inside; a function is called for each node."""
        saved = self.attrs
        self.attrs = saved | attrs
        try:
            yield
        finally:
            self.attrs = saved

    def apply_attrs(self, node: Node) -> None:
        """Write scope attributes, container, overrides and colocations into a new node."""
        if self.container and node.attrs.get("container") == "":
            node.attrs["container"] = self.container
        if self.attrs:
            for name, value in self.attrs.items():
                if name not in node.attrs:
                    node.attrs[name] = value(node) if callable(value) else value
        override = self.overrides.get(node.type)
        if override is not None:
            node.attrs.setdefault("_gradient_op_type", override)
        if self.colocations:
            names = dict.fromkeys(
                name
                for colocated in self.colocations
                for name in (colocated.colocation or (colocated.name,))
            )
            node.attrs["_class"] = tuple(f"loc:@{name}" for name in sorted(names))


def _parts(request: Any) -> DeviceParts:
    if isinstance(request, DeviceSpec):
        return request.parts
    if request is not None and not isinstance(request, str):
        raise errors.InvalidTypeError(
            f"a device must be a name, a DeviceSpec or a function, got {format_value(request)}"
        )
    return parse(request or "")
