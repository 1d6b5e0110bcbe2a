"""What is made of several outputs, as IndexedSlices and SparseTensor are."""

from __future__ import annotations

from typing import Any


class CompositeTensor:
    """A value that is several outputs; `nest` looks into it where it is asked to.

    Its class takes the parts, in their order, to make another one.
    """

    __slots__ = ()

    @property
    def parts(self) -> tuple[Any, ...]:
        """The outputs that it is made of."""
        raise NotImplementedError

    @property
    def op(self) -> Any:
        """The node that makes the values."""
        raise NotImplementedError
