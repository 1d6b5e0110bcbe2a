"""Splitting of strings into rows of bytes, characters and code points, and joining of rows."""

from __future__ import annotations

__all__ = [
    "bytes_split",
    "unicode_decode",
    "unicode_decode_with_offsets",
    "unicode_split",
    "unicode_split_with_offsets",
]

from collections.abc import Callable
from typing import Any

from weft_graph.ir.builder import create, out
from weft_graph.ir.composite import makers
from weft_graph.ir.default_graph import get_default_graph
from weft_graph.ir.node import Output
from weft_graph.ops import shapes
from weft_graph.ragged.conversion import uniform_levels
from weft_graph.ragged.encodings import splits_by_ids
from weft_graph.ragged.rows import Rows
from weft_graph.ragged.tensor import RaggedTensor, ragged_or_tensor, static_rank
from weft_tensor import dtypes, errors

Split = Callable[[Output], list[Any]]
"""Function that splits a vector of strings into ragged tensors of rank 2."""


def by_rows(text: Any, split: Split) -> list[Any]:
    """Split strings of any rank along a new last axis.

    Args:
      text: string, Tensor of known rank or RaggedTensor.
      split: function that splits a vector of strings.
    Returns: the results of `split` with the axes of `text` in front; Tensors for a single string.
    Raises: InvalidArgumentError: the rank is unknown.
    """
    value = ragged_or_tensor(text, dtypes.string)
    if isinstance(value, RaggedTensor):
        return [value.with_values(split_values) for split_values in by_rows(value.values, split)]
    rank = static_rank(value)
    if rank is None:
        raise errors.InvalidArgumentError(f"text of a known rank is required, got {value!r}")
    if rank == 0:
        return [split_rows.values for split_rows in split(shapes.reshape(value, [1]))]
    if rank == 1:
        split_rows = split(value)
        for ragged_row in split_rows:
            if value.dims is not None:
                ragged_row.row_splits.set_shape(
                    [None if value.dims[0] is None else value.dims[0] + 1]
                )
        return split_rows
    outer: Any = uniform_levels(value, rank - 1, dtypes.int64)
    return [outer.with_flat_values(split_values) for split_values in split(outer.flat_values)]


def bytes_split(input: Any, name: str | None = None) -> Any:
    """Split strings into rows of bytes.

    Args:
      input: string, Tensor or RaggedTensor of known rank.
      name: name scope of the nodes.
    Returns: string, RaggedTensor with one more axis; a vector for a single string.
    Raises: InvalidArgumentError: the rank is unknown.

    Examples:
      >>> wf.Session().run(wf.strings.bytes_split(["ab", ""])).to_list()
      [[b'a', b'b'], []]
    """
    with get_default_graph().name_scope(name or "StringsByteSplit"):
        return split_text(input, "StringSplit", b"", {"skip_empty": False}, None)


def split_text(text: Any, op: str, sep: Any, attrs: dict[str, Any], name: str | None) -> Any:
    """Split strings into rows of parts by an op that splits a vector of strings."""

    def split(vector: Output) -> list[Any]:
        return [_from_sparse(*create(op, [vector, sep], attrs).outputs)]

    with get_default_graph().name_scope(name or op):
        return by_rows(text, split)[0]


def ngrams(data: RaggedTensor, attrs: dict[str, Any], name: str | None) -> RaggedTensor:
    """Return the n-grams of the innermost rows."""
    values = data.values
    if isinstance(values, RaggedTensor):
        return data.with_values(ngrams(values, attrs, name))
    rank = static_rank(values)
    if rank != 1:
        if rank is None:
            raise errors.InvalidArgumentError(f"ngrams requires a known rank, got {data!r}")
        inner = uniform_levels(values, rank - 1, data.row_splits.dtype.base_dtype)
        return data.with_values(ngrams(inner, attrs, name))
    ngram_values, splits = create("StringNGrams", [values, data.row_splits], attrs, name).outputs
    return RaggedTensor(ngram_values, Rows(splits))


def encode(codes: RaggedTensor, attrs: dict[str, Any], name: str | None) -> Any:
    """Encode the innermost rows of code points as strings."""
    values = codes.values
    if isinstance(values, RaggedTensor):
        return codes.with_values(encode(values, attrs, name))
    rank = static_rank(values)
    if rank != 1:
        inner = uniform_levels(values, (rank or 2) - 1, codes.row_splits.dtype.base_dtype)
        return codes.with_values(encode(inner, attrs, name))
    return out("UnicodeEncode", [values, codes.row_splits], attrs, name)


makers.register("split", split_text)
makers.register("ngrams", ngrams)
makers.register("encode", encode)


def _from_sparse(indices: Output, values: Output, shape: Output) -> RaggedTensor:
    return RaggedTensor(values, Rows(splits_by_ids(indices[:, 0], shape[0])))


