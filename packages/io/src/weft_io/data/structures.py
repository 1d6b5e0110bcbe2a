"""What is known of elements, as specs that programs can look at."""

from __future__ import annotations

__all__ = [
    "DatasetStructure",
    "OptionalStructure",
    "SparseTensorStructure",
    "Structure",
    "TensorStructure",
    "get_structure",
]

from typing import Any

from weft_graph.functions.decorator import TensorSpec
from weft_graph.ir import nest
from weft_graph.ir.indexed_slices import SparseTensor
from weft_graph.ir.type_specs import SparseTensorSpec, TypeSpec
from weft_io.data import specs
from weft_io.data.dataset import Dataset
from weft_io.data.iterator import Iterator
from weft_io.data.optional import Optional
from weft_tensor import dtypes, errors
from weft_tensor.shape import TensorShape


class _OfElements(TypeSpec):
    """What is known of something that has elements of one form.

    Args:
      element_spec: a structure of specs.
    """

    __slots__ = ("_form",)
    _kind: type

    def __init__(self, element_spec: Any) -> None:
        self._form = specs.form_like(element_spec)

    @property
    def value_type(self) -> type:
        """The class of the values."""
        return self._kind

    def as_spec(self) -> specs.Spec:
        """The same as the form of a component."""
        return specs.Spec(dtypes.variant, (), self._kind, self._form)

    def _elements(self) -> Any:
        return described(self._form)

    def is_compatible_with(self, spec_or_value: Any) -> bool:
        """Whether a value, or one of another spec, could be taken for one of this spec.

        Args:
          spec_or_value: a spec, or a value.
        """
        if isinstance(spec_or_value, self._kind):
            other = getattr(spec_or_value, "_element", None)
        elif type(spec_or_value) is type(self):
            other = spec_or_value._form
        else:
            return False
        return specs.compatible(self._form, other)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self._elements() == other._elements()

    def __hash__(self) -> int:
        return hash((type(self), repr(self._elements())))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._elements()!r})"


class DatasetSpec(_OfElements):
    """What is known of a dataset.

    Args:
      element_spec: a structure of specs: of its elements.
      dataset_shape: [], since a dataset is one.
    Raises: InvalidArgumentError: `dataset_shape` is another.

    Examples:
      >>> wf.data.DatasetSpec(wf.TensorSpec([], wf.int64)).is_compatible_with(
      ...     wf.data.Dataset.range(3)
      ... )
      True
    """

    __slots__ = ()
    _kind = Dataset

    def __init__(self, element_spec: Any, dataset_shape: Any = ()) -> None:
        if TensorShape(dataset_shape).as_list() != []:
            raise errors.InvalidArgumentError(
                f"a dataset has the shape [], so dataset_shape must be, got {dataset_shape}"
            )
        super().__init__(element_spec)

    @property
    def element_spec(self) -> Any:
        """A structure of specs: of its elements."""
        return self._elements()


class OptionalStructure(_OfElements):
    """What is known of an optional value.

    Args:
      value_structure: a structure of specs: of the value.

    Examples:
      >>> spec = wf.data.experimental.OptionalStructure(wf.TensorSpec([], wf.int32))
      >>> spec.is_compatible_with(wf.data.experimental.Optional.from_value(3))
      True
    """

    __slots__ = ()
    _kind = Optional

    def __init__(self, value_structure: Any) -> None:
        super().__init__(value_structure)

    @property
    def value_structure(self) -> Any:
        """A structure of specs: of the value."""
        return self._elements()


DatasetStructure = DatasetSpec
Structure = TypeSpec


def TensorStructure(dtype: Any, shape: Any) -> TensorSpec:  # noqa: N802 (TensorFlow's name)
    """A `TensorSpec`.

    Args:
      dtype: element type.
      shape: what is known of the shape.

    Examples:
      >>> wf.data.experimental.TensorStructure(wf.int32, [3])
      TensorSpec(shape=[3], dtype=int32, name=None)
    """
    return TensorSpec(shape, dtype)


def SparseTensorStructure(  # noqa: N802 (TensorFlow's name)
    dtype: Any, shape: Any
) -> SparseTensorSpec:
    """A `SparseTensorSpec`.

    Args:
      dtype: element type.
      shape: what is known of the dense shape.

    Examples:
      >>> wf.data.experimental.SparseTensorStructure(wf.int32, [3])
      SparseTensorSpec(shape=[3], dtype=int32)
    """
    return SparseTensorSpec(shape, dtype)


def get_structure(dataset_or_iterator: Any) -> Any:
    """The specs of the tensors in an element, in its structure.

    Args:
      dataset_or_iterator: whose elements are asked about.
    Raises: InvalidTypeError: neither of them.

    Examples:
      >>> dataset = wf.data.Dataset.from_tensor_slices({"a": [[1.0, 2.0]]})
      >>> wf.data.experimental.get_structure(dataset)
      {'a': TensorSpec(shape=[2], dtype=float32, name=None)}
    """
    if not isinstance(dataset_or_iterator, Dataset | Iterator):
        raise errors.InvalidTypeError(
            f"a Dataset or an Iterator is required, got {dataset_or_iterator!r}"
        )
    return described(dataset_or_iterator._element)


def described(form: Any) -> Any:
    """A form as a structure of specs."""
    return nest.map_structure(_spec_of, form)


def _spec_of(spec: specs.Spec) -> TypeSpec:
    if spec.cls is SparseTensor:
        return SparseTensorSpec(spec.dims, spec.dtype)
    if spec.element is not None:
        kind = OptionalStructure if issubclass(spec.cls, Optional) else DatasetSpec
        return kind(spec.element)
    return TensorSpec(spec.dims, spec.dtype)
