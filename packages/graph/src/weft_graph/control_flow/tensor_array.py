"""TensorArray: a list of tensors inside a graph, written and read by index.

A TensorArray consists of a handle to an array that the running step creates, and a flow value that
orders the changes. `write` and similar methods return a new TensorArray with a new flow; reads from
that one see the change.
"""

from __future__ import annotations

__all__ = ["TensorArray"]

from contextlib import AbstractContextManager, ExitStack
from typing import Any

import numpy as np

from weft_graph.ir.builder import constant_of, convert_to_tensor, out
from weft_graph.ir.default_graph import get_default_graph, name_scope
from weft_graph.ir.node import Node, Output
from weft_graph.ops import tensor_array as ops
from weft_graph.ops.casting import cast
from weft_graph.ops.identity import identity
from weft_graph.ops.sequence import range as range_of
from weft_graph.ops.shape_rules import constant_int
from weft_tensor import dtypes, errors
from weft_tensor.dtypes import DType
from weft_tensor.shape import Dims, TensorShape, as_dims, compatible_dims, format_dims, merge_dims

_LARGEST_CONSTANT = 1 << 12
"""Ranges up to this length are constants; longer ones are computed at run time."""


class _SharedState:
    """State that all TensorArrays of one handle share.

    Attributes:
      dims: the static shape of the elements.
      infer_shape: True if each write refines `dims`.
      size: the number of elements if it is known and fixed.
      first_write: the node of the first written value, with which writes are colocated; None
        before.
      colocate: True if writes are colocated with it.
    """

    __slots__ = ("colocate", "dims", "first_write", "infer_shape", "size")

    def __init__(self, dims: Dims, infer_shape: bool, size: Output | None, colocate: bool) -> None:
        self.dims = dims
        self.infer_shape = infer_shape
        self.size = size
        self.colocate = colocate
        self.first_write: Node | None = None


