"""Items to save: tensors, or parts of them."""

from __future__ import annotations

from typing import Any, NamedTuple

from weft_io.checkpoint import encoding, regions
from weft_io.checkpoint.regions import Region, Shape
from weft_tensor import errors
from weft_tensor.dtypes import DType


class Item(NamedTuple):
    """A tensor to save, or a part of one.

    Attributes:
      name: name of the tensor.
      dtype: element type.
      value: array or scalar of its NumPy dtype; only read.
      spec: the slice of the whole tensor, "10 20 0,5:-"; "" for the whole.
      shard: the number of its file.
    """

    name: str
    dtype: DType
    value: Any
    spec: str = ""
    shard: int = 0


class WholeTensor(NamedTuple):
    """The element type and shape of a tensor that may be saved in parts."""

    dtype: DType
    shape: Shape


class WholeTensors(dict[str, WholeTensor]):
    """The tensors that items are parts of, by name."""

    def add(self, item: Item) -> Region:
        """Record an item; return its region within the whole tensor.

        Raises:
          InvalidTypeError: values of its type cannot be saved, such as handles.
          InvalidArgumentError: its name is not UTF-8, the shape of its value differs from that of
          the part, or an earlier item with that name belongs to a tensor of another shape or type.
        """
        name, dtype, value, spec, _ = item
        try:
            name.encode()
        except UnicodeEncodeError as cause:
            raise errors.InvalidArgumentError(
                f"a tensor's name must be UTF-8, got {name!r}"
            ) from cause
        encoding.check_saveable(dtype, name)
        shape = tuple(value.shape)
        parsed = regions.parse_spec(spec)
        full, region = (shape, Region.whole_tensor(shape)) if parsed is None else parsed
        if region.shape != shape:
            raise errors.InvalidArgumentError(
                f"{name!r}: the slice {spec!r} has shape {list(region.shape)}, "
                f"got a value of shape {list(shape)}"
            )
        tensor = WholeTensor(dtype, full)
        existing = self.setdefault(name, tensor)
        if existing != tensor:
            raise errors.InvalidArgumentError(
                f"{name!r} is saved in parts of different tensors: {existing.dtype.name}"
                f"{list(existing.shape)} and {dtype.name}{list(full)}"
            )
        return region
