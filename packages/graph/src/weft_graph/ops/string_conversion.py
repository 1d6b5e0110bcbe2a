"""Conversions between strings and other values: numbers, hashes, bytes."""

from __future__ import annotations

__all__ = [
    "as_string",
    "format",
    "to_hash_bucket",
    "to_hash_bucket_fast",
    "to_hash_bucket_strong",
    "to_number",
]

from collections.abc import Sequence
from typing import Any

from weft_graph.ir.builder import out
from weft_graph.ir.constant_value import constant_value
from weft_graph.ir.node import Output
from weft_graph.ir.op_def import NodeSpec, register_op
from weft_graph.ir.traits import EACH_ELEMENT, NOT_DIFFERENTIABLE
from weft_graph.ops.shape_rules import same_shape, scalar, with_rank
from weft_tensor import dtypes, errors
from weft_tensor.shape import Dims

# ------------------------------------------------------------------------------ shape rules


def _fingerprint_shape(node: NodeSpec) -> Sequence[Dims]:
    dims = node.inputs[0].dims
    if dims == ():
        raise errors.InvalidArgumentError("data must have rows, got a scalar")
    with_rank(node.inputs[1].dims, 0, "method")
    return ((None if dims is None else dims[0], 8),)


def _decode_raw_shape(node: NodeSpec) -> Sequence[Dims]:
    dims = node.inputs[0].dims
    return (None if dims is None else (*dims, None),)


def _decode_padded_raw_shape(node: NodeSpec) -> Sequence[Dims]:
    strings, length = node.inputs
    with_rank(length.dims, 0, "DecodePaddedRaw: fixed_length")
    static = constant_value(length)
    count = None if static is None else num_padded(int(static), node.attrs["out_type"].size)
    return (None if strings.dims is None else (*strings.dims, count),)


def num_padded(length: int, size: int) -> int:
    """Return the number of elements of `size` bytes in `length` bytes.

    Raises: InvalidArgumentError: it is not positive, or not a multiple of the size.
    """
    if length < 1 or length % size:
        raise errors.InvalidArgumentError(
            f"fixed_length must be a positive multiple of {size} bytes, got {length}"
        )
    return length // size


def _as_string_shape(node: NodeSpec) -> Sequence[Dims]:
    (value,), attrs = node.inputs, node.attrs
    if attrs["scientific"] and attrs["shortest"]:
        raise errors.InvalidArgumentError("a number is either scientific or shortest, not both")
    if not (value.dtype.is_floating or value.dtype.is_complex):
        number_options = [name for name in ("scientific", "shortest") if attrs[name]]
        number_options += ["precision"] * (attrs["precision"] >= 0)
        if number_options:
            raise errors.InvalidArgumentError(
                f"{number_options[0]} requires floating numbers, got {value!r}"
            )
    return (value.dims,)


# ------------------------------------------------------------------------------ declarations
register_op(
    "StringToNumber",
    ("string_tensor: string",),
    ("output: out_type",),
    {"out_type": "{float32, float64, int32, int64} = float32"},
    same_shape,
    traits=EACH_ELEMENT,
)
register_op(
    "AsString",
    ("input: T",),
    ("output: string",),
    {
        "T": "{floating, complex, integral, bool}",
        "precision": "int = -1",
        "scientific": "bool = false",
        "shortest": "bool = false",
        "width": "int = -1",
        "fill": "string = ''",
    },
    _as_string_shape,
    traits=EACH_ELEMENT,
)
register_op(
    "StringToHashBucket",
    ("string_tensor: string",),
    ("output: int64",),
    {"num_buckets": "int >= 1"},
    same_shape,
    traits=EACH_ELEMENT,
    doc="MurmurHash64A with a fixed seed, modulo the number of buckets.",
)
register_op(
    "StringToHashBucketFast",
    ("input: string",),
    ("output: int64",),
    {"num_buckets": "int >= 1"},
    same_shape,
    traits=EACH_ELEMENT,
    doc="FarmHash's 64-bit fingerprint, modulo the number of buckets.",
)
register_op(
    "Fingerprint",
    ("data: T", "method: string"),
    ("fingerprint: uint8",),
    {"T": "type"},
    _fingerprint_shape,
    traits=NOT_DIFFERENTIABLE,
    doc="FarmHash's 64-bit fingerprint of each row, in 8 bytes.",
)
register_op(
    "StringToHashBucketStrong",
    ("input: string",),
    ("output: int64",),
    {"num_buckets": "int >= 1", "key": "list(int)"},
    same_shape,
    traits=EACH_ELEMENT,
    doc="SipHash with the key, modulo the number of buckets.",
)
register_op(
    "EncodeBase64",
    ("input: string",),
    ("output: string",),
    {"pad": "bool = false"},
    same_shape,
    traits=EACH_ELEMENT,
)
register_op(
    "DecodeBase64",
    ("input: string",),
    ("output: string",),
    shape=same_shape,
    traits=EACH_ELEMENT,
)
register_op(
    "StringFormat",
    ("inputs: T",),
    ("output: string",),
    {
        "T": "list(type) >= 0",
        "template": "string = '%s'",
        "placeholder": "string = '%s'",
        "summarize": "int = 3",
    },
    scalar,
    traits=NOT_DIFFERENTIABLE,
)
register_op(
    "DecodeRaw",
    ("bytes: string",),
    ("output: out_type",),
    {
        "out_type": "{floating, int8, int16, int32, int64, uint8, uint16, complex, bool}",
        "little_endian": "bool = true",
    },
    _decode_raw_shape,
    traits=NOT_DIFFERENTIABLE,
)
register_op(
    "DecodePaddedRaw",
    ("input_bytes: string", "fixed_length: int32"),
    ("output: out_type",),
    {
        "out_type": "{float16, float32, float64, int8, int16, int32, int64, uint8, uint16}",
        "little_endian": "bool = true",
    },
    _decode_padded_raw_shape,
    traits=NOT_DIFFERENTIABLE,
    doc="The bytes of strings as numbers, truncated or padded with zeros to the same length.",
)

