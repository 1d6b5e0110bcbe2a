"""Element specs of a dataset: a structure of specs, one for each tensor.

Structures are tuples, named tuples and mappings. Lists, arrays and numbers are converted to
tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Self

from weft_graph.functions.type_spec import (
    SparseTensorSpec,
    TensorSpec,
    TypeSpec,
)
from weft_graph.ir import nest
from weft_graph.ir.builder import convert_to_tensor
from weft_graph.ir.indexed_slices import SparseTensor, SparseTensorValue
from weft_graph.ir.node import Output
from weft_graph.ops.control_flow import broader_dims
from weft_graph.ragged.spec import RaggedTensorSpec
from weft_graph.ragged.tensor import RaggedTensor
from weft_graph.ragged.value import RaggedTensorValue
from weft_io.streams.stream import Part
from weft_tensor import dtypes, errors
from weft_tensor.dtypes import DType
from weft_tensor.nesting import too_deep_error
from weft_tensor.shape import Dims, TensorShape, as_dims, compatible_dims


class Raggedness(NamedTuple):
    """The raggedness of the elements of a dataset.

    Attributes:
      rank: number of ragged axes of an element. If 0, an element is a dense tensor whose batches
        are ragged. If negative, only batches of batches are ragged.
      splits: the element type of the row splits.
    """

    rank: int
    splits: DType


class Spec:
    """The form of one tensor of an element.

    A sparse tensor has three components, a ragged one its flat values and the splits of each level.
    A dataset has one component of type variant.

    Args:
      dtype: element type.
      dims: static shape; for a sparse tensor, the dense shape.
      cls: class of the tensor.
      element: for a dataset or an optional, the form of its elements. A dataset has dims (); other
        dims are those of a tensor of datasets, such as a batch of windows.
      ragged: set for ragged tensors and their rows.
    """

    __slots__ = ("cls", "dims", "dtype", "element", "ragged")

    def __init__(
        self,
        dtype: DType,
        dims: Dims,
        cls: type = Output,
        element: Any = None,
        ragged: Raggedness | None = None,
    ) -> None:
        self.dtype = dtype.base_dtype
        self.dims = dims
        self.cls = RaggedTensor if ragged is not None and ragged.rank > 0 else cls
        self.element = element
        self.ragged = ragged

    @property
    def parts(self) -> list[Part]:
        """The components."""
        if self.cls is SparseTensor:
            rank = None if self.dims is None else len(self.dims)
            return [
                Part(dtypes.int64, (None, rank)),
                Part(self.dtype, (None,)),
                Part(dtypes.int64, (rank,)),
            ]
        if self.ragged is not None and self.cls is RaggedTensor:
            levels = self.ragged.rank
            inner = None if self.dims is None else (None, *self.dims[levels + 1 :])
            rows = None if not self.dims or self.dims[0] is None else self.dims[0] + 1
            splits = [(rows,), *[(None,)] * (levels - 1)]
            return [Part(self.dtype, inner), *[Part(self.ragged.splits, dims) for dims in splits]]
        return [Part(self.dtype, self.dims)]

    def rebuilt(self, parts: Sequence[Output]) -> Any:
        """Reassemble a tensor of this form from its components."""
        if self.cls is SparseTensor:
            sparse_tensor = SparseTensor(*parts)
            sparse_tensor.set_shape(self.dims)
            return sparse_tensor
        if self.cls is RaggedTensor:
            return RaggedTensor.from_nested_row_splits(parts[0], parts[1:], validate=False)
        if self.element is None:
            return parts[0]
        if self.dims == ():
            return self.cls(parts[0], self.element)
        return NestedVariant(parts[0], self.element, self.cls)

    def with_dims(self, dims: Dims) -> Spec:
        """Return this spec with another shape."""
        return Spec(self.dtype, dims, self.cls, self.element, self.ragged)

    @property
    def row(self) -> Spec:
        """The form of a row."""
        return self._deeper(None if self.dims is None else self.dims[1:], -1)

    def batch(self, rows: int | None) -> Spec:
        """Return the form of a batch of `rows` elements."""
        return self._deeper(None if self.dims is None else (rows, *self.dims), 1)

    def _deeper(self, dims: Dims, levels: int) -> Spec:
        if self.ragged is None:
            return self.with_dims(dims)
        ragged = Raggedness(self.ragged.rank + levels, self.ragged.splits)
        return Spec(self.dtype, dims, ragged=ragged)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Spec):
            return NotImplemented
        own_fields = (self.dtype, self.dims, self.cls, self.ragged)
        return own_fields == (other.dtype, other.dims, other.cls, other.ragged)

    def like(self, other: Spec) -> bool:
        """Return True if both forms have the same class and dtype, also in nested elements."""
        if self.dtype is not other.dtype or self.cls is not other.cls:
            return False
        if self.element is not None:
            one_rank = (self.dims == ()) == (other.dims == ())
            return one_rank and _same_types(self.element, other.element)
        return self.cls is not RaggedTensor or self.ragged == other.ragged

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        kind = "" if self.ragged is None else f", ragged_rank={self.ragged.rank}"
        return f"Spec({self.dtype.name}, {TensorShape(self.dims)}{kind})"


class Elements:
    """Base of datasets and iterators, whose elements share one structure."""

    _element: Any

    @property
    def output_types(self) -> Any:
        """The element type of each tensor of an element, in the structure of elements."""
        return types_of(self._element)

    @property
    def output_shapes(self) -> Any:
        """The static shape of each tensor of an element."""
        return nest.map_structure(lambda spec: TensorShape(spec.dims), self._element)

    @property
    def output_classes(self) -> Any:
        """The class of each tensor of an element; for a ragged tensor, its RaggedTensorSpec."""
        return nest.map_structure(
            lambda spec: _type_spec_of(spec) if spec.cls is RaggedTensor else spec.cls,
            self._element,
        )

    @property
    def element_spec(self) -> Any:
        """The spec of each tensor of an element, in the structure of elements."""
        return nest.map_structure(_type_spec_of, self._element)


class VariantBase(Elements):
    """Base of datasets and optionals: a variant output of shape () with elements."""

    _variant_tensor: Output

    @classmethod
    def _spec_class(cls) -> type:
        """Return the class that forms use for values of this class."""
        return cls

    @staticmethod
    def _spec_with(element_spec: Any, dims: Dims) -> TypeSpec:
        """Return the spec of a value, or of a tensor of values, from the spec of its elements."""
        raise NotImplementedError


class DatasetBase(VariantBase):
    """Base class of datasets."""


class NestedVariant(Elements):
    """A tensor of datasets, such as one batch of windows.

    `Dataset.from_tensor_slices` turns it into a dataset of its datasets.

    Args:
      variant_tensor: variant, any shape.
      element: the form of the elements of each dataset, a structure of `Spec`.
      cls: class of the datasets.
    """

    def __init__(self, variant_tensor: Output, element: Any, cls: type) -> None:
        self._variant_tensor = variant_tensor
        self._element = element
        self._cls = cls

    @property
    def shape(self) -> TensorShape:
        """The static shape of the tensor."""
        return TensorShape(self._variant_tensor.dims)

    def __repr__(self) -> str:
        return f"<weft.NestedVariant shape: {self.shape}, elements: {self.element_spec!r}>"


class ElementsSpec(TypeSpec):
    """The spec of an object whose elements share one structure.

    Args:
      element_spec: a structure of specs.
    """

    __slots__ = ("_form",)

    def __init__(self, element_spec: Any) -> None:
        self._form = form_like(element_spec)

    @property
    def element_spec(self) -> Any:
        """The specs of the elements."""
        return nest.map_structure(_type_spec_of, self._form)

    @classmethod
    def from_value(cls, value: Any) -> Self:
        """Return the spec of a value."""
        return cls(value.element_spec)

    def as_spec(self) -> Spec:
        """Return the component spec of this object."""
        return Spec(dtypes.variant, (), self.value_type, self._form)

    def _details(self) -> tuple[Any, ...]:
        return (self.element_spec,)


def _type_spec_of(spec: Spec) -> TypeSpec:
    if spec.cls is SparseTensor:
        return SparseTensorSpec(spec.dims, spec.dtype)
    if spec.ragged is not None and spec.ragged.rank >= 0:
        return RaggedTensorSpec(spec.dims, spec.dtype, *spec.ragged)
    if spec.element is None:
        return TensorSpec(spec.dims, spec.dtype)
    element_spec = nest.map_structure(_type_spec_of, spec.element)
    result: TypeSpec = spec.cls._spec_with(element_spec, spec.dims)  # type: ignore[attr-defined]
    return result


def types_of(element: Any) -> Any:
    """Return the element types of all components of a form."""
    return nest.map_structure(
        lambda spec: spec.dtype if spec.element is None else types_of(spec.element), element
    )


def attrs_of(element: Any) -> dict[str, Any]:
    """Return the node attributes that describe a form."""
    flat = parts(element)
    return {
        "output_types": [part.dtype for part in flat],
        "output_shapes": [part.dims for part in flat],
    }


# --------------------------------------------------------------------- values and specs


def convert_structure(value: Any) -> Any:
    """Convert a structure of values to one of tensors, sparse and ragged tensors, and datasets."""
    try:
        return _convert(value)
    except RecursionError:
        raise too_deep_error(value) from None


def _convert(value: Any) -> Any:
    if isinstance(value, SparseTensorValue):
        return SparseTensor.from_value(value)
    if isinstance(value, RaggedTensorValue):
        return RaggedTensor.from_value(value)
    if isinstance(value, Mapping):
        result = {key: _convert(value[key]) for key in sorted(value)}
        return nest.pack_sequence_as({key: 0 for key in value}, list(result.values()))
    if isinstance(value, tuple):
        items = [_convert(item) for item in value]
        kind: Any = type(value)
        return kind(*items) if hasattr(kind, "_fields") else tuple(items)
    if isinstance(value, SparseTensor | RaggedTensor | VariantBase | NestedVariant):
        return value
    return convert_to_tensor(value)


def form_of(tensors: Any) -> Any:
    """Return the form of a structure that `convert_structure` returned."""
    return nest.map_structure(_spec_of, tensors)


def _spec_of(value: Any) -> Spec:
    if isinstance(value, SparseTensor):
        return Spec(value.dtype, value.dims, SparseTensor)
    if isinstance(value, RaggedTensor):
        return _to_ragged_spec(RaggedTensorSpec.from_value(value))
    if isinstance(value, VariantBase):
        return Spec(dtypes.variant, (), value._spec_class(), value._element)
    if isinstance(value, NestedVariant):
        return Spec(dtypes.variant, value._variant_tensor.dims, value._cls, value._element)
    return Spec(value.dtype, value.dims)


def _to_ragged_spec(spec: RaggedTensorSpec) -> Spec:
    """Return the form of a ragged tensor; uniform row lengths are dropped."""
    dims, levels = as_dims(spec.shape), spec.ragged_rank
    if dims is not None:
        dims = (*dims[:1], *[None] * levels, *dims[levels + 1 :])
    return Spec(spec.dtype, dims, ragged=Raggedness(levels, spec.row_splits_dtype))


def components(tensors: Any) -> list[Output]:
    """Return all components of a structure that `convert_structure` returned."""
    return [part for leaf in nest.flatten(tensors) for part in _parts_of(leaf)]


def _parts_of(value: Any) -> list[Output]:
    if isinstance(value, SparseTensor):
        return [value.indices, value.values, value.dense_shape]
    if isinstance(value, RaggedTensor):
        return list(value.parts)
    if isinstance(value, VariantBase | NestedVariant):
        return [value._variant_tensor]
    return [value]


def parts(form: Any) -> list[Part]:
    """Return the components of all tensors of a form."""
    return [part for spec in nest.flatten(form) for part in spec.parts]


def rebuild_structure(form: Any, outputs: Sequence[Output]) -> Any:
    """Reassemble a structure of tensors from all its components."""
    remaining = list(outputs)
    flat: list[Any] = []
    for spec in nest.flatten(form):
        count = len(spec.parts)
        flat.append(spec.rebuilt(remaining[:count]))
        del remaining[:count]
    return nest.pack_sequence_as(form, flat)


def form_from(types: Any, shapes: Any = None, classes: Any = None) -> Any:
    """Return the form with these types, shapes and classes.

    Args:
      types: a structure of element types.
      shapes: a structure of shapes; None for unknown ones.
      classes: a structure of classes, and of RaggedTensorSpecs for ragged tensors; None for dense
        ones.
    Raises: InvalidArgumentError, InvalidTypeError: the structures differ.
    """
    flat = nest.flatten(types)
    none = [None] * len(flat)
    each_shape = none if shapes is None else nest.flatten_up_to(types, shapes, check_types=False)
    each_class = none if classes is None else nest.flatten_up_to(types, classes, check_types=False)
    specs = [
        _spec_from(dtypes.as_dtype(dtype), None if shape is None else as_dims(shape), cls)
        for dtype, shape, cls in zip(flat, each_shape, each_class, strict=True)
    ]
    return nest.pack_sequence_as(types, specs)


def _spec_from(dtype: DType, dims: Dims, cls: Any) -> Spec:
    if cls is RaggedTensor:
        raise errors.InvalidArgumentError(
            "a RaggedTensorSpec is required as the class of a ragged tensor, got RaggedTensor: the "
            "number of its ragged axes must be known"
        )
    if isinstance(cls, RaggedTensorSpec):
        ragged = Raggedness(cls.ragged_rank, cls.row_splits_dtype)
        return Spec(dtype, as_dims(cls.shape) if dims is None else dims, ragged=ragged)
    return Spec(dtype, dims, SparseTensor if cls is SparseTensor else Output)


def trace_until_stable(
    trace: Callable[[Any], Any], initial: Any, state_of: Callable[[Any], Any]
) -> tuple[Any, Any]:
    """Trace a function of a state repeatedly, until the shapes hold for every state.

    Args:
      trace: traces the function for states of a form, and returns an object with the `form` of its
        result.
      initial: the form of the first state.
      state_of: returns the next state's part of the form of a result.
    Returns: the result of `trace`, and the form of all states.
    Raises: InvalidTypeError: the next state has another structure or other types.
    """
    form = initial
    while True:
        result = trace(form)
        state = state_of(result.form)
        check_same_types(form, state, "the state")
        wider = nest.map_structure(
            lambda old, new: old.with_dims(broader_dims(old.dims, new.dims)), form, state
        )
        if nest.flatten(wider) == nest.flatten(form):
            return result, form
        form = wider


def check_same_types(expected: Any, result: Any, label: str) -> None:
    """Check that two forms have the same structure and types.

    Raises: InvalidTypeError: the structure or a type differs.
    """
    if not _same_types(expected, result):
        raise errors.InvalidTypeError(
            f"the structure and types of {label} must be {expected!r}, got {result!r}"
        )


def _same_types(first: Any, second: Any) -> bool:
    try:
        nest.assert_same_structure(first, second)
    except (errors.InvalidTypeError, errors.InvalidArgumentError):
        return False
    return all(a.like(b) for a, b in zip(nest.flatten(first), nest.flatten(second), strict=True))


def is_compatible(expected: Any, spec: Any) -> bool:
    """Return True if elements of `spec` may be used where `expected` is promised."""
    own_fields, other_specs = nest.flatten(expected), nest.flatten(spec)
    return len(own_fields) == len(other_specs) and all(
        a.like(b) and compatible_dims(a.dims, b.dims)
        for a, b in zip(own_fields, other_specs, strict=True)
    )


def form_like(structure: Any) -> Any:
    """Return the form of a structure of TensorSpecs, forms, tensors or values."""
    return nest.map_structure(_spec_like, structure)


def _spec_like(value: Any) -> Spec:
    if isinstance(value, Spec):
        return value
    if isinstance(value, TensorSpec):
        return Spec(value.dtype, as_dims(value.shape))
    if isinstance(value, SparseTensorSpec):
        return Spec(value.dtype, as_dims(value.shape), SparseTensor)
    if isinstance(value, RaggedTensorSpec):
        return _to_ragged_spec(value)
    return value.as_spec() if isinstance(value, ElementsSpec) else _spec_of(_convert(value))
