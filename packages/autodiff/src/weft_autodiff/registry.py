"""The table of gradient functions, one per op type."""

from __future__ import annotations

__all__ = ["NotDifferentiable", "RegisterGradient"]

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from weft_graph.ir.op_def import declaring_module, loaded_traits
from weft_graph.ir.registry import Registry
from weft_tensor import errors

if TYPE_CHECKING:
    from weft_graph.ir.graph import Graph
    from weft_graph.ir.node import Node

GradientFunction = Callable[..., Any]
F = TypeVar("F", bound=GradientFunction)


def not_differentiable(op: Any, *grads: Any) -> list[None]:
    """Gradient function of non-differentiable ops: return no gradient for any input."""
    return [None] * len(op.inputs)


class Gradient:
    """One entry of the table.

    Attributes:
      function: `function(node, *grads)`.
      accepts_none: True if it accepts None for outputs without a gradient; else it receives zeros.
      accepts_sparse: True if it accepts IndexedSlices; else it receives dense gradients.
      accepts_needed: True if it accepts `needed`, one bool for each input.
    """

    __slots__ = ("accepts_needed", "accepts_none", "accepts_sparse", "function")

    def __init__(
        self,
        function: GradientFunction,
        accepts_none: bool = False,
        accepts_sparse: bool = False,
        accepts_needed: bool = False,
    ) -> None:
        self.function = function
        self.accepts_none = accepts_none
        self.accepts_sparse = accepts_sparse
        self.accepts_needed = accepts_needed


_gradients: Registry[Gradient] = Registry(
    "gradient",
    package="weft_autodiff.grads",
    group="weft_autodiff.gradients",
)


class RegisterGradient:
    """Decorator that registers the gradient of an op type, or of an override name.

    The function receives the forward node and one gradient per output. It returns one gradient per
    input: an output, IndexedSlices, or None if there is none. For a single input it may return the
    gradient itself instead of a list.

    Args:
      op_type: op type, or a name that `Graph.gradient_override_map` refers to.
      accepts_none: pass None instead of zeros for outputs without a gradient.
      accepts_sparse: pass IndexedSlices unchanged instead of converting them to dense gradients.
      accepts_needed: pass `needed`, one bool for each input: whether its gradient is used. The
        function can then skip expensive gradients that are not.
    Raises: AlreadyExistsError: the op type has a gradient already.

    Examples:
      >>> @wf.RegisterGradient("ClippedIdentity")
      ... def clipped(node, grad):
      ...     return wf.clip_by_value(grad, -1.0, 1.0)
      >>> x = wf.constant(1.0)
      >>> with wf.get_default_graph().gradient_override_map({"Identity": "ClippedIdentity"}):
      ...     y = 5.0 * wf.identity(x)
      >>> wf.Session().run(wf.gradients(y, [x]))
      [np.float32(1.0)]
    """

    def __init__(
        self,
        op_type: str,
        *,
        accepts_none: bool = False,
        accepts_sparse: bool = False,
        accepts_needed: bool = False,
    ) -> None:
        self._op_type = op_type
        self._flags = (accepts_none, accepts_sparse, accepts_needed)

    def __call__(self, function: F) -> F:
        """Register `function`."""
        if not loaded_traits(self._op_type).differentiable:
            raise errors.AlreadyRegisteredError(
                f"{self._op_type!r} is declared as not differentiable; use "
                "Graph.gradient_override_map to set a gradient for single nodes"
            )
        _gradients.register(self._op_type, Gradient(function, *self._flags))
        return function


def NotDifferentiable(op_type: str) -> None:  # noqa: N802 - TensorFlow's public name
    """Declare that an op type is not differentiable.

    Ops declared with `Traits(differentiable=False)` do not need it.

    Args:
      op_type: name of a registered op.

    Examples:
      >>> wf.NotDifferentiable("MyLookup")
    """
    if loaded_traits(op_type).differentiable:
        _gradients.register(op_type, Gradient(not_differentiable, True, True))


NoGradient = NotDifferentiable


def gradient_of(node: Node) -> Gradient:
    """Return the gradient function of a node, taking overrides into account.

    Raises: NotFoundError: neither a gradient nor NotDifferentiable is registered.
    """
    override = node.attrs.get("_gradient_op_type")
    if override is None:
        name = node.type
        if not node.traits.differentiable:
            return _NONE
        if _gradients.loaded(name) is None:
            package, _, family = declaring_module(name).rpartition(".ops.")
            family = _FAMILIES.get(family, family)
            _gradients.load_near([f"weft_autodiff.grads.{family}"] if package else [])
    else:
        name = override.decode() if isinstance(override, bytes) else override
        local: Gradient | None = node.graph.gradient_functions.get(name)
        if local is not None:
            return local
    entry = _gradients.get(name)
    if entry is None:
        raise errors.NotFoundError(
            f"no gradient is registered for {name!r}; register one with RegisterGradient, or "
            f"declare the op not differentiable with NotDifferentiable{_gradients.broken}",
            op=node.type,
            node=node.name,
            line=node.line,
        )
    return entry


_FAMILIES = {"resource_state": "state"}
"""Op families whose gradients are in the file of another family."""

_NONE = Gradient(not_differentiable, accepts_none=True, accepts_sparse=True)
"""Entry of ops that are declared as not differentiable."""


def register_in_graph(graph: Graph, name: str, entry: Gradient) -> None:
    """Register an override that lives as long as a graph."""
    graph.gradient_functions[name] = entry


_calls = threading.local()


@contextmanager
def name_calls(source: str) -> Iterator[None]:
    """Set `gradient_source` to `source`, unique per call of `gradients`, inside the block."""
    saved_source = gradient_source()
    _calls.source = source
    try:
        yield
    finally:
        _calls.source = saved_source


def gradient_source() -> str:
    """Return an identifier of the current call of `gradients`, unique in its graph.

    It is for gradient functions with state across nodes: a TensorArray has one gradient array for
    each call.
    """
    return getattr(_calls, "source", "")


def registered_gradients() -> list[str]:
    """Return the op types and override names that have a gradient, sorted."""
    return _gradients.keys()
