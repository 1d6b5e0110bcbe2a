"""Joining of strings: n-grams, and unsorted segments."""

from __future__ import annotations

__all__ = ["ngrams", "unsorted_segment_join"]

from collections.abc import Sequence
from typing import Any

from weft_graph.ir.builder import convert_to_tensor, create, out
from weft_graph.ir.composite import AppliesOps, makers
from weft_graph.ir.node import Output
from weft_graph.ir.op_def import NodeSpec, register_op
from weft_graph.ir.traits import NOT_DIFFERENTIABLE
from weft_graph.ops.join import concat
from weft_graph.ops.reduction import reduce_prod
from weft_graph.ops.sequence import range as numbers
from weft_graph.ops.shape_rules import constant_int, with_rank
from weft_graph.ops.shapes import reshape, shape
from weft_tensor import dtypes, errors
from weft_tensor.arguments import check_integer
from weft_tensor.shape import Dims, compatible_dims, format_dims


def _segment_shape(node: NodeSpec) -> Sequence[Dims]:
    data, ids, count = node.inputs
    with_rank(count.dims, 0, "num_segments")
    if ids.dims is None or data.dims is None:
        return (None,)
    rank = len(ids.dims)
    if not rank or rank > len(data.dims) or not compatible_dims(data.dims[:rank], ids.dims):
        raise errors.InvalidArgumentError(
            "the shape of segment_ids must be a prefix of that of inputs, of rank at least 1; got "
            f"{format_dims(ids.dims)} for inputs of shape {format_dims(data.dims)}"
        )
    size = constant_int(count)
    if size is not None and size < 0:
        raise errors.InvalidArgumentError(f"num_segments must not be negative, got {size}")
    return ((size, *data.dims[rank:]),)


def _ngrams_shape(node: NodeSpec) -> Sequence[Dims]:
    with_rank(node.inputs[0].dims, 1, "data")
    splits = with_rank(node.inputs[1].dims, 1, "data_splits")
    widths = node.attrs["ngram_widths"]
    if any(width < 1 for width in widths):
        raise errors.InvalidArgumentError(f"ngram_widths must be positive, got {list(widths)}")
    return (None,), splits


register_op(
    "UnsortedSegmentJoin",
    ("inputs: string", "segment_ids: Tindices", "num_segments: Tnumsegments"),
    ("output: string",),
    {
        "separator": "string = ''",
        "Tindices": "{int32, int64}",
        "Tnumsegments": "{int32, int64} = int32",
    },
    _segment_shape,
    traits=NOT_DIFFERENTIABLE,
    doc="The joined strings of each segment.",
)
register_op(
    "StringNGrams",
    ("data: string", "data_splits: Tsplits"),
    ("ngrams: string", "ngrams_splits: Tsplits"),
    {
        "separator": "string",
        "ngram_widths": "list(int)",
        "left_pad": "string",
        "right_pad": "string",
        "pad_width": "int",
        "preserve_short_sequences": "bool",
        "Tsplits": "{int32, int64} = int64",
    },
    _ngrams_shape,
    traits=NOT_DIFFERENTIABLE,
    doc="The n-grams of rows of strings.",
)


def unsorted_segment_join(
    inputs: Any, segment_ids: Any, num_segments: Any, separator: str = "", name: str | None = None
) -> Output:
    """Join the strings of each segment.

    Args:
      inputs: string, shape (*S, *R).
      segment_ids: int32 or int64, shape S, rank at least 1: the segment of each part.
      num_segments: int32 or int64, shape ().
      separator: text between the strings.
      name: name of the node.
    Returns: string, shape (num_segments, *R); empty for segments without parts.
    Raises (at run time): InvalidArgumentError: an id is not in [0, num_segments).

    Examples:
      >>> joined = wf.strings.unsorted_segment_join(["a", "b", "c"], [0, 1, 0], 2, separator="+")
      >>> wf.Session().run(joined)
      array([b'a+c', b'b'], dtype=object)
    """
    parts = [inputs, segment_ids, num_segments]
    return out("UnsortedSegmentJoin", parts, {"separator": separator}, name)


def ngrams(
    data: Any,
    ngram_width: int | Sequence[int],
    separator: str = " ",
    pad_values: Any = None,
    padding_width: int | None = None,
    preserve_short_sequences: bool = False,
    name: str | None = None,
) -> Any:
    """Return the n-grams of rows of strings, joined.

    Args:
      data: string, shape (..., k), Tensor or RaggedTensor.
      ngram_width: n, or several widths, whose n-grams follow each other in each row.
      separator: what is put between the strings.
      pad_values: padding before and after each row: a string, or two; None for no padding.
      padding_width: number of padding strings; n - 1 by default, which is also the maximum.
      preserve_short_sequences: return a row that is shorter than all widths as one n-gram.
      name: name of the node.
    Returns: string, shape (..., number of n-grams), a Tensor or RaggedTensor like `data`.
    Raises: InvalidArgumentError: a number is not positive, the rank of `data` is 0 or unknown, or
      `padding_width` is set without `pad_values`.

    Examples:
      >>> wf.Session().run(wf.strings.ngrams(["a", "b", "c"], 2))
      array([b'a b', b'b c'], dtype=object)
    """
    tokens: Any = convert_to_tensor(data, dtypes.string)
    if not tokens.dims:
        raise errors.InvalidArgumentError(
            "ngrams requires data of a known rank, 1 at least, got "
            + ("rank 0" if tokens.dims == () else "an unknown one")
        )
    left, right, padding = _padding(pad_values, padding_width)
    attrs = {
        "separator": separator,
        "ngram_widths": _widths(ngram_width),
        "left_pad": left,
        "right_pad": right,
        "pad_width": padding,
        "preserve_short_sequences": preserve_short_sequences,
    }
    if isinstance(tokens, AppliesOps):
        return makers.lookup("ngrams")(tokens, attrs, name)
    sizes = shape(tokens, out_type=dtypes.int64)
    rows = reduce_prod(sizes[:-1])
    splits = numbers(rows + 1) * sizes[-1]
    values_and_splits = create("StringNGrams", [reshape(tokens, [-1]), splits], attrs, name).outputs
    if len(tokens.dims) == 1:
        return values_and_splits[0]
    # Rows of one length have equally many n-grams; without rows, their number is unknown.
    count = concat([values_and_splits[1][1:2], convert_to_tensor([0], dtypes.int64)], 0)[:1]
    result = reshape(values_and_splits[0], concat([sizes[:-1], count], 0))
    result.set_shape((*tokens.dims[:-1], None))
    return result


def _widths(ngram_width: int | Sequence[int]) -> list[int]:
    widths = list(ngram_width) if isinstance(ngram_width, list | tuple) else [ngram_width]
    return [check_integer(width, "ngram_width", 1) for width in widths]


def _padding(pad_values: Any, padding_width: int | None) -> tuple[Any, Any, int]:
    """Return the left and right padding and its width; -1 for the largest useful width."""
    if padding_width is not None:
        if pad_values is None:
            raise errors.InvalidArgumentError(
                "pad_values must be provided if padding_width is set."
            )
        check_integer(padding_width, "padding_width", 1)
    if pad_values is None:
        return "", "", 0
    if isinstance(pad_values, str | bytes):
        pad_values = (pad_values, pad_values)
    if not isinstance(pad_values, list | tuple) or len(pad_values) != 2:
        raise errors.InvalidTypeError(
            f"pad_values must be a string, a pair of strings, or None, got {pad_values!r}"
        )
    return pad_values[0], pad_values[1], -1 if padding_width is None else padding_width
