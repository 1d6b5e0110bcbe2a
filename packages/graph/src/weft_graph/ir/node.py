"""Nodes, the outputs they produce, and operators: the public `Operation` and `Tensor`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from linecache import getline
from types import CodeType
from typing import TYPE_CHECKING, Any, Final

from weft_graph.ir import thread_stacks
from weft_graph.ir.message_conversions import to_message
from weft_graph.ir.references import Reference
from weft_graph.ir.registry import Registry
from weft_graph.ir.symbolic import GraphElement, Symbolic
from weft_tensor import errors
from weft_tensor.dtypes import DType
from weft_tensor.shape import Dims, TensorShape, as_dims, format_dims, merge_dims

if TYPE_CHECKING:
    from weft_graph.ir.graph import Graph
    from weft_graph.ir.op_signature import OpDef
    from weft_graph.ir.traits import Role, Traits


class Node(GraphElement):
    """One operation in a graph.

    Nodes are created by functions of the API, never directly.

    Args:
      graph, name, op_def, inputs, control_inputs, attrs, device: values of these attributes.
      code, line: code object and line number of the source line that created it.
    Attributes:
      name: unique within the graph.
      type: the op type.
      traits: static facts about the op.
      role: role of the op in the system, or None.
      inputs: the outputs it consumes.
      controls: nodes that must finish before it starts; `control_inputs` returns them as a list.
      attrs: attribute values by name.
      outputs: its outputs.
      index: its index in the order of construction.
      device: the requested device, in canonical form, or "".
      forward: for a node that autodiff added, the node whose gradient it computes.
      context: the innermost branch or loop that contains it, or None.

    Examples:
      >>> x = wf.constant(1.0, name="x")
      >>> x.op.name, x.op.type, x.op.outputs[0] is x
      ('x', 'Const', True)
    """

    __slots__ = (
        "__weakref__",
        "_code",
        "_control_outputs",
        "_line",
        "attrs",
        "context",
        "controls",
        "device",
        "forward",
        "graph",
        "index",
        "inputs",
        "name",
        "op_def",
        "outputs",
        "role",
        "traits",
        "type",
    )

    def __init__(
        self,
        graph: Graph,
        name: str,
        op_def: OpDef,
        inputs: tuple[Output, ...],
        control_inputs: tuple[Node, ...],
        attrs: dict[str, Any],
        device: str,
        code: CodeType | None,
        line: int,
    ) -> None:
        self.graph = graph
        self.name = name
        self.op_def = op_def
        self.type = op_def.name
        self.traits: Traits = op_def.traits
        self.role: Role | None = op_def.traits.role
        self.inputs = inputs
        self.controls = control_inputs
        self.attrs = attrs
        self.device = device
        self.outputs: tuple[Output, ...] = ()
        self.index = -1
        self.forward: Node | None = None
        self.context: Context | None = None
        self._control_outputs: dict[Node, None] | None = None
        self._code = code
        self._line = line

    @property
    def line(self) -> str:
        """The user's line that created the node: "file.py:12 in function"."""
        if self._code is None:
            return ""
        return f"{self._code.co_filename}:{self._line} in {self._code.co_qualname}"

    def copy_line(self, origin: Node) -> None:
        """Show another node's source line in errors about this node."""
        self._code, self._line = origin._code, origin._line

    def clear_line(self) -> None:
        """Show no source line in errors about this node, because it comes from a file."""
        self._code, self._line = None, 0

    def set_op(self, op_def: OpDef) -> None:
        """Set the op; traits and role are cached in the node because passes read them often."""
        self.op_def = op_def
        self.type = op_def.name
        self.traits = op_def.traits
        self.role = op_def.traits.role

    @property
    def traceback(self) -> list[tuple[str, int, str, str | None]]:
        """The user's line that created the node: (file, line, function, text of the line).

        It has one frame, the innermost one outside of weft.
        """
        if self._code is None:
            return []
        code, line = self._code, self._line
        text = getline(code.co_filename, line).strip() or None
        return [(code.co_filename, line, code.co_name, text)]

    @property
    def control_inputs(self) -> list[Node]:
        """The nodes that must finish before it starts."""
        return list(self.controls)

    @property
    def control_outputs(self) -> list[Node]:
        """The nodes that wait for this one without using its outputs."""
        return list(self._control_outputs or ())

    @property
    def consumers(self) -> list[Node]:
        """The nodes that use an output of this one or wait for it, without duplicates."""
        users = dict.fromkeys(node for out in self.outputs for node in out.consumers())
        return list(users | (self._control_outputs or {}))

    @property
    def colocation(self) -> tuple[str, ...]:
        """The names of the nodes with which it must be colocated."""
        return tuple(_text(c)[len("loc:@") :] for c in self.attrs.get("_class", ()))

    def colocation_groups(self) -> list[bytes]:
        """Return the colocation requests as TensorFlow's `b"loc:@name"`; its own by default."""
        groups = [_text(c).encode() for c in self.attrs.get("_class", ())]
        return groups or [b"loc:@" + self.name.encode()]

    def get_attr(self, name: str) -> Any:
        """Return the value of an attribute.

        Raises: NotFoundError: the node does not have this attribute.
        """
        try:
            value = self.attrs[name]
        except KeyError:
            raise errors.InvalidArgumentError(
                f"{self.type} has no attribute {name!r}; it has {sorted(self.attrs)}",
                op=self.type,
                node=self.name,
            ) from None
        if name == "_class":
            return self.colocation_groups()
        kind = self.op_def.attrs[name].type if name in self.op_def.attrs else ""
        if kind == "shape":
            return TensorShape(value)
        if kind == "string" and isinstance(value, str):
            return value.encode()
        return list(value) if isinstance(value, tuple) else value

    @property
    def node_def(self) -> Any:
        """The node as a `NodeDef` message."""
        return to_message("NodeDef", self)

    def values(self) -> tuple[Output, ...]:
        """Return the outputs."""
        return self.outputs

    def run(self, feed_dict: Any = None, session: Any = None) -> None:
        """Run this node in `session`, or in the default session.

        Raises: FailedPreconditionError: there is no default session.
        """
        thread_stacks.session_for(self.graph, session, f"{self.name}.run()").run(self, feed_dict)

    def _add_control_output(self, node: Node) -> None:
        waiting = self._control_outputs
        if waiting is None:
            self._control_outputs = {node: None}
        else:
            waiting[node] = None

    def __repr__(self) -> str:
        return f"<weft.Operation '{self.name}' type={self.type}>"


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