class TensorArray:
    """A list of tensors of the same type that a step writes and reads by index, also inside loops.

    Each element is written once and by default read once; the read removes it from the array. The
    gradient of a read is a write to a gradient array. An element that was never written reads as
    zeros if the shape of elements is fully known.

    Args:
      dtype: element type.
      size: int32, rank 0: the number of elements.
      dynamic_size: grow the array on writes beyond the end; False by default.
      clear_after_read: remove an element when it is read, which frees its memory; True by default.
      tensor_array_name: name of the array in messages.
      handle: handle of an existing array to use; requires `flow`, and excludes `element_shape` and
        the arguments before it.
      flow: float32, rank 0: the value that the first use waits for.
      infer_shape: require all elements to have the same shape, and infer it statically if possible.
      element_shape: shape with which all elements must be compatible.
      colocate_with_first_write_call: place the array with the first written value, instead of by
        the current device scope.
      name: name of the nodes.
    Raises:
      InvalidArgumentError: arguments exclude each other, or `size` is missing or negative.
      InvalidTypeError: `handle` is not an output.

    Examples:
      >>> def body(i, squares):
      ...     return i + 1, squares.write(i, i * i)
      >>> squares = wf.TensorArray(wf.int32, size=5)
      >>> _, squares = wf.while_loop(lambda i, _: i < 5, body, [0, squares])
      >>> wf.Session().run(squares.stack())
      array([ 0,  1,  4,  9, 16], dtype=int32)
    """

    def __init__(
        self,
        dtype: Any,
        size: Any = None,
        dynamic_size: bool | None = None,
        clear_after_read: bool | None = None,
        tensor_array_name: str | None = None,
        handle: Output | None = None,
        flow: Output | None = None,
        infer_shape: bool = True,
        element_shape: Any = None,
        colocate_with_first_write_call: bool = True,
        name: str | None = None,
    ) -> None:
        _check_arguments(
            handle,
            flow,
            size=size,
            element_shape=element_shape,
            dynamic_size=dynamic_size,
            clear_after_read=clear_after_read,
            tensor_array_name=tensor_array_name,
        )
        self._dtype = dtypes.as_dtype(dtype).base_dtype
        self._dynamic_size = bool(dynamic_size)
        dims = as_dims(element_shape)
        known_size: Output | None = None
        if handle is not None and flow is not None:
            self._handle, self._flow = handle, convert_to_tensor(flow, dtypes.float32)
        else:
            with name_scope(name, "TensorArray", [size]) as scope, ExitStack() as stack:
                if colocate_with_first_write_call:
                    _anywhere(stack)
                self._handle, self._flow = ops.tensor_array_v3(
                    size,
                    self._dtype,
                    dims,
                    self._dynamic_size,
                    clear_after_read is not False,
                    bool(infer_shape),
                    tensor_array_name or "",
                    name=scope,
                )
            known_size = None if self._dynamic_size else self._handle.node.inputs[0]
        colocate = colocate_with_first_write_call and handle is None
        self._shared = _SharedState(dims, bool(infer_shape), known_size, colocate)

    # ------------------------------------------------------------------ properties

    @property
    def flow(self) -> Output:
        """The value that orders the uses: float32, shape ()."""
        return self._flow

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self._dtype

    @property
    def handle(self) -> Output:
        """The handle to the array: resource, shape ()."""
        return self._handle

    @property
    def dynamic_size(self) -> bool:
        """True if writes beyond the end grow the array."""
        return self._dynamic_size

    @property
    def element_shape(self) -> TensorShape:
        """The static shape of the elements."""
        return TensorShape(self._shared.dims)

    def __repr__(self) -> str:
        dims, dtype = format_dims(self._shared.dims), self._dtype.name
        return f"<weft.TensorArray '{self._handle.name}' element_shape={dims} dtype={dtype}>"

    # ------------------------------------------------------------------ whole arrays

    def identity(self) -> TensorArray:
        """Return the same array with a flow that waits for the current control dependencies."""
        return rebuild(self, identity(self._flow))

    def grad(self, source: str, flow: Output | None = None, name: str | None = None) -> TensorArray:
        """Return the gradient array, which receives the gradients of the elements.

        Its writes are summed, and unwritten elements are zeros. After its creation, this array
        cannot grow.

        Args:
          source: identifier that distinguishes several calls of `gradients`.
          flow: flow after the writes that must come first; the array's flow by default.
        """
        ordered_flow = self._flow if flow is None else flow
        with name_scope(name, "TensorArrayGrad", [self._handle]), self._colocate_value():
            handle, grad_flow = ops.tensor_array_grad_v3(self._handle, ordered_flow, source)
        grad_array = TensorArray(
            self._dtype, handle=handle, flow=grad_flow, infer_shape=self._shared.infer_shape
        )
        grad_array._shared.dims = self._shared.dims
        return grad_array

    def size(self, name: str | None = None) -> Output:
        """Return the number of elements, written or not: int32, shape ()."""
        if self._shared.size is not None:
            return self._shared.size
        with self._colocate_value():
            return ops.tensor_array_size_v3(self._handle, self._flow, name)

    def close(self, name: str | None = None) -> Node:
        """Release the contents of the array; later uses are errors."""
        with self._colocate_value():
            return ops.tensor_array_close_v3(self._handle, name)

    # ------------------------------------------------------------------ reading

    def read(self, index: Any, name: str | None = None) -> Output:
        """Return an element.

        Args:
          index: int32, rank 0.
        Raises (at run time): InvalidArgumentError: `index` is out of range; the element was
          cleared by an earlier read; or it was never written and its shape is not known.
        """
        with self._colocate_value():
            value = ops.tensor_array_read_v3(self._handle, index, self._flow, self._dtype, name)
        value.set_shape(self._shared.dims)
        return value

    def stack(self, name: str | None = None) -> Output:
        """Return all elements, which must have one shape, along a new first axis: (size, …).

        Raises (at run time): InvalidArgumentError: as `read`; shapes differ; or there is no
          element and their shape is not known.
        """
        with name_scope(name, "TensorArrayStack", [self._handle]):
            return self.gather(_indices(self.size()), name)

    def gather(self, indices: Any, name: str | None = None) -> Output:
        """Return some elements, which must have one shape, along a new first axis.

        Args:
          indices: int32, shape (N,).
        Returns: shape (N, …).
        Raises (at run time): InvalidArgumentError: as `stack`.
        """
        with self._colocate_value():
            return ops.tensor_array_gather_v3(
                self._handle, indices, self._flow, self._dtype, self._shared.dims, name
            )

    def concat(self, name: str | None = None) -> Output:
        """Return all elements joined along their first axis.

        Raises:
          InvalidArgumentError: elements have rank 0; or (at run time) as `read`, or shapes differ
            in the other axes.
        """
        dims, size = self._shared.dims, self._shared.size
        if dims == ():
            raise errors.InvalidArgumentError(
                "elements of rank 0 cannot be concatenated; use stack"
            )
        element_dims = None if dims is None else dims[1:]
        with self._colocate_value():
            value, _ = ops.tensor_array_concat_v3(
                self._handle, self._flow, self._dtype, element_dims, name
            )
        count = None if size is None else constant_int(size)
        if dims is not None and dims[0] is not None and count is not None:
            value.set_shape((count * dims[0], *dims[1:]))
        return value

    # ------------------------------------------------------------------ writing

    def write(self, index: Any, value: Any, name: str | None = None) -> TensorArray:
        """Write an element; return the array with the new flow.

        Args:
          index: int32, rank 0.
          value: the array's type and element shape.
        Raises: InvalidArgumentError: the shape does not fit; or (at run time) `index` is out of
          range or was written before.
        """
        with name_scope(name, "TensorArrayWrite", [self._handle, index, value]):
            element = self._element(value)
            self._refine_shape(element.dims)
            with self._colocate_value(element):
                flow = ops.tensor_array_write_v3(self._handle, index, element, self._flow, name)
        return rebuild(self, flow)

    def unstack(self, value: Any, name: str | None = None) -> TensorArray:
        """Write the rows of a value to the elements 0, 1, …; return the array with the new flow.

        Args:
          value: rank R ≥ 1; its rows have rank R - 1.
        Raises: InvalidArgumentError: as `write`.
        """
        with name_scope(name, "TensorArrayUnstack", [self._handle, value]):
            rows = self._element(value)
            return self.scatter(_row_numbers(rows), rows, name)

    def scatter(self, indices: Any, value: Any, name: str | None = None) -> TensorArray:
        """Write the rows of a value to the elements `indices`; return the array with the new flow.

        Args:
          indices: int32, shape (N,).
          value: shape (N, …).
        Raises: InvalidArgumentError: as `write`; or the number of rows is not that of indices.
        """
        with name_scope(name, "TensorArrayScatter", [self._handle, value, indices]):
            rows = self._element(value)
            self._refine_shape(rows.dims[1:] if rows.dims else None)
            with self._colocate_value(rows):
                flow = ops.tensor_array_scatter_v3(self._handle, indices, rows, self._flow, name)
        return rebuild(self, flow)

    def split(self, value: Any, lengths: Any, name: str | None = None) -> TensorArray:
        """Write slices of a value to the elements 0, 1, …; return the array with the new flow.

        Args:
          value: rank at least 1, split along its first axis.
          lengths: integers, shape (size,); they add up to the first size of the value.
        Raises: InvalidArgumentError: as `write`; or `lengths` do not fit.
        """
        with name_scope(name, "TensorArraySplit", [self._handle, value, lengths]):
            joined = self._element(value)
            sizes = cast(lengths, dtypes.int64)
            self._refine_piece_shape(joined.dims, sizes)
            with self._colocate_value(joined):
                flow = ops.tensor_array_split_v3(self._handle, joined, sizes, self._flow, name)
        return rebuild(self, flow)

    # ------------------------------------------------------------------ helpers

    def _element(self, value: Any) -> Output:
        element = convert_to_tensor(value, name="value", preferred_dtype=self._dtype)
        if element.dtype.base_dtype is not self._dtype:
            raise errors.InvalidTypeError(
                f"{self!r} requires values of {self._dtype.name}, got {element!r}"
            )
        return element

    def _refine_shape(self, dims: Dims) -> None:
        """Check a value's shape and refine the inferred element shape."""
        common = self._shared
        if not compatible_dims(common.dims, dims):
            hint = "; pass infer_shape=False to allow several" if common.infer_shape else ""
            raise errors.InvalidArgumentError(
                f"the elements of {self!r} must have shape {format_dims(common.dims)}, "
                f"got {format_dims(dims)}{hint}"
            )
        if common.infer_shape:
            common.dims = merge_dims(common.dims, dims)

    def _refine_piece_shape(self, dims: Dims, lengths: Output) -> None:
        if not dims:
            return
        piece_sizes = ops.piece_sizes(dims, lengths)
        for size in [None] if piece_sizes is None else dict.fromkeys(piece_sizes):
            self._refine_shape((size, *dims[1:]))

    def _colocate_value(self, value: Output | None = None) -> AbstractContextManager[Any]:
        """Colocate nodes with the array; with `colocate`, writes with the first written value."""
        graph = self._handle.graph
        stack = ExitStack()
        stack.enter_context(graph.colocate_with(self._handle))
        common = self._shared
        if common.colocate and value is not None:
            common.first_write = common.first_write or value.node
            stack.enter_context(graph.colocate_with(common.first_write))
        return stack


