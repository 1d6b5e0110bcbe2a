"""What is made of several outputs, as IndexedSlices and SparseTensor are."""

from __future__ import annotations

from typing import Any

from weft_tensor import errors


class CompositeTensor:
    """A value that is several outputs; `nest` looks into it where it is asked to.

    Its class takes the parts, in their order, to make another one.
    """

    __slots__ = ()

    @property
    def parts(self) -> tuple[Any, ...]:
        """The outputs that it is made of."""
        raise NotImplementedError

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise errors.InvalidTypeError(
            f"{self!r} is several tensors and no array: use the graph's functions in place of "
            "NumPy's, or fetch its value with Session.run"
        )

    @property
    def op(self) -> Any:
        """The node that makes the values."""
        raise NotImplementedError
