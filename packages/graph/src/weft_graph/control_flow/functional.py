"""Functions over the rows of tensors: `map_fn`, `foldl`, `foldr` and `scan`."""

from __future__ import annotations

__all__ = ["foldl", "foldr", "map_fn", "scan"]

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from weft_graph.control_flow.loop import while_loop
from weft_graph.control_flow.tensor_array import TensorArray
from weft_graph.ir import nest
from weft_graph.ir.builder import constant, convert_to_tensor
from weft_graph.ir.composite import AppliesOps, makers
from weft_graph.ir.default_graph import name_scope
from weft_graph.ir.indexed_slices import SparseTensor
from weft_graph.ir.node import Output
from weft_graph.ops import shapes
from weft_graph.variables.scope import get_variable_scope
from weft_tensor import dtypes, errors

Function = Callable[..., Any]


def map_fn(
    fn: Function,
    elems: Any,
    dtype: Any = None,
    parallel_iterations: int | None = None,
    back_prop: bool = True,
    swap_memory: bool = False,
    infer_shape: bool = True,
    name: str | None = None,
    fn_output_signature: Any = None,
) -> Any:
    """Apply `fn` to every row and stack the results along a new first axis.

    Args:
      fn: function of a row of `elems`, in its structure.
      elems: tensors of shape (N, ...), or ragged ones of N rows, in any structure.
      dtype: the element types of the results of `fn`, in their structure; those of `elems` by
        default. A RaggedTensorSpec describes a ragged result, or a tensor whose size differs
        between rows.
      parallel_iterations: number of rows to process in parallel; 10 by default.
      back_prop: True if gradients may flow through it.
      swap_memory: True if saved forward values may be stored on the host.
      infer_shape: require each result to have the same shape for all rows.
      fn_output_signature: newer name of `dtype`.
    Returns: tensors of shape (N, ...) in the structure of `dtype`.
    Raises:
      InvalidTypeError: `fn` is not callable, elements are sparse, or `fn` returns other types.
      InvalidArgumentError: a tensor has rank 0, numbers of rows differ, or `fn` returns another
        structure.

    Examples:
      >>> wf.Session().run(wf.map_fn(lambda x: x * x, wf.constant([1, 2, 3])))
      array([1, 4, 9], dtype=int32)
    """
    if fn_output_signature is not None:
        dtype = fn_output_signature
    _refuse_sparse(elems)
    with _rows(fn, elems, name, "map") as rows:
        structure = rows.dtypes if dtype is None else dtype
        kinds = [_results(spec, rows.count, infer_shape) for spec in nest.flatten(structure)]

        def body(
            i: Output, arrays: list[list[TensorArray]]
        ) -> tuple[Output, list[list[TensorArray]]]:
            values = fn(rows.read(i))
            nest.assert_same_structure(structure, values)
            triples = zip(kinds, arrays, nest.flatten(values), strict=True)
            return i + 1, [
                _write_all(array, i, kind.parts(value)) for kind, array, value in triples
            ]

        _, results = while_loop(
            lambda i, _: i < rows.count,
            body,
            (_index(0), [kind.arrays for kind in kinds]),
            parallel_iterations=parallel_iterations or 10,
            back_prop=back_prop,
            swap_memory=swap_memory,
        )
        stacked = [kind.joined(array) for kind, array in zip(kinds, results, strict=True)]
        return nest.pack_sequence_as(structure, stacked)


class _Results:
    """Accumulator of a function's results for each row.

    Attributes:
      arrays: the TensorArrays of the parts of each result.
    """

    def __init__(self, dtype: Any, count: Any, infer_shape: bool) -> None:
        self.arrays = [TensorArray(dtype, count, dynamic_size=False, infer_shape=infer_shape)]

    def parts(self, value: Any) -> list[Any]:
        """Return the parts of a result."""
        return [value]

    def joined(self, arrays: list[TensorArray]) -> Any:
        """Return all results, stacked."""
        return arrays[0].stack()


def _results(spec: Any, count: Any, infer_shape: bool) -> Any:
    """Return the accumulator for results of an element type or spec."""
    if getattr(spec, "ragged_rank", None) is not None:
        return makers.lookup("results")(spec, count)
    return _Results(getattr(spec, "dtype", spec), count, infer_shape)


