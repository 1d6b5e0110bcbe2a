"""Graphs for tests of serialization: ops of their own, a graph with everything, and equality."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from weft_graph.ir import op_def
from weft_graph.ir.builder import create, out
from weft_graph.ir.func_attr import NameAttrs
from weft_graph.ir.graph import Graph
from weft_graph.ir.node import Output
from weft_graph.ir.op_def import NodeSpec
from weft_tensor import dtypes
from weft_tensor.shape import Dims, TensorShape


def _first(node: NodeSpec) -> Sequence[Dims]:
    return (node.inputs[0].dims,)


def _same(node: NodeSpec) -> Sequence[Dims]:
    return [value.dims for value in node.inputs]


def _merge(node: NodeSpec) -> Sequence[Dims]:
    first = node.inputs[0].dims
    return [first if all(v.dims == first for v in node.inputs) else None, ()]


KINDS = "type", "int", "float", "bool", "string", "shape", "tensor", "func"

OPS: list[tuple[Any, ...]] = [
    ("SerSource", (), ("y: dtype",), {"dtype": "type", "shape": "shape = unknown"}),
    ("SerValue", (), ("y: dtype",), {"value": "tensor", "dtype": "type"}),
    ("SerSame", ("x: T",), ("y: T",), {"T": "type"}, _first),
    ("SerAdd", ("x: T", "y: T"), ("z: T",), {"T": "{float32, int32}", "mode": "int = 3"}, _first),
    ("SerMany", ("xs: N * T",), ("ys: N * T",), {"N": "int >= 1", "T": "type"}, _same),
    ("SerMixed", ("xs: Tin",), ("ys: Tin",), {"Tin": "list(type)"}, _same),
    ("SerVariable", (), ("ref: Ref(dtype)",), {"dtype": "type"}),
    ("SerAssign", ("ref: Ref(T)", "x: T"), ("out: Ref(T)",), {"T": "type"}, _first),
    ("SerKinds", (), (), {f"a_{kind}": kind for kind in KINDS}),
    ("SerLists", (), (), {f"a_{kind}": f"list({kind})" for kind in KINDS}),
    ("Merge", ("xs: N * T",), ("y: T", "i: int32"), {"N": "int >= 1", "T": "type"}, _merge),
    ("NextIteration", ("x: T",), ("y: T",), {"T": "type"}, _first),
]


@contextmanager
def declared() -> Iterator[None]:
    """Declare the ops of this module inside a block."""
    added = []
    for spec in OPS:
        if spec[0] not in op_def._raw:
            op_def.register_op(*spec)
            added.append(spec[0])
    try:
        yield
    finally:
        for name in added:
            del op_def._raw._table[name]
            op_def.parsed_ops.pop(name, None)


def source(dtype: Any = dtypes.float32, shape: Dims = (2, None), name: str = "source") -> Output:
    """Return an output without inputs."""
    output = out("SerSource", (), {"dtype": dtype, "shape": shape}, name)
    output.set_shape(shape)
    return output


def value(array: np.ndarray, dtype: Any = None, name: str = "value") -> Output:
    """Return a constant; `dtype` is for quantized ones."""
    element = dtype or dtypes.from_numpy(array.dtype)
    return out("SerValue", (), {"value": array, "dtype": element}, name)


def strings(*items: bytes) -> np.ndarray:
    """Return a vector of strings."""
    array = np.empty(len(items), object)
    array[:] = items
    return array


def sample_graph() -> Graph:
    """Build a graph with every kind of attribute, edge, name, device and shape."""
    graph = Graph()
    with graph.as_default():
        x = source(name="x")
        scalar = source(dtypes.int32, (), "scalar")
        unknown = source(dtypes.string, None, "unknown")
        with graph.name_scope("layer"), graph.device("/job:worker/task:1/device:GPU:0"):
            y = out("SerAdd", [x, x], {"mode": -(2**63)})
            with graph.control_dependencies([scalar.node, y.node]):
                z = out("SerSame", [y])
        many = create("SerMany", [[x, y, z]])
        create("SerMixed", [[many.outputs[1], scalar, unknown]])
        variable = out("SerVariable", (), {"dtype": dtypes.float32}, "v")
        variable.set_shape((2, 0))
        with graph.colocate_with(variable.node):
            create("SerAssign", [variable, x], name="assign")
        _add_constants()
        _add_attributes()
        _add_loop(scalar)
    z.node.forward = y.node
    graph.check_integrity()
    return graph


def segmented_graph() -> tuple[Graph, int]:
    """Build a graph; return it with the number of nodes expected in its first segment."""
    graph = Graph()
    with graph.as_default():
        x = source(name="x")
        large = value(np.arange(16_400, dtype=np.int32), name="large")
        count = len(graph.nodes)
        with graph.control_dependencies([large.node]):
            y = out("SerAdd", [x, out("SerSame", [x])], name="y")
        value(np.arange(16_400, dtype=np.float32), name="larger")
    y.node.forward = x.node
    return graph, count


def _add_constants() -> None:
    for dtype in dtypes.ALL_DTYPES:
        if dtype is dtypes.string or not dtype.is_numpy_compatible:
            continue
        if int(dtype) > int(dtypes.uint64):  # what was added after the golden files
            continue
        array = np.arange(6).reshape(2, 3).astype(dtype.numpy)
        value(array, dtype, f"const_{dtype.name}")
        value(array[0, 0].reshape(()), dtype, f"scalar_{dtype.name}")
    value(strings(b"", b"a\0b", b"\xff\xfe", "é".encode()).reshape(2, 2), name="strings")
    value(np.zeros((0, 5), np.float32), name="empty")
    shared = np.arange(3, dtype=np.float32)
    value(shared, name="shared")
    value(shared, name="shared_again")
    value(np.random.default_rng(0).random((91, 91)), name="large")
    value(np.arange(10, dtype=np.int64)[::-2], name="strided")


def _add_attributes() -> None:
    function = NameAttrs("f", {"T": dtypes.int8, "n": 3, "g": NameAttrs("g", {"s": "x"})})
    values: dict[str, Any] = {
        "a_type": dtypes.float32_ref,
        "a_int": 2**63 - 1,
        "a_float": 0.1,
        "a_bool": True,
        "a_string": "text ü",
        "a_shape": (None, 3, 0),
        "a_tensor": np.array([1, 2], np.int16),
        "a_func": function,
    }
    loose: dict[str, Any] = {
        "_int": 1,
        "_bool": True,
        "_float": -0.0,
        "_bytes": b"\xff\x00",
        "_ints": (1, 2, 3),
        "_shape": TensorShape((1, None)),
        "_output_kinds": (TensorShape(None), TensorShape((2,))),
        "_nothing": (),
        "_strings": ("a", b"\xfe"),
    }
    create("SerKinds", (), values | loose, "kinds")
    create("SerKinds", (), values | {"a_float": float("inf"), "a_shape": None}, "kinds")
    lists = {name: (item, item) for name, item in values.items()}
    lists["a_shape"] = ((1, 2), None, ())
    lists["a_float"] = (0.0, -0.0, 1e300)
    lists["a_string"] = ("", b"\xff")
    create("SerLists", (), lists, "lists")
    create("SerLists", (), dict.fromkeys(lists, ()), "lists")


def _add_loop(start: Output) -> None:
    merge = create("Merge", [[start, start]], name="loop/merge")
    step = out("SerSame", [merge.outputs[0]], name="loop/step")
    following = out("NextIteration", [step], name="loop/next")
    merge.graph.replace_input(merge, 1, following, reason="loop")


def same_value(a: Any, b: Any, *, float_bits: int = 64) -> bool:
    """Return True if two attribute values are equal; floats up to some bits."""
    if isinstance(a, np.ndarray):
        return (
            isinstance(b, np.ndarray)
            and (a.dtype, a.shape) == (b.dtype, b.shape)
            and (a.tolist() if a.dtype.kind == "O" else a.tobytes())
            == (b.tolist() if b.dtype.kind == "O" else b.tobytes())
        )
    if isinstance(a, tuple):
        return (
            isinstance(b, tuple)
            and len(a) == len(b)
            and all(same_value(*pair, float_bits=float_bits) for pair in zip(a, b, strict=True))
        )
    if isinstance(a, NameAttrs):
        return isinstance(b, NameAttrs) and a.name == b.name and _same_attrs(a.attrs, b.attrs, 64)
    if isinstance(a, float) and float_bits == 32:
        with np.errstate(over="ignore"):
            a = float(np.float32(a))
    return type(a) is type(b) and repr(a) == repr(b)


def _same_attrs(a: dict[str, Any], b: dict[str, Any], float_bits: int) -> bool:
    return a.keys() == b.keys() and all(
        same_value(a[key], b[key], float_bits=float_bits) for key in a
    )


def assert_same_graph(
    a: Graph, b: Graph, *, float_bits: int = 64, durable: bool = True, shapes: bool = True
) -> None:
    """Compare graphs node by node.

    Args:
      float_bits: what attributes of type float keep.
      durable: also compare what a GraphDef does not keep: forward nodes and source lines.
      shapes: also compare static shapes.
    """
    assert [n.name for n in a.nodes] == [n.name for n in b.nodes]
    for m, n in zip(a.nodes, b.nodes, strict=True):
        assert (m.type, m.device, m.index) == (n.type, n.device, n.index)
        assert [s.name for s in m.inputs] == [s.name for s in n.inputs]
        assert {c.name for c in m.control_inputs} == {c.name for c in n.control_inputs}
        assert [o.dtype for o in m.outputs] == [o.dtype for o in n.outputs]
        if shapes:
            assert [o.dims for o in m.outputs] == [o.dims for o in n.outputs], m.name
        assert _same_attrs(m.attrs, n.attrs, float_bits), (m.attrs, n.attrs)
        if durable:
            assert m.line == n.line
            assert (m.forward and m.forward.name) == (n.forward and n.forward.name)
    a.check_integrity()
    b.check_integrity()


def looped_graph() -> Graph:
    """Build a conditional in a loop over `x`, its result `y`, and the gradient `grad`."""
    import weft as wf

    with wf.Graph().as_default() as graph:
        x = wf.placeholder(wf.float64, [], name="x")
        y = wf.while_loop(
            lambda i, a: i < 5,
            lambda i, a: (
                i + 1,
                wf.cond(wf.equal(i % 2, 0), lambda: a * x, lambda: wf.sin(a) + x),
            ),
            [0, wf.constant(1.0, wf.float64)],
            maximum_iterations=7,
            parallel_iterations=3,
            swap_memory=True,
        )[1]
        grad = wf.gradients(y, x)[0]
        wf.identity(y, name="y")
        wf.identity(grad, name="grad")
    return graph
