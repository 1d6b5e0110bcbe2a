"""Operations on sets, and edit distances of sequences, along the last axis of tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from weft_graph.ir.builder import convert_to_tensor, create, out
from weft_graph.ir.indexed_slices import SparseTensor, is_sparse
from weft_graph.ir.node import Output
from weft_graph.ir.op_def import NodeSpec, register_op
from weft_graph.ir.traits import NOT_DIFFERENTIABLE
from weft_graph.ops.shape_rules import merge_size, with_rank_at_least
from weft_graph.ops.sparse_rules import Form, form_at
from weft_tensor import errors
from weft_tensor.shape import Dims, merge_dims

_TYPES: Final = "{int8, int16, int32, int64, uint8, uint16, string}"

# ------------------------------------------------------------------------------ shape rules


def _form_of_dense(value: Output, label: str) -> Form:
    dims = with_rank_at_least(value.dims, 2, label)
    return Form(None, None if dims is None else len(dims), dims)


def _group_shapes(forms: Sequence[Form]) -> Sequence[Dims]:
    """Return the output shapes of a set operation.

    Raises: InvalidArgumentError: their ranks or leading sizes differ, or the rank is below 2.
    """
    rank, lead = None, None
    for form in forms:
        rank = merge_size(rank, form.rank, "the ranks of tensors of sets")
        lead = merge_dims(lead, form.dims[:-1] if form.dims else None)
    if rank is not None and rank < 2:
        raise errors.InvalidArgumentError(f"sets need rank 2 or more, got {rank}")
    return (None, rank), (None,), (rank,)


def _dense_shape(node: NodeSpec) -> Sequence[Dims]:
    first, second = node.inputs
    return _group_shapes([_form_of_dense(first, "set1"), _form_of_dense(second, "set2")])


def _dense_to_sparse_shape(node: NodeSpec) -> Sequence[Dims]:
    return _group_shapes([_form_of_dense(node.inputs[0], "set1"), form_at(node, 1, "set2_")])


def _sparse_shape(node: NodeSpec) -> Sequence[Dims]:
    return _group_shapes([form_at(node, 0, "set1_"), form_at(node, 3, "set2_")])


def _size_shape(node: NodeSpec) -> Sequence[Dims]:
    form = form_at(node, 0, "set_")
    if form.rank is None:
        return (None,)
    if not form.rank:
        raise errors.InvalidArgumentError("sets need rank 1 or more, got 0")
    return ((form.dims or (None,) * form.rank)[:-1],)


def _distance_shape(node: NodeSpec) -> Sequence[Dims]:
    forms = [form_at(node, 0, "hypothesis_"), form_at(node, 3, "truth_")]
    rank = merge_size(forms[0].rank, forms[1].rank, "the ranks of hypothesis and truth")
    if rank is None:
        return (None,)
    if rank < 1:
        raise errors.InvalidArgumentError(f"sequences need rank 1 or more, got {rank}")
    leads = [form.dims[:-1] if form.dims else (None,) * (rank - 1) for form in forms]
    return (tuple([_larger(n, m) for n, m in zip(*leads, strict=True)]),)


def _larger(n: int | None, m: int | None) -> int | None:
    return None if n is None or m is None else max(n, m)


# ------------------------------------------------------------------------------ declarations

_RESULTS: Final = ("result_indices: int64", "result_values: T", "result_shape: int64")
_ATTRS: Final = {"set_operation": "string", "validate_indices": "bool = true", "T": _TYPES}


def _sparse(name: str) -> tuple[str, ...]:
    return (f"{name}_indices: int64", f"{name}_values: T", f"{name}_shape: int64")


for _op, _inputs, _rule in (
    ("DenseToDense", ("set1: T", "set2: T"), _dense_shape),
    ("DenseToSparse", ("set1: T", *_sparse("set2")), _dense_to_sparse_shape),
    ("SparseToSparse", (*_sparse("set1"), *_sparse("set2")), _sparse_shape),
):
    register_op(
        f"{_op}SetOperation",
        _inputs,
        _RESULTS,
        _ATTRS,
        _rule,
        traits=NOT_DIFFERENTIABLE,
        doc="A set operation on the sets of two tensors, selected by `set_operation`.",
    )
register_op(
    "SetSize",
    _sparse("set"),
    ("size: int32",),
    {"validate_indices": "bool = true", "T": _TYPES},
    _size_shape,
    traits=NOT_DIFFERENTIABLE,
    doc="The number of distinct elements of each set.",
)
register_op(
    "EditDistance",
    (*_sparse("hypothesis"), *_sparse("truth")),
    ("output: float32",),
    {"normalize": "bool = true", "T": "type"},
    _distance_shape,
    traits=NOT_DIFFERENTIABLE,
    doc="The Levenshtein distance of each pair of sequences.",
)

# ---------------------------------------------------------------------------------- functions


def _parts(value: SparseTensor) -> list[Output]:
    return [value.indices, value.values, value.dense_shape]


def _operation(a: Any, b: Any, kind: str, validate_indices: bool) -> SparseTensor:
    attrs = {"set_operation": kind, "validate_indices": bool(validate_indices)}
    if is_sparse(a) and not is_sparse(b):
        if kind == "a-b":
            attrs["set_operation"] = "b-a"
        elif kind == "b-a":
            attrs["set_operation"] = "a-b"
        a, b = b, a
    if is_sparse(a):
        op = "SparseToSparseSetOperation"
        inputs = [*_parts(SparseTensor.from_value(a)), *_parts(SparseTensor.from_value(b))]
    elif is_sparse(b):
        op, inputs = "DenseToSparseSetOperation", [a, *_parts(SparseTensor.from_value(b))]
    else:
        op, inputs = "DenseToDenseSetOperation", [convert_to_tensor(a), b]
    return SparseTensor(*create(op, inputs, attrs).outputs)


def set_intersection(a: Any, b: Any, validate_indices: bool = True) -> SparseTensor:
    """Return the intersection of each pair of sets along the last axis.

    Args:
      a, b: integers or strings, Tensor or SparseTensor, of the same rank of at least 2 and equal
        sizes except along the last axis.
      validate_indices: require the indices of SparseTensors to be in order.
    Returns: a SparseTensor: the elements of each set in ascending order, from index 0 on.
    Raises: InvalidArgumentError: ranks or sizes differ; at run time, indices are not in order.

    Examples:
      >>> found = wf.sets.intersection([[1, 2, 2]], [[2, 3]])
      >>> wf.Session().run(found).values
      array([2], dtype=int32)
    """
    return _operation(a, b, "intersection", validate_indices)


def set_union(a: Any, b: Any, validate_indices: bool = True) -> SparseTensor:
    """Return the union of each pair of sets along the last axis.

    Args:
      a, b, validate_indices: as for `intersection`.
    Returns: as `intersection`.
    Raises: as `intersection`.

    Examples:
      >>> wf.Session().run(wf.sets.union([[1, 2, 2]], [[2, 3]])).values
      array([1, 2, 3], dtype=int32)
    """
    return _operation(a, b, "union", validate_indices)


def set_difference(
    a: Any, b: Any, aminusb: bool = True, validate_indices: bool = True
) -> SparseTensor:
    """Return the difference of each pair of sets along the last axis.

    Args:
      a, b, validate_indices: as for `intersection`.
      aminusb: return the elements of `a` that are not in `b`; if False, those of `b` not in `a`.
    Returns: as `intersection`.
    Raises: as `intersection`.

    Examples:
      >>> wf.Session().run(wf.sets.difference([[1, 2, 2]], [[2, 3]])).values
      array([1], dtype=int32)
    """
    return _operation(a, b, "a-b" if aminusb else "b-a", validate_indices)


def set_size(a: Any, validate_indices: bool = True) -> Output:
    """Count the distinct elements of each set along the last axis.

    Args:
      a: SparseTensor of integers or strings.
      validate_indices: require its indices to be in order.
    Returns: int32, the shape of `a` without the last axis.
    Raises: InvalidTypeError: it is not sparse; InvalidArgumentError: at run time, its indices are
      not in order.

    Examples:
      >>> sets = wf.SparseTensor([[0, 0], [0, 1], [1, 0]], [7, 7, 8], [2, 2])
      >>> wf.Session().run(wf.sets.size(sets))
      array([1, 1], dtype=int32)
    """
    if not is_sparse(a):
        raise errors.InvalidTypeError(f"a must be a SparseTensor, got {a!r}")
    attrs = {"validate_indices": bool(validate_indices)}
    return out("SetSize", _parts(SparseTensor.from_value(a)), attrs)


def edit_distance(
    hypothesis: Any, truth: Any, normalize: bool = True, name: str | None = "edit_distance"
) -> Output:
    """Count the insertions, deletions and substitutions that turn one sequence into another.

    Args:
      hypothesis: SparseTensor of any type, rank 1 or more: sequences along the last axis.
      truth: the same type and rank.
      normalize: divide by the length of the true sequence; infinite if only that is empty.
    Returns: float32, one for each sequence; along each axis except the last, the larger size of
      both.
    Raises: InvalidTypeError: an argument is not sparse, or their types differ;
      InvalidArgumentError: their ranks differ.

    Examples:
      >>> said = wf.SparseTensor([[0, 0], [0, 1], [0, 2]], ["a", "b", "c"], [1, 3])
      >>> meant = wf.SparseTensor([[0, 0], [0, 1]], ["a", "c"], [1, 2])
      >>> wf.Session().run(wf.edit_distance(said, meant))
      array([0.5], dtype=float32)
    """
    for value, argument in ((hypothesis, "hypothesis"), (truth, "truth")):
        if not is_sparse(value):
            raise errors.InvalidTypeError(f"{argument} must be a SparseTensor, got {value!r}")
    pair = [SparseTensor.from_value(value) for value in (hypothesis, truth)]
    inputs = [*_parts(pair[0]), *_parts(pair[1])]
    return out("EditDistance", inputs, {"normalize": bool(normalize)}, name)
