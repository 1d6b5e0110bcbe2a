"""Elements with several components, as used by queues and staging areas."""

from __future__ import annotations

from weft_tensor.dtypes import DType
from weft_tensor.shape import TensorShape


class HasComponents:
    """Base class of resources whose elements have named or numbered components."""

    _name: str
    _dtypes: list[DType]
    _shapes: list[TensorShape]
    _names: list[str] | None

    @property
    def name(self) -> str:
        """The resource's own name, without scopes."""
        return self._name

    @property
    def dtypes(self) -> list[DType]:
        """Element type of each component."""
        return self._dtypes

    @property
    def shapes(self) -> list[TensorShape]:
        """Static shape of each component."""
        return self._shapes

    @property
    def names(self) -> list[str] | None:
        """Name of each component, or None."""
        return self._names
