"""The control-flow primitives: Switch, Merge, and the ops of loop frames (paper, section 4.4).

They only route values, so the executor implements them without kernels. `weft_graph.control_flow`
builds conditionals and loops of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from weft_graph.ir import value_rules
from weft_graph.ir.builder import convert_to_tensor, create, out
from weft_graph.ir.costs import free
from weft_graph.ir.node import Node, Output
from weft_graph.ir.op_def import NodeSpec, register_op
from weft_graph.ir.traits import WRITES, Role, Traits
from weft_tensor import dtypes, errors
from weft_tensor.shape import Dims, format_dims


def _first_shape(node: NodeSpec) -> Sequence[Dims]:
    return [node.inputs[0].dims]


def _switch_shape(node: NodeSpec) -> Sequence[Dims]:
    dims = node.inputs[1].dims
    if dims not in ((), None):
        raise errors.InvalidArgumentError(
            f"the predicate must have rank 0, got shape {format_dims(dims)}"
        )
    return [node.inputs[0].dims] * 2


def _merge_shape(node: NodeSpec) -> Sequence[Dims]:
    dims = node.inputs[0].dims
    for source in node.inputs[1:]:
        dims = broader_dims(dims, source.dims)
    return [dims, ()]


def broader_dims(a: Dims, b: Dims) -> Dims:
    """Return the most specific shape that is compatible with both `a` and `b`."""
    if a is None or b is None or len(a) != len(b):
        return None
    return tuple([x if x == y else None for x, y in zip(a, b, strict=True)])


def _loop_cond_shape(node: NodeSpec) -> Sequence[Dims]:
    dims = node.inputs[0].dims
    if dims not in ((), None):
        raise errors.InvalidArgumentError(
            f"the condition of a loop must have rank 0, got shape {format_dims(dims)}"
        )
    return [()]


_FRAME = {"frame_name": "string", "is_constant": "bool = false", "parallel_iterations": "int = 10"}

for _prefix, _arg in (("", "T"), ("Ref", "Ref(T)")):
    register_op(
        f"{_prefix}Switch",
        (f"data: {_arg}", "pred: bool"),
        (f"output_false: {_arg}", f"output_true: {_arg}"),
        {"T": "type"},
        _switch_shape,
        value=None if _prefix else value_rules.routed_value,
        traits=Traits(role=Role.SWITCH, cost=free),
        doc="`data` on the output selected by `pred`; the other output is dead.",
    )
    register_op(
        f"{_prefix}Merge",
        ("inputs: Ref(N * T)" if _prefix else "inputs: N * T",),
        (f"output: {_arg}", "value_index: int32"),
        {"T": "type", "N": "int >= 1"},
        _merge_shape,
        traits=Traits(role=Role.MERGE, cost=free),
        doc="The first input that is available and not dead, and its index.",
    )
    register_op(
        f"{_prefix}Enter",
        (f"data: {_arg}",),
        (f"output: {_arg}",),
        {"T": "type"} | _FRAME,
        _first_shape,
        value=None if _prefix else value_rules.routed_value,
        traits=Traits(role=Role.ENTER, cost=free),
        doc="`data` in iteration 0 of a frame; in all iterations if it is constant.",
    )
    register_op(
        f"{_prefix}Exit",
        (f"data: {_arg}",),
        (f"output: {_arg}",),
        {"T": "type"},
        _first_shape,
        traits=Traits(role=Role.EXIT, cost=free),
        doc="`data` in the enclosing frame; the paper's Leave.",
    )
    register_op(
        f"{_prefix}NextIteration",
        (f"data: {_arg}",),
        (f"output: {_arg}",),
        {"T": "type"},
        _first_shape,
        traits=Traits(role=Role.NEXT_ITERATION, cost=free),
        doc="`data` in the next iteration.",
    )

register_op(
    "LoopCond",
    ("input: bool",),
    ("output: bool",),
    shape=_loop_cond_shape,
    traits=Traits(role=Role.LOOP_COND, differentiable=False, cost=free),
    doc="The input, as the condition of the loop.",
)
register_op(
    "ControlTrigger",
    shape=lambda node: (),
    traits=Traits(role=Role.TRIGGER, differentiable=False, cost=free),
    doc="Does nothing; runs even if its control inputs are dead.",
)
register_op(
    "Abort",
    attrs={"error_msg": "string = ''", "exit_without_error": "bool = false"},
    shape=lambda node: (),
    traits=WRITES,
    doc="Fails the step with a message.",
)


class MergeResult(NamedTuple):
    """The result of a Merge."""

    output: Output
    value_index: Output


def _op(kind: str, data: Output) -> str:
    return f"Ref{kind}" if data.dtype.is_ref else kind


def switch(data: Any, pred: Any, name: str | None = None) -> tuple[Output, Output]:
    """Route `data` to the output that `pred` selects; the other output is dead.

    Args:
      data: any type and shape; a reference stays a reference.
      pred: bool, rank 0.
    Returns: (output_false, output_true).
    """
    value = data if isinstance(data, Output) else convert_to_tensor(data)
    node = create(_op("Switch", value), [value, pred], name=name)
    return node.outputs[0], node.outputs[1]


def merge(inputs: Sequence[Any], name: str | None = None) -> MergeResult:
    """Return the input that is not dead.

    Args:
      inputs: tensors of the same type; shapes may differ.
    Returns: (output, value_index: int32, rank 0).
    """
    values = [v if isinstance(v, Output) else convert_to_tensor(v) for v in inputs]
    refs = all(v.dtype.is_ref for v in values)
    node = create("RefMerge" if refs and values else "Merge", [values], name=name)
    return MergeResult(*node.outputs)


def enter(
    data: Output,
    frame_name: str,
    is_constant: bool = False,
    parallel_iterations: int = 10,
    name: str | None = None,
) -> Output:
    """Make `data` available in the frame `frame_name`.

    Args:
      is_constant: make it available in every iteration, not only in the first.
      parallel_iterations: number of iterations that may run at the same time.
    """
    attrs = {
        "frame_name": frame_name,
        "is_constant": is_constant,
        "parallel_iterations": parallel_iterations,
    }
    return out(_op("Enter", data), [data], attrs, name)


def exit(data: Output, name: str | None = None) -> Output:
    """Return `data` in the enclosing frame: the value when the loop ends."""
    return out(_op("Exit", data), [data], name=name)


def next_iteration(data: Output, name: str | None = None) -> Output:
    """Make `data` available in the next iteration."""
    return out(_op("NextIteration", data), [data], name=name)


def loop_cond(pred: Output, name: str | None = None) -> Output:
    """Return `pred`, marked as the loop condition."""
    return out("LoopCond", [convert_to_tensor(pred, dtypes.bool_)], name=name)


def control_trigger(name: str | None = None) -> Node:
    """Return a no-op that runs even if its control inputs are dead."""
    return create("ControlTrigger", (), name=name)


def abort(error_msg: str = "", exit_without_error: bool = False, name: str | None = None) -> Node:
    """Return a node that fails the step when it runs.

    Raises: AbortedError: at run time, with `error_msg`.
    """
    attrs = {"error_msg": error_msg, "exit_without_error": exit_without_error}
    return create("Abort", (), attrs, name)