implementations: Registry[Callable[..., Any]] = Registry("operator", "weft_graph.ops")
"""Implementations of Python's operators, by method name without underscores."""


class Operators(Symbolic):
    """Python operators of classes that convert to a tensor.

    Binary operators broadcast like NumPy's; the other operand is converted to this one's element
    type. `weft_graph.ops.operators` implements them.
    `==` compares identity, as in TensorFlow 1.15; `equal` compares values.
    """

    __slots__ = ()

    def ref(self) -> Reference:
        """Return a hashable key that compares by identity; its `deref` returns the object."""
        return Reference(self)

    def experimental_ref(self) -> Reference:
        """Return `ref()`; deprecated."""
        return Reference(self)

    def __add__(self, other: Any) -> Output:
        return _apply("add", self, other)

    def __radd__(self, other: Any) -> Output:
        return _apply("add", other, self)

    def __sub__(self, other: Any) -> Output:
        return _apply("sub", self, other)

    def __rsub__(self, other: Any) -> Output:
        return _apply("sub", other, self)

    def __mul__(self, other: Any) -> Output:
        return _apply("mul", self, other)

    def __rmul__(self, other: Any) -> Output:
        return _apply("mul", other, self)

    def __truediv__(self, other: Any) -> Output:
        return _apply("truediv", self, other)

    def __rtruediv__(self, other: Any) -> Output:
        return _apply("truediv", other, self)

    def __floordiv__(self, other: Any) -> Output:
        return _apply("floordiv", self, other)

    def __rfloordiv__(self, other: Any) -> Output:
        return _apply("floordiv", other, self)

    def __mod__(self, other: Any) -> Output:
        return _apply("mod", self, other)

    def __rmod__(self, other: Any) -> Output:
        return _apply("mod", other, self)

    def __pow__(self, other: Any) -> Output:
        return _apply("pow", self, other)

    def __rpow__(self, other: Any) -> Output:
        return _apply("pow", other, self)

    def __matmul__(self, other: Any) -> Output:
        return _apply("matmul", self, other)

    def __rmatmul__(self, other: Any) -> Output:
        return _apply("matmul", other, self)

    def __lt__(self, other: Any) -> Output:
        return _apply("lt", self, other)

    def __le__(self, other: Any) -> Output:
        return _apply("le", self, other)

    def __gt__(self, other: Any) -> Output:
        return _apply("gt", self, other)

    def __ge__(self, other: Any) -> Output:
        return _apply("ge", self, other)

    def __and__(self, other: Any) -> Output:
        return _apply("and", self, other)

    def __rand__(self, other: Any) -> Output:
        return _apply("and", other, self)

    def __or__(self, other: Any) -> Output:
        return _apply("or", self, other)

    def __ror__(self, other: Any) -> Output:
        return _apply("or", other, self)

    def __xor__(self, other: Any) -> Output:
        return _apply("xor", self, other)

    def __rxor__(self, other: Any) -> Output:
        return _apply("xor", other, self)

    def __invert__(self) -> Output:
        return _apply("invert", self)

    def __neg__(self) -> Output:
        return _apply("neg", self)

    def __abs__(self) -> Output:
        return _apply("abs", self)

    def __getitem__(self, key: Any) -> Output:
        return _apply("getitem", self, key)


def _apply(operator: str, *operands: Any) -> Output:
    result: Output = implementations.lookup(operator)(*operands)
    return result


class _Refinements:
    """Counter of refinements of static shapes in all graphs."""

    count = 0


refinements: Final = _Refinements()


