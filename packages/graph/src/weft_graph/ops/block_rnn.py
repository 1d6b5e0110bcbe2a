"""Recurrent cells and layers as single ops: block LSTMs, and the block gated recurrent unit.

Graphs of `tf.contrib.rnn` contain them. One kernel computes a step, or all steps, of a layer. The
gates are outputs too, because the gradient needs them.
"""

from __future__ import annotations

__all__: list[str] = []

from collections.abc import Mapping, Sequence
from typing import Final

from weft_graph.ir.costs import Cost, Sizes
from weft_graph.ir.op_def import NodeSpec, ShapeRule, register_op
from weft_graph.ir.traits import Traits
from weft_graph.ops.cost_rules import dims_at
from weft_graph.ops.shape_rules import constant_int, merge_size, with_rank
from weft_tensor import errors
from weft_tensor.shape import Dims

# ------------------------------------------------------------------------- shape rules

Shapes = Mapping[str, str]
"""Mapping from arguments to symbolic shapes such as "B 4H": T steps, batch B, inputs I, width H,
rows R = I + H of weights that multiply an input and a state.
"""


def _rule(op: str, inputs: Shapes, outputs: Shapes) -> ShapeRule:
    """Return a shape rule that checks sizes with the same symbol and computes the output shapes."""

    def rule(node: NodeSpec) -> Sequence[Dims]:
        sizes: dict[str, int | None] = {}
        for (name, symbols), value in zip(inputs.items(), node.inputs, strict=True):
            _bind(sizes, symbols.split(), value.dims, f"{op}: {name}")
        rows, width, depth = (sizes.get(symbol) for symbol in "RHI")
        if rows is not None and width is not None:
            if rows < width:
                raise errors.InvalidArgumentError(
                    f"{op} requires weights with a row for each input and for each of the {width} "
                    f"elements of a state, got {rows}"
                )
            label = f"{op}: rows of the weights less the width, and inputs,"
            sizes["I"] = merge_size(rows - width, depth, label)
        elif width is not None and depth is not None:
            sizes["R"] = depth + width
        if "seq_len_max" in inputs:
            _check_steps(op, node, sizes["T"])
        return [
            tuple([_size(sizes, symbol) for symbol in text.split()]) for text in outputs.values()
        ]

    return rule


def _bind(sizes: dict[str, int | None], symbols: list[str], dims: Dims, label: str) -> None:
    for symbol, size in zip(symbols, with_rank(dims, len(symbols), label), strict=True):
        factor, name = int(symbol[:-1] or 1), symbol[-1]
        if size is not None and size % factor:
            raise errors.InvalidArgumentError(
                f"{label} must have a multiple of {factor} columns, got {size}"
            )
        size = None if size is None else size // factor
        sizes[name] = merge_size(
            sizes.get(name), size, f"{label}, {symbol} in {symbols}: sizes {name}"
        )


def _size(sizes: Mapping[str, int | None], symbol: str) -> int | None:
    size = sizes.get(symbol[-1])
    return None if size is None else int(symbol[:-1] or 1) * size


def _check_steps(op: str, node: NodeSpec, steps: int | None) -> None:
    count = constant_int(node.inputs[0])
    if count is not None and (count < 0 or (steps is not None and count > steps)):
        limit = "the steps of x" if steps is None else str(steps)
        raise errors.InvalidArgumentError(
            f"{op} requires seq_len_max from 0 to {limit}, got {count}"
        )


def _cost(sizes: Sizes) -> Cost:
    """Return the cost of multiplying each row by all weights, and of the gates."""
    x = next(i for i, shape in enumerate(sizes.inputs) if len(shape) > 1)
    *_, steps, batch, _ = (1, *dims_at(sizes.inputs, x, 2))
    weights = [shape for shape in sizes.inputs[x + 2 : x + 4] if len(shape) == 2]
    products = sum(2.0 * steps * batch * rows * columns for rows, columns in weights)
    return Cost(products + 60.0 * sizes.elements_out, float(sizes.all_bytes))


# ------------------------------------------------------------------------ declarations