def foldl(
    fn: Function,
    elems: Any,
    initializer: Any = None,
    parallel_iterations: int = 10,
    back_prop: bool = True,
    swap_memory: bool = False,
    name: str | None = None,
) -> Any:
    """Return `fn(... fn(fn(initializer, first), second) ..., last)` over the rows of `elems`.

    Args:
      fn: function of the accumulated value and a row of `elems`; returns the next value.
      elems: tensors of shape (N, ...), in any structure.
      initializer: the first value, in any structure; the first row by default.
      parallel_iterations, back_prop, swap_memory: as for `while_loop`.
    Returns: the last value.
    Raises:
      InvalidTypeError: `fn` is not callable, or changes the value's type.
      InvalidArgumentError: a tensor has rank 0, or `fn` changes the value's structure or shape; at
        run time, there are neither rows nor an initializer.

    Examples:
      >>> wf.Session().run(wf.foldl(lambda total, x: total + x, wf.constant([1, 2, 3])))
      np.int32(6)
    """
    with _rows(fn, elems, name, "foldl") as rows:
        first = rows.read(0) if initializer is None else initializer
        start = _index(1 if initializer is None else 0)
        _, result = while_loop(
            lambda i, _: i < rows.count,
            lambda i, value: [i + 1, fn(value, rows.read(i))],
            [start, first],
            parallel_iterations=parallel_iterations,
            back_prop=back_prop,
            swap_memory=swap_memory,
        )
        return result


def foldr(
    fn: Function,
    elems: Any,
    initializer: Any = None,
    parallel_iterations: int = 10,
    back_prop: bool = True,
    swap_memory: bool = False,
    name: str | None = None,
) -> Any:
    """Apply `foldl` to the rows in reverse order; the last row is the first value by default.

    Args:
      fn: function of the accumulated value and a row of `elems`; returns the next value.
      elems: tensors of shape (N, ...), in any structure.
      initializer: the first value, in any structure; the last row by default.
      parallel_iterations, back_prop, swap_memory: as for `while_loop`.

    Examples:
      >>> wf.Session().run(wf.foldr(lambda total, x: x - total, wf.constant([1, 2, 3])))
      np.int32(2)
    """
    with _rows(fn, elems, name, "foldr") as rows:
        start = rows.count if initializer is not None else rows.count - 1
        first = rows.read(start) if initializer is None else initializer

        def body(i: Output, value: Any) -> list[Any]:
            i = i - 1
            return [i, fn(value, rows.read(i))]

        _, result = while_loop(
            lambda i, _: i > 0,
            body,
            [_index(start), first],
            parallel_iterations=parallel_iterations,
            back_prop=back_prop,
            swap_memory=swap_memory,
        )
        return result


def scan(
    fn: Function,
    elems: Any,
    initializer: Any = None,
    parallel_iterations: int = 10,
    back_prop: bool = True,
    swap_memory: bool = False,
    infer_shape: bool = True,
    reverse: bool = False,
    name: str | None = None,
) -> Any:
    """Return all intermediate values of `foldl`, stacked along a new first axis.

    Args:
      fn: function of the accumulated value and a row of `elems`; returns the next value.
      elems: tensors of shape (N, ...), in any structure.
      initializer: the value before the first row, in any structure; by default the first row is the
        first value.
      parallel_iterations, back_prop, swap_memory: as for `while_loop`.
      infer_shape: require all values to have one shape.
      reverse: process the rows from the last to the first; each value keeps the index of its row.
    Returns: tensors of shape (N, ...) in the structure of the values.
    Raises: InvalidTypeError, InvalidArgumentError: as `foldl`; or the numbers of rows differ.

    Examples:
      >>> wf.Session().run(wf.scan(lambda total, x: total + x, wf.constant([1, 2, 3])))
      array([1, 3, 6], dtype=int32)
    """
    with _rows(fn, elems, name, "scan") as rows:
        last = rows.count - 1
        begin = last if reverse else 0
        if initializer is None:
            structure, first = elems, nest.flatten(rows.read(begin))
        else:
            structure = initializer
            first = [convert_to_tensor(initial) for initial in nest.flatten(initializer)]
        results = [
            TensorArray(
                initial.dtype.base_dtype,
                size=rows.count,
                dynamic_size=False,
                element_shape=initial.dims if infer_shape else None,
                infer_shape=infer_shape,
            )
            for initial in first
        ]
        if initializer is None:
            results = _write_all(results, begin, first)
            begin = last - 1 if reverse else 1

        def body(i: Output, values: list[Any], arrays: list[TensorArray]) -> Any:
            old_value = nest.pack_sequence_as(structure, values)
            new_value = fn(old_value, rows.read(i))
            nest.assert_same_structure(structure, new_value)
            results = [
                convert_to_tensor(new, preferred_dtype=old.dtype)
                for new, old in zip(nest.flatten(new_value), values, strict=True)
            ]
            return i - 1 if reverse else i + 1, results, _write_all(arrays, i, results)

        _, _, results = while_loop(
            (lambda i, *_: i >= 0) if reverse else (lambda i, *_: i < rows.count),
            body,
            (_index(begin), first, results),
            parallel_iterations=parallel_iterations,
            back_prop=back_prop,
            swap_memory=swap_memory,
        )
        return nest.pack_sequence_as(structure, [array.stack() for array in results])