def unicode_decode(
    input: Any,
    input_encoding: str,
    errors: str = "replace",
    replacement_char: int = 0xFFFD,
    replace_control_characters: bool = False,
    name: str | None = None,
) -> Any:
    """Decode strings to rows of code points.

    Args:
      input: string, Tensor or RaggedTensor of known rank.
      input_encoding: its encoding, such as "UTF-8"; any that Python supports.
      errors: handling of malformed input: "replace" or "ignore" it, or fail ("strict").
      replacement_char: the code point that replaces it.
      replace_control_characters: treat U+0000 to U+001F as malformed.
      name: name scope of the nodes.
    Returns: int32, RaggedTensor with one more axis; a vector for a single string.
    Raises: InvalidArgumentError: the rank is unknown; at run time with "strict": the input is
      malformed.

    Examples:
      >>> wf.Session().run(wf.strings.unicode_decode(["Hi", "π"], "UTF-8")).to_list()
      [[72, 105], [960]]
    """
    attrs = _attrs(input_encoding, errors, replacement_char, replace_control_characters)
    with get_default_graph().name_scope(name or "UnicodeDecode"):
        return by_rows(input, _decoder(attrs, False))[0]


def unicode_decode_with_offsets(
    input: Any,
    input_encoding: str,
    errors: str = "replace",
    replacement_char: int = 0xFFFD,
    replace_control_characters: bool = False,
    name: str | None = None,
) -> tuple[Any, Any]:
    """Decode strings to rows of code points, and return their byte offsets.

    Args:
      input, input_encoding, errors, replacement_char, replace_control_characters, name: as in
        `unicode_decode`.
    Returns: code points, int32, and their byte offsets, int64, in the form of `unicode_decode`.
    Raises: InvalidArgumentError: as in `unicode_decode`.

    Examples:
      >>> codes, starts = wf.strings.unicode_decode_with_offsets(["πi"], "UTF-8")
      >>> wf.Session().run(starts).to_list()
      [[0, 2]]
    """
    attrs = _attrs(input_encoding, errors, replacement_char, replace_control_characters)
    with get_default_graph().name_scope(name or "UnicodeDecodeWithOffsets"):
        codes, starts = by_rows(input, _decoder(attrs, True))
        return codes, starts


def unicode_split(
    input: Any,
    input_encoding: str,
    errors: str = "replace",
    replacement_char: int = 0xFFFD,
    name: str | None = None,
) -> Any:
    """Split strings into rows of characters in the same encoding.

    Args:
      input, input_encoding, errors, replacement_char, name: as in `unicode_decode`; the encoding is
        "UTF-8", "UTF-16-BE" or "UTF-32-BE".
    Returns: string, RaggedTensor with one more axis; a vector for a single string.
    Raises: InvalidArgumentError: as in `unicode_decode`.

    Examples:
      >>> [c.decode() for c in wf.Session().run(wf.strings.unicode_split("aπ", "UTF-8"))]
      ['a', 'π']
    """
    codes = unicode_decode(input, input_encoding, errors, replacement_char, False, name)
    return _characters(codes, input_encoding, errors, replacement_char)


def unicode_split_with_offsets(
    input: Any,
    input_encoding: str,
    errors: str = "replace",
    replacement_char: int = 0xFFFD,
    name: str | None = None,
) -> tuple[Any, Any]:
    """Split strings into rows of characters, and return their byte offsets.

    Args:
      input, input_encoding, errors, replacement_char, name: as in `unicode_split`.
    Returns: characters, string, and their byte offsets, int64, in the form of `unicode_split`.
    Raises: InvalidArgumentError: as in `unicode_decode`.

    Examples:
      >>> characters, starts = wf.strings.unicode_split_with_offsets(["πi"], "UTF-8")
      >>> wf.Session().run(starts).to_list()
      [[0, 2]]
    """
    codes, starts = unicode_decode_with_offsets(
        input, input_encoding, errors, replacement_char, False, name
    )
    return _characters(codes, input_encoding, errors, replacement_char), starts


def _attrs(encoding: str, policy: str, replacement: int, controls: bool) -> dict[str, Any]:
    return {
        "input_encoding": encoding,
        "errors": policy,
        "replacement_char": replacement,
        "replace_control_characters": controls,
    }


def _decoder(attrs: dict[str, Any], offsets: bool) -> Split:
    op = "UnicodeDecodeWithOffsets" if offsets else "UnicodeDecode"

    def split(vector: Output) -> list[Any]:
        splits, *parts = create(op, [vector], attrs).outputs
        rows = Rows(splits)
        return [RaggedTensor(part, rows) for part in parts]

    return split


def _characters(codes: Any, encoding: str, policy: str, replacement: int) -> Any:
    """Return each code point as a string."""
    attrs = {"output_encoding": encoding, "errors": policy, "replacement_char": replacement}

    def encode(flat: Output) -> Output:
        sizes = shapes.shape(flat, out_type=dtypes.int64)
        code_points = shapes.reshape(flat, [-1])
        ends = out("Range", [0, shapes.size(code_points) + 1, 1])
        return shapes.reshape(out("UnicodeEncode", [code_points, ends], attrs), sizes)

    return codes.map_elements(encode) if isinstance(codes, RaggedTensor) else encode(codes)