_KINDS: Final = {"T": "{float16, bfloat16, float32, float64}"}
_STATES: Final = {"cs_prev": "B H", "h_prev": "B H"}
_WEIGHTS: Final = {"w": "R 4H", "wci": "H", "wcf": "H", "wco": "H", "b": "4H"}
_GATES: Final = ("i", "cs", "f", "o", "ci", "co", "h")
_LSTM_DOC: Final = """
    LSTM, {what}. [x, h_prev] @ w + b is the concatenation of {order}. Then
    i = sigmoid(i + wci * cs_prev), f = sigmoid(f + {bias}wcf * cs_prev), ci = tanh(ci),
    cs = ci * i + cs_prev * f, o = sigmoid(o + wco * cs), co = tanh(cs), h = co * o; without
    `use_peephole` the terms with cs and cs_prev are omitted. A positive `cell_clip` clips cs to
    [-cell_clip, cell_clip]; the gradient ignores the clipping.
    """


def _declare(op: str, inputs: Shapes, outputs: Shapes, attrs: Mapping[str, str], doc: str) -> None:
    kinds = {name: "int64" if name == "seq_len_max" else "T" for name in inputs}
    register_op(
        op,
        [f"{name}: {kind}" for name, kind in kinds.items()],
        [f"{name}: T" for name in outputs],
        {**attrs, **_KINDS},
        _rule(op, inputs, outputs),
        traits=Traits(cost=_cost),
        doc=doc,
    )


def _declare_layer(version: str, clip: float, order: str, biased: bool) -> None:
    inputs = {"seq_len_max": "", "x": "T B I", **_STATES, **_WEIGHTS}
    outputs = dict.fromkeys(_GATES, "T B H")
    doc = _LSTM_DOC.format(
        what="all steps of a layer; results of steps from `seq_len_max` on are 0",
        order=order,
        bias="forget_bias + " if biased else "",
    )
    attrs = {"forget_bias": "float = 1.0"} if biased else {}
    attrs |= {"cell_clip": f"float = {clip}", "use_peephole": "bool = false"}
    _declare(f"BlockLSTM{version}", inputs, outputs, attrs, doc)
    flowing = {**inputs, **outputs, "cs_grad": "T B H", "h_grad": "T B H"}
    flowed = {f"{name}_grad": text for name, text in inputs.items() if text}
    doc = f"The gradient of BlockLSTM{version}, from those of cs and h."
    _declare(f"BlockLSTMGrad{version}", flowing, flowed, {"use_peephole": "bool"}, doc)


_declare_layer("", 3.0, "i, ci, f, o", True)
_declare_layer("V2", 0.0, "i, f, ci, o", False)

_CELL: Final = {"x": "B I", **_STATES, **_WEIGHTS}
_declare(
    "LSTMBlockCell",
    _CELL,
    dict.fromkeys(_GATES, "B H"),
    {
        "forget_bias": "float = 1.0",
        "cell_clip": "float = 3.0",
        "use_peephole": "bool = false",
    },
    _LSTM_DOC.format(what="one step", order="i, ci, f, o", bias="forget_bias + "),
)
_declare(
    "LSTMBlockCellGrad",
    {**_CELL, **dict.fromkeys((*_GATES[:-1], "cs_grad", "h_grad"), "B H")},
    {
        "cs_prev_grad": "B H",
        "dicfo": "B 4H",
        "wci_grad": "H",
        "wcf_grad": "H",
        "wco_grad": "H",
    },
    {"use_peephole": "bool"},
    "The gradient of LSTMBlockCell, by what flows back to cs and h; `dicfo` is that of the gates.",
)

_GRU: Final = {
    "x": "B I",
    "h_prev": "B H",
    "w_ru": "R 2H",
    "w_c": "R H",
    "b_ru": "2H",
    "b_c": "H",
}
_declare(
    "GRUBlockCell",
    _GRU,
    dict.fromkeys(("r", "u", "c", "h"), "B H"),
    {},
    """
    A step of a gated recurrent unit: the concatenation of r and u is sigmoid([x, h_prev] @ w_ru +
    b_ru), c = tanh([x, h_prev * r] @ w_c + b_c), h = (1 - u) * c + u * h_prev.
    """,
)
_declare(
    "GRUBlockCellGrad",
    {**_GRU, **dict.fromkeys(("r", "u", "c", "d_h"), "B H")},
    {"d_x": "B I", "d_h_prev": "B H", "d_c_bar": "B H", "d_r_bar_u_bar": "B 2H"},
    {},
    "The gradient of GRUBlockCell; the last two results are those of its gates before activations.",
)
