"""Values on the command line and in `.npy` files, with or without NumPy."""

from __future__ import annotations

import array
import ast
import math
import random
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from weft_lite.errors import DataLossError, InvalidArgumentError
from weft_lite.interpreter import _TYPES, Interpreter

_FORMS = {kind.name: kind.format for kind in _TYPES.values()}
_LETTERS = {
    "float32": "f4", "float16": "f2", "int64": "i8", "int32": "i4", "int16": "i2", "int8": "i1",
    "uint8": "u1", "bool": "b1",
}  # fmt: skip
_MAX_HEADER_BYTES = 1 << 16


def name_of(dtype: Any) -> str:
    """Return the name of a dtype, which is a class with NumPy and a string without."""
    name = dtype if isinstance(dtype, str) else dtype.__name__
    return "bool" if name == "bool_" else name


def view_elements(data: bytes | bytearray, dtype: str, shape: Sequence[int]) -> Any:
    """View bytes as an array of a type and shape; for rank 0, as a single element."""
    view: Any = memoryview(data).cast("B")
    return view.cast(_FORMS[dtype], tuple(shape) or (1,))


def read_npy(path: str) -> tuple[str, tuple[int, ...], bytes]:
    """Read the type, the shape and the elements of an `.npy` file, in C order.

    Raises: DataLossError: it is not an `.npy` file, or has a type that lite does not support.
    """
    data = Path(path).read_bytes()
    if data[:6] != b"\x93NUMPY" or len(data) < 12:
        raise DataLossError(f"{path} is not an .npy file")
    wide = data[6] > 1
    (length,) = struct.unpack_from("<I" if wide else "<H", data, 8)
    start = (12 if wide else 10) + length
    try:
        if length > _MAX_HEADER_BYTES:
            raise ValueError("its header is too long")
        header = ast.literal_eval(data[start - length : start].decode("latin1"))
        dtypes = {("|" if form[1] == "1" else "<") + form: name for name, form in _LETTERS.items()}
        dtype, shape = dtypes[header["descr"]], tuple(map(int, header["shape"]))
        if header["fortran_order"] and len(shape) > 1:
            raise ValueError("its elements are in Fortran order; save it in C order")
    except (ValueError, KeyError, TypeError, SyntaxError) as error:
        raise DataLossError(f"{path} is not an .npy file of a supported type: {error}") from error
    size = math.prod(shape) * int(_LETTERS[dtype][1])
    if size != len(data) - start:
        raise DataLossError(
            f"{path}: shape {shape} of {dtype} does not match its {len(data) - start} bytes"
        )
    return dtype, shape, data[start:]


def write_npy(path: Path, dtype: str, shape: Sequence[int], data: bytes) -> None:
    """Write an `.npy` file that `numpy.load` reads."""
    form = _LETTERS[dtype]
    descr = ("|" if form[1] == "1" else "<") + form
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {tuple(shape)!r}, }}"
    header = header.ljust((-(len(header) + 11) % 64) + len(header)) + "\n"
    prefix = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header))
    path.write_bytes(prefix + header.encode("latin1") + data)


def assignments(names: Sequence[str]) -> dict[str, str]:
    """Parse arguments of the form `NAME=VALUE` to a mapping.

    Raises: InvalidArgumentError: an argument has no `=`.
    """
    result = {}
    for text in names:
        name, equals, value = text.partition("=")
        if not equals:
            raise InvalidArgumentError(f"an input must be given as NAME=VALUE, got {text!r}")
        result[name] = value
    return result


def shapes(names: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Parse arguments of the form `NAME=1,224,224,3` to shapes by name."""
    try:
        return {
            name: tuple(int(size) for size in value.split(",") if size)
            for name, value in assignments(names).items()
        }
    except ValueError as error:
        raise InvalidArgumentError(f"a shape must be given as NAME=1,224,224,3: {error}") from error


def feed(interpreter: Interpreter, arrays: Mapping[str, str], sizes: Mapping[str, Any]) -> None:
    """Resize and set all inputs to the given values, or to seeded random numbers.

    Args:
      arrays: values by name: numbers such as "1,2,3", or @FILE.npy.
      sizes: shapes by name, for inputs with open sizes.
    Raises: InvalidArgumentError: a name or value does not match the inputs.
    """
    details = {
        input_detail["name"]: input_detail for input_detail in interpreter.get_input_details()
    }
    unknown = sorted({*arrays, *sizes} - set(details))
    if unknown:
        raise InvalidArgumentError(
            f"there is no input {unknown[0]!r}; the inputs are {sorted(details)}"
        )
    source = random.Random(0)
    read = {name: read_npy(text[1:]) for name, text in arrays.items() if text[:1] == "@"}
    for name, detail in details.items():
        shape = sizes.get(name, read[name][1] if name in read else None)
        if shape is not None and tuple(detail["shape"]) != tuple(shape):
            interpreter.resize_tensor_input(detail["index"], shape)
    interpreter.allocate_tensors()
    for input_detail in interpreter.get_input_details():
        name, dtype, shape = (
            input_detail["name"],
            name_of(input_detail["dtype"]),
            tuple(map(int, input_detail["shape"])),
        )
        if name in read:
            result, _, data = read[name]
            if result != dtype:
                raise InvalidArgumentError(f"input {name!r} requires {dtype}, got {result}")
        else:
            data = _elements(name, arrays.get(name), dtype, math.prod(shape), source)
        value = view_elements(data, dtype, shape)
        interpreter.set_tensor(input_detail["index"], value if shape else _single(value))


def _single(view: Any) -> Any:
    try:
        import numpy
    except ImportError:
        return view
    return numpy.asarray(view).reshape(())


def _elements(name: str, text: str | None, dtype: str, count: int, source: random.Random) -> bytes:
    """Parse a text to elements, or return random ones: normal floats, or zeros and ones."""
    is_integer = not dtype.startswith("float")
    if text is None:
        numbers = [source.randrange(2) if is_integer else source.gauss(0, 1) for _ in range(count)]
    else:
        try:
            numbers = [int(part) if is_integer else float(part) for part in text.split(",") if part]
        except ValueError as error:
            raise InvalidArgumentError(f"input {name!r} is of {dtype}: {error}") from error
    if len(numbers) != count:
        raise InvalidArgumentError(f"input {name!r} has {count} elements, got {len(numbers)}")
    try:
        if dtype == "float16":
            return struct.pack(f"<{count}e", *numbers)
        return array.array("b" if dtype == "bool" else _FORMS[dtype], numbers).tobytes()
    except (OverflowError, struct.error) as error:
        raise InvalidArgumentError(f"input {name!r} is of {dtype}: {error}") from error


__all__ = ["assignments", "feed", "name_of", "read_npy", "shapes", "write_npy"]