# ------------------------------------------------------------------------------------ rows


class _Rows:
    """The rows of tensors in a structure, each read once.

    Attributes:
      dtypes: the element types, in the structure.
      count: the number of rows: an integer if it is known, else int32 of rank 0.
    """

    def __init__(self, elems: Any) -> None:
        leaves = [convert_to_tensor(leaf, name="elem") for leaf in nest.flatten(elems)]
        if not leaves:
            raise errors.InvalidArgumentError("elems must have at least one tensor, got none")
        count: int | None = None
        for leaf in leaves:
            if leaf.dims == ():
                raise errors.InvalidArgumentError(
                    f"elems must have tensors of rank at least 1, got {leaf!r}"
                )
            count = _merge_row_count(count, leaf)
        self._structure = elems
        self.dtypes = nest.pack_sequence_as(elems, [leaf.dtype.base_dtype for leaf in leaves])
        self.count: Any = _first_size(leaves[0]) if count is None else count
        self._arrays = [
            _RowsOf(leaf)
            if isinstance(leaf, AppliesOps)
            else TensorArray(
                leaf.dtype, size=self.count, dynamic_size=False, infer_shape=True
            ).unstack(leaf)
            for leaf in leaves
        ]

    def read(self, index: Any) -> Any:
        """Return a row in the structure."""
        return nest.pack_sequence_as(self._structure, [array.read(index) for array in self._arrays])


class _RowsOf:
    """Access to the rows of a non-tensor value by index."""

    def __init__(self, leaf: Any) -> None:
        self._leaf = leaf

    def read(self, index: Any) -> Any:
        """Return a row."""
        return self._leaf[index]


def _first_size(leaf: Any) -> Output:
    if isinstance(leaf, AppliesOps):
        return leaf.nrows(dtypes.int32)  # type: ignore[attr-defined, no-any-return]
    return shapes.shape(leaf)[0]


def _merge_row_count(count: int | None, leaf: Output) -> int | None:
    """Return the known number of rows, merged with the number in `leaf`."""
    num_rows = leaf.dims[0] if leaf.dims else None
    if count is not None and num_rows not in (None, count):
        raise errors.InvalidArgumentError(
            f"elems must have equal numbers of rows, got {count} and {num_rows} in {leaf!r}"
        )
    return num_rows if count is None else count


@contextmanager
def _rows(fn: Any, elems: Any, name: str | None, default: str) -> Iterator[_Rows]:
    """Open the scope of a function over rows; yield the scope and the rows."""
    if not callable(fn):
        raise errors.InvalidTypeError(f"fn must be callable, got {fn!r}")
    with name_scope(name, default, nest.flatten(elems)), _reads_cached():
        yield _Rows(elems)


@contextmanager
def _reads_cached() -> Iterator[None]:
    """Read variables created inside once instead of once per row."""
    scope = get_variable_scope()
    saved_device = scope.caching_device
    scope.cache_reads()
    try:
        yield
    finally:
        scope.set_caching_device(saved_device)


def _refuse_sparse(elems: Any) -> None:
    for leaf in nest.flatten(elems):
        if isinstance(leaf, SparseTensor):
            raise errors.InvalidTypeError(
                f"elems must be dense, got {leaf!r}; for a sparse tensor use "
                "SparseTensor(x.indices, fn(x.values), x.dense_shape)"
            )


def _index(value: Any) -> Output:
    """Return the initial row index: int32, rank 0."""
    return value if isinstance(value, Output) else constant(value, dtypes.int32)


def _write_all(arrays: list[TensorArray], index: Any, values: list[Any]) -> list[TensorArray]:
    return [array.write(index, value) for array, value in zip(arrays, values, strict=True)]