# ---------------------------------------------------------------------------------- functions


def string_to_number(
    string_tensor: Any = None,
    out_type: Any = dtypes.float32,
    name: str | None = None,
    input: Any = None,
) -> Output:
    """Parse numbers in decimal notation.

    Args:
      string_tensor: strings of any shape; `input` is its newer name.
      out_type: float32, float64, int32 or int64.
    Raises: InvalidArgumentError: at run time, a string is not a number or is out of range.

    Examples:
      >>> wf.Session().run(wf.string_to_number(["1.5"]))
      array([1.5], dtype=float32)
    """
    value = string_tensor if input is None else input
    return out("StringToNumber", [value], {"out_type": out_type}, name)


def as_string(
    input: Any,
    precision: int = -1,
    scientific: bool = False,
    shortest: bool = False,
    width: int = -1,
    fill: str = "",
    name: str | None = None,
) -> Output:
    """Format numbers in decimal notation.

    Args:
      input: numbers or bools of any shape.
      precision: digits after the point, for floats.
      scientific, shortest: use exponents always, or if shorter; not both.
      width, fill: pad at the left with `fill` (a space, or "0") to `width`.
    Raises: InvalidArgumentError: `scientific` and `shortest` are combined, or `fill` is not a
      single byte.

    Examples:
      >>> wf.Session().run(wf.as_string([1, 2]))
      array([b'1', b'2'], dtype=object)
    """
    if scientific and shortest:
        raise errors.InvalidArgumentError("as_string takes scientific or shortest, not both")
    if len(fill) > 1:
        raise errors.InvalidArgumentError(f"fill must be one character, got {fill!r}")
    attrs = {
        "precision": precision,
        "scientific": scientific,
        "shortest": shortest,
        "width": width,
        "fill": fill,
    }
    return out("AsString", [input], attrs, name)


def string_to_hash_bucket(
    string_tensor: Any = None, num_buckets: int = 1, name: str | None = None, input: Any = None
) -> Output:
    """Return a bucket in [0, num_buckets) for each string; new programs use the fast variant.

    Args:
      string_tensor: string, any shape.
      num_buckets: a positive int.
      input: newer name of `string_tensor`.
    Returns: int64, shape of the strings.

    Examples:
      >>> wf.Session().run(wf.string_to_hash_bucket(["a", "b", "a"], 1))
      array([0, 0, 0])
    """
    value = string_tensor if input is None else input
    return out("StringToHashBucket", [value], {"num_buckets": num_buckets}, name)


def string_to_hash_bucket_fast(input: Any, num_buckets: int, name: str | None = None) -> Output:
    """Return a bucket in [0, num_buckets) for each string, stable across processes and versions.

    Args:
      input: string, any shape.
      num_buckets: a positive int.
    Returns: int64, shape of `input`.

    Examples:
      >>> x = wf.Session().run(wf.string_to_hash_bucket_fast(["a", "b"], 10))
      >>> x.shape
      (2,)
    """
    return out("StringToHashBucketFast", [input], {"num_buckets": num_buckets}, name)