class Output(Operators):
    """One output of a node: a symbolic tensor.

    Attributes:
      node: the node that produces it; also `op`.
      index: index among the node's outputs; also `value_index`.
      dtype: element type; a reference type for the outputs of mutable variables.
      dims: static shape as a tuple with None for unknown sizes, or None for unknown rank.

    Args:
      node: the node that produces it.
      index: index among the node's outputs.
      dtype: element type.
      dims: static sizes, with None for unknown ones; None for an unknown rank.

    Examples:
      >>> x = wf.placeholder(wf.float32, [None, 3])
      >>> x.dtype, x.shape, x.op.type
      (weft.float32, TensorShape([Dimension(None), Dimension(3)]), 'Placeholder')
      >>> (x + 1.0)[0].shape
      TensorShape([Dimension(3)])
    """

    __slots__ = ("__weakref__", "_uses", "dims", "dtype", "index", "node")

    def __init__(self, node: Node, index: int, dtype: DType, dims: Dims) -> None:
        self.node = node
        self.index = index
        self.dtype = dtype
        self.dims = dims
        self._uses: dict[Node, int] | None = None

    @property
    def op(self) -> Node:
        """The node that produces it."""
        return self.node

    @property
    def value_index(self) -> int:
        """The index among the node's outputs."""
        return self.index

    @property
    def graph(self) -> Graph:
        """The graph of the variable."""
        return self.node.graph

    @property
    def name(self) -> str:
        """`node:port`."""
        return f"{self.node.name}:{self.index}"

    @property
    def device(self) -> str:
        """The device requested for its node."""
        return self.node.device

    @property
    def shape(self) -> TensorShape:
        """The static shape."""
        return TensorShape(self.dims)

    def get_shape(self) -> TensorShape:
        """Return the static shape."""
        return TensorShape(self.dims)

    def set_shape(self, shape: Any) -> None:
        """Refine the static shape.

        Raises: InvalidArgumentError: `shape` contradicts the known shape.
        """
        self.dims = merge_dims(self.dims, as_dims(shape))
        refinements.count += 1

    def consumers(self) -> list[Node]:
        """Return the nodes that use the output as an input, without duplicates."""
        return list(self._uses or ())

    def eval(self, feed_dict: Any = None, session: Any = None) -> Any:
        """Return its value in `session`, or in the default session.

        Raises: FailedPreconditionError: there is no default session.
        """
        return thread_stacks.session_for(self.graph, session, f"{self.name}.eval()").run(
            self, feed_dict
        )

    def _add_use(self, node: Node) -> None:
        uses = self._uses
        if uses is None:
            self._uses = {node: 1}
        else:
            uses[node] = uses.get(node, 0) + 1

    def _drop_use(self, node: Node) -> None:
        assert self._uses is not None
        count = self._uses[node] - 1
        if count:
            self._uses[node] = count
        else:
            del self._uses[node]

    def __iter__(self) -> Iterator[Output]:
        return (self[i] for i in range(self._first_size("cannot be iterated", "unstack(x, num)")))

    def __len__(self) -> int:
        return self._first_size("has no len()", "shape(x)[0]")

    def _first_size(self, refused: str, replacement: str) -> int:
        if self.dims == ():
            raise errors.InvalidTypeError(f"{self!r} {refused}: it has rank 0")
        if self.dims is None or self.dims[0] is None:
            raise errors.InvalidTypeError(
                f"{self!r} {refused}: its first dimension is unknown; use "
                f"{replacement}, map_fn or while_loop"
            )
        return self.dims[0]

    def __repr__(self) -> str:
        return f"<weft.Tensor '{self.name}' shape={format_dims(self.dims)} dtype={self.dtype.name}>"


def check_same_graph(nodes: Sequence[Output | Node]) -> None:
    """Raise InvalidArgumentError unless all belong to one graph."""
    for item in nodes[1:]:
        if item.graph is not nodes[0].graph:
            raise errors.InvalidArgumentError(
                f"{item!r} and {nodes[0]!r} belong to different graphs"
            )


class Context:
    """Interface of a branch or loop for its nodes.

    Attributes:
      name: unique within the graph.
      outer: the enclosing context, or None.
      repeats: True if it is a loop, so that its nodes have one value per iteration.
    """

    name: str = ""
    outer: Context | None = None
    repeats = False

    def is_inside(self, other: Context | None) -> bool:
        """Return True if this is `other` or nested in it; everything is inside None."""
        context: Context | None = self
        while context is not None:
            if context is other:
                return True
            context = context.outer
        return other is None

    def home_of(self, node: Node) -> Context | None:
        """Return the context of a node's outputs; it differs for nodes that leave the context."""
        return self

    def admit(
        self, op: str, name: str, inputs: tuple[Output, ...], controls: tuple[Node, ...]
    ) -> tuple[tuple[Output, ...], tuple[Node, ...], Context | None]:
        """Return the inputs and control inputs of a new node, and its context.

        Args:
          op, name: op and name of the node.
          inputs, controls: its inputs and control inputs, from any context.
        Raises: InvalidArgumentError: one of them is in a loop that does not contain this context.
        """
        raise NotImplementedError