def rebuild(ta: TensorArray, flow: Output) -> TensorArray:
    """Return the same TensorArray, sequenced after `flow`.

    Args:
      ta: TensorArray whose handle, dtype and shared state the result has.
      flow: float32, rank 0.
    """
    rebuilt = TensorArray.__new__(TensorArray)
    rebuilt._dtype = ta._dtype
    rebuilt._dynamic_size = ta._dynamic_size
    rebuilt._handle = ta._handle
    rebuilt._flow = flow
    rebuilt._shared = ta._shared
    return rebuilt


def _check_arguments(handle: Any, flow: Any, **optional: Any) -> None:
    """Check the combination of arguments.

    Raises:
      InvalidArgumentError: arguments exclude each other, or size or flow is missing.
      InvalidTypeError: the handle is not an output.
    """
    if handle is None:
        if optional["size"] is None:
            raise errors.InvalidArgumentError("a TensorArray requires a size, or a handle")
        return
    for name, value in optional.items():
        if value is not None:
            raise errors.InvalidArgumentError(
                f"a TensorArray takes either a handle or {name}, got both"
            )
    if not isinstance(handle, Output):
        raise errors.InvalidTypeError(f"handle must be an output, got {handle!r}")
    if flow is None:
        raise errors.InvalidArgumentError("a TensorArray with a handle requires a flow")


def _anywhere(stack: ExitStack) -> None:
    """Leave the device and colocation scopes, so that the first write determines the placement."""
    graph = get_default_graph()
    stack.enter_context(graph.colocate_with(None, ignore_existing=True))
    stack.enter_context(graph.device(None))


def _indices(size: Output) -> Output:
    """Return 0, 1, …, size - 1 as int32."""
    count = constant_int(size)
    if count is not None and count <= _LARGEST_CONSTANT:
        return constant_of(np.arange(count, dtype=np.int32), name="range")
    return range_of(0, size)


def _row_numbers(value: Output) -> Output:
    """Return the row indices 0, 1, …, rows - 1 as int32."""
    dims = value.dims
    if dims is not None and not dims:
        raise errors.InvalidArgumentError(f"unstack requires rank at least 1, got {value!r}")
    if dims is not None and dims[0] is not None and dims[0] <= _LARGEST_CONSTANT:
        return constant_of(np.arange(dims[0], dtype=np.int32), name="range")
    rows = out("StridedSlice", [out("Shape", [value]), [0], [1], [1]], {"shrink_axis_mask": 1})
    return range_of(0, rows)
