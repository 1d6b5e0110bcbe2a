"""Optional values: elements that may be missing."""

from __future__ import annotations

__all__ = ["Optional", "get_next_as_optional"]

from typing import Any

from weft_graph.functions.type_spec import register_type_spec
from weft_graph.ir.builder import create, out
from weft_graph.ir.node import Output
from weft_io.data import specs
from weft_io.data.iterator import Iterator
from weft_tensor import errors
from weft_tensor.shape import Dims


class Optional(specs.VariantBase):
    """A structure of tensors, or the absence of one.

    Args:
      variant_tensor: variant, shape ().
      element: the form of the value, a structure of `specs.Spec`.

    Examples:
      >>> some = wf.data.experimental.Optional.from_value((1, "a"))
      >>> wf.Session().run([some.has_value(), some.get_value()])
      [np.True_, (np.int32(1), b'a')]
    """

    def __init__(self, variant_tensor: Output, element: Any) -> None:
        self._variant_tensor = variant_tensor
        self._element = element

    @staticmethod
    def _spec_with(element_spec: Any, dims: Dims) -> OptionalSpec:
        return OptionalSpec(element_spec)

    @staticmethod
    def from_value(value: Any) -> Optional:
        """Return an optional with a value.

        Args:
          value: a structure of tensors.
        """
        tensors = specs.convert_structure(value)
        result = out("OptionalFromValue", [specs.components(tensors)])
        return Optional(result, specs.form_of(tensors))

    @staticmethod
    def none_from_structure(value_structure: Any) -> Optional:
        """Return an optional without a value.

        Args:
          value_structure: the form of the missing value: a structure of tensors, TensorSpecs or the
            like.
        """
        return Optional(out("OptionalNone", ()), specs.form_like(value_structure))

    def has_value(self, name: str | None = None) -> Output:
        """Return True if it has a value: bool, shape ().

        Args:
          name: name of the node.
        """
        return out("OptionalHasValue", [self._variant_tensor], name=name)

    def get_value(self, name: str | None = None) -> Any:
        """Return the value, a structure of tensors.

        Args:
          name: name of the node.
        Raises (when it runs): InvalidArgumentError: the optional has no value.
        """
        attrs = specs.attrs_of(self._element)
        node = create("OptionalGetValue", [self._variant_tensor], attrs, name)
        return specs.rebuild_structure(self._element, node.outputs)


def get_next_as_optional(iterator: Iterator) -> Optional:
    """Return the next element of an iterator as an optional, without a value at the end.

    Args:
      iterator: an `Iterator`.
    Raises: InvalidTypeError: `iterator` is not an Iterator.

    Examples:
      >>> iterator = wf.data.Dataset.range(1).make_one_shot_iterator()
      >>> following = wf.data.experimental.get_next_as_optional(iterator).has_value()
      >>> session = wf.Session()
      >>> session.run(following), session.run(following)
      (np.True_, np.False_)
    """
    if not isinstance(iterator, Iterator):
        raise errors.InvalidTypeError(f"an Iterator is required, got {iterator!r}")
    form = iterator._element
    result = out("IteratorGetNextAsOptional", [iterator._iterator_resource], specs.attrs_of(form))
    return Optional(result, form)


class OptionalSpec(specs.ElementsSpec):
    """The spec of an optional value.

    Args:
      element_spec: a structure of specs of the value.

    Examples:
      >>> wf.OptionalSpec(wf.TensorSpec([], wf.int32))
      OptionalSpec(TensorSpec(shape=[], dtype=int32, name=None))
    """

    __slots__ = ()

    @property
    def value_type(self) -> type:
        """The class of values, `Optional`."""
        return Optional

    @property
    def value_structure(self) -> Any:
        """The specs of the value."""
        return self.element_spec


register_type_spec(Optional, OptionalSpec.from_value)