def string_to_hash_bucket_strong(
    input: Any, num_buckets: int, key: Sequence[int], name: str | None = None
) -> Output:
    """Return a hash bucket for each string, unpredictable without the two-integer key.

    Args:
      input: string, any shape.
      num_buckets: a positive int.
      key: two secret 64-bit ints.
    Returns: int64, shape of `input`, in [0, num_buckets).
    Raises: InvalidArgumentError: the key is not two integers.

    Examples:
      >>> x = wf.Session().run(wf.string_to_hash_bucket_strong(["a", "a"], 10, key=[1, 2]))
      >>> bool(x[0] == x[1])
      True
    """
    if len(key) != 2:
        raise errors.InvalidArgumentError(f"the key must be two integers, got {list(key)}")
    attrs = {"num_buckets": num_buckets, "key": list(key)}
    return out("StringToHashBucketStrong", [input], attrs, name)


def fingerprint(data: Any, method: Any = "farmhash64", name: str | None = None) -> Output:
    """Return a fingerprint of each row, stable across processes and versions.

    Args:
      data: any type except handles, shape (n, ...).
      method: "farmhash64".
    Returns: uint8, shape (n, 8).
    Raises: InvalidArgumentError: `data` has rank 0, or the method is unknown.

    Examples:
      >>> wf.Session().run(wf.fingerprint(["a", "b"]))[0]
      array([227, 117, 223, 182, 101,  66,  69, 179], dtype=uint8)
    """
    return out("Fingerprint", [data, method], name=name)


def encode_base64(input: Any, pad: bool = False, name: str | None = None) -> Output:
    """Return the web-safe base64 form, with `=` at the end if `pad`.

    Args:
      input: string, any shape.
      pad: pad the length to a multiple of 4.

    Examples:
      >>> wf.Session().run(wf.encode_base64(["weft"]))
      array([b'd2VmdA'], dtype=object)
    """
    return out("EncodeBase64", [input], {"pad": pad}, name)


def decode_base64(input: Any, name: str | None = None) -> Output:
    """Return the bytes of web-safe base64, padded or not.

    Args:
      input: string, any shape.

    Examples:
      >>> wf.Session().run(wf.decode_base64(["d2VmdA"]))
      array([b'weft'], dtype=object)
    """
    return out("DecodeBase64", [input], name=name)


def string_format(
    template: str,
    inputs: Any,
    placeholder: str = "{}",
    summarize: int = 3,
    name: str | None = None,
) -> Output:
    """Replace the placeholders of a template by tensors: string, rank 0.

    Args:
      template: text with one placeholder per tensor.
      inputs: a tensor or a list of them.
      summarize: number of elements to show at both ends of every axis; -1 for all.
    Raises: InvalidArgumentError: the numbers of tensors and placeholders differ.

    Examples:
      >>> wf.Session().run(wf.strings.format("losses: {}", wf.constant([1, 2])))
      b'losses: [1 2]'
    """
    tensors = list(inputs) if isinstance(inputs, list | tuple) else [inputs]
    if template.count(placeholder) != len(tensors):
        raise errors.InvalidArgumentError(
            f"the template {template!r} has {template.count(placeholder)} placeholders "
            f"{placeholder!r}, got {len(tensors)} inputs"
        )
    attrs = {"template": template, "placeholder": placeholder, "summarize": summarize}
    return out("StringFormat", [tensors], attrs, name)


def decode_raw(
    input_bytes: Any = None,
    out_type: Any = None,
    little_endian: bool = True,
    name: str | None = None,
    bytes: Any = None,
    fixed_length: Any = None,
) -> Output:
    r"""Convert the bytes of strings to numbers, along a new last axis.

    Args:
      input_bytes: strings of the same length, any shape; `bytes` is the deprecated name.
      out_type: element type.
      little_endian: True if the least significant byte is first.
      fixed_length: length in bytes, a multiple of the type's size, rank 0; shorter strings are
        padded with zeros, and longer ones are truncated. By default strings must have the same
        length.
    Raises: InvalidArgumentError: at run time, lengths differ or are not multiples of the type's
      size.

    Examples:
      >>> wf.Session().run(wf.decode_raw(wf.constant(b"\x01\x02"), wf.uint8))
      array([1, 2], dtype=uint8)
    """
    value = bytes if input_bytes is None else input_bytes
    attrs = {"out_type": out_type, "little_endian": little_endian}
    if fixed_length is None:
        return out("DecodeRaw", [value], attrs, name)
    return out("DecodePaddedRaw", [value, fixed_length], attrs, name)


# The names of `wf.strings`.
to_number = string_to_number
to_hash_bucket = string_to_hash_bucket
to_hash_bucket_fast = string_to_hash_bucket_fast
to_hash_bucket_strong = string_to_hash_bucket_strong
format = string_format
