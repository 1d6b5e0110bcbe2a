"""Unicode: code points, transcoding, and scripts."""

from __future__ import annotations

__all__ = ["unicode_encode", "unicode_script", "unicode_transcode"]

from collections.abc import Sequence
from typing import Any

from weft_graph.ir.builder import convert_to_tensor, out
from weft_graph.ir.composite import AppliesOps, makers
from weft_graph.ir.node import Output
from weft_graph.ir.op_def import NodeSpec, register_op
from weft_graph.ir.traits import EACH_ELEMENT, NOT_DIFFERENTIABLE
from weft_graph.ops.reduction import reduce_prod
from weft_graph.ops.sequence import range as numbers
from weft_graph.ops.shape_rules import same_shape, with_rank
from weft_graph.ops.shapes import reshape, shape
from weft_tensor import dtypes, errors
from weft_tensor.shape import Dims, num_elements

LARGEST = 0x10FFFF
"""The largest code point."""

# ------------------------------------------------------------------------------ shape rules


def _check_replacement(node: NodeSpec) -> None:
    char = node.attrs["replacement_char"]
    if not 0 <= char <= LARGEST:
        raise errors.InvalidArgumentError(
            f"replacement_char out of unicode codepoint range: it must be in [0, {LARGEST}], got "
            f"{char}"
        )


def _transcode_shape(node: NodeSpec) -> Sequence[Dims]:
    _check_replacement(node)
    return same_shape(node)


def _encode_shape(node: NodeSpec) -> Sequence[Dims]:
    _check_replacement(node)
    with_rank(node.inputs[0].dims, 1, "input_values")
    (splits,) = with_rank(node.inputs[1].dims, 1, "input_splits")
    if splits == 0:
        raise errors.InvalidArgumentError("input_splits must have at least one element, got none")
    return ((None if splits is None else splits - 1,),)


def _decode_shape(node: NodeSpec) -> Sequence[Dims]:
    _check_replacement(node)
    count = num_elements(node.inputs[0].dims)
    splits = None if count is None else count + 1
    return (splits,), (None,)


def _offsets_shape(node: NodeSpec) -> Sequence[Dims]:
    return (*_decode_shape(node), (None,))


# ------------------------------------------------------------------------------ declarations

_ERRORS = {
    "errors": "{'strict', 'replace', 'ignore'} = 'replace'",
    "replacement_char": "int = 65533",
}
_OUTPUT = "{'UTF-8', 'UTF-16-BE', 'UTF-32-BE'}"
_SPLITS = "{int32, int64} = int64"

register_op(
    "UnicodeScript",
    ("input: int32",),
    ("output: int32",),
    {},
    same_shape,
    traits=EACH_ELEMENT,
    doc="The ICU script number of each code point.",
)
register_op(
    "UnicodeTranscode",
    ("input: string",),
    ("output: string",),
    {
        "input_encoding": "string",
        "output_encoding": _OUTPUT,
        **_ERRORS,
        "replace_control_characters": "bool = false",
    },
    _transcode_shape,
    traits=EACH_ELEMENT,
    doc="Strings transcoded to another encoding.",
)
register_op(
    "UnicodeEncode",
    ("input_values: int32", "input_splits: Tsplits"),
    ("output: string",),
    {**_ERRORS, "output_encoding": _OUTPUT, "Tsplits": _SPLITS},
    _encode_shape,
    traits=NOT_DIFFERENTIABLE,
    doc="Rows of code points encoded as strings.",
)
for _op, _more, _rule in (
    ("UnicodeDecode", (), _decode_shape),
    ("UnicodeDecodeWithOffsets", ("char_to_byte_starts: int64",), _offsets_shape),
):
    register_op(
        _op,
        ("input: string",),
        ("row_splits: Tsplits", "char_values: int32", *_more),
        {
            "input_encoding": "string",
            **_ERRORS,
            "replace_control_characters": "bool = false",
            "Tsplits": _SPLITS,
        },
        _rule,
        traits=NOT_DIFFERENTIABLE,
        doc="Strings decoded to rows of code points.",
    )


# ------------------------------------------------------------------------------ functions


def unicode_script(input: Any, name: str | None = None) -> Output:
    """Return the ICU script number of each code point: Latin is 25, Greek 14.

    Args:
      input: int32, any shape.
      name: name of the node.
    Returns: int32, shape of `input`; 0 for characters common to many scripts, -1 for integers that
      are not code points.

    Examples:
      >>> wf.Session().run(wf.strings.unicode_script([ord("a"), ord("α"), ord("!")]))
      array([25, 14,  0], dtype=int32)
    """
    return out("UnicodeScript", [input], name=name)


def unicode_transcode(
    input: Any,
    input_encoding: str,
    output_encoding: str,
    errors: str = "replace",
    replacement_char: int = 65533,
    replace_control_characters: bool = False,
    name: str | None = None,
) -> Output:
    r"""Transcode strings to another encoding.

    Args:
      input: string, any shape.
      input_encoding: its encoding, such as "UTF-8" or "latin1"; any that Python supports.
      output_encoding: "UTF-8", "UTF-16-BE" or "UTF-32-BE".
      errors: handling of malformed input: "replace" or "ignore" it, or fail ("strict").
      replacement_char: the code point that replaces it.
      replace_control_characters: treat U+0000 to U+001F as malformed.
      name: name of the node.
    Returns: string, shape of `input`.
    Raises: InvalidArgumentError: the encoding is unknown; at run time with "strict": the input is
      malformed.

    Examples:
      >>> wf.Session().run(wf.strings.unicode_transcode([b"\xe4"], "latin1", "UTF-8"))
      array([b'\xc3\xa4'], dtype=object)
    """
    attrs = {
        "input_encoding": input_encoding,
        "output_encoding": output_encoding,
        "errors": errors,
        "replacement_char": replacement_char,
        "replace_control_characters": replace_control_characters,
    }
    return out("UnicodeTranscode", [input], attrs, name)


def unicode_encode(
    input: Any,
    output_encoding: str,
    errors: str = "replace",
    replacement_char: int = 65533,
    name: str | None = None,
) -> Any:
    r"""Encode rows of code points as strings.

    Args:
      input: int32, shape (..., n), Tensor or RaggedTensor.
      output_encoding: "UTF-8", "UTF-16-BE" or "UTF-32-BE".
      errors: handling of integers that are not code points: "replace", "ignore" or "strict" (fail).
      replacement_char: the code point that replaces it.
      name: name of the node.
    Returns: string, shape (...).
    Raises: InvalidArgumentError: the rank of `input` is 0 or unknown; at run time with "strict": an
      integer is not a code point.

    Examples:
      >>> wf.Session().run(wf.strings.unicode_encode([[72, 105], [960, 33]], "UTF-8"))
      array([b'Hi', b'\xcf\x80!'], dtype=object)
    """
    codes: Any = convert_to_tensor(input, dtypes.int32)
    _check_rank(codes)
    attrs = {
        "output_encoding": output_encoding,
        "errors": errors,
        "replacement_char": replacement_char,
    }
    if isinstance(codes, AppliesOps):
        return makers.lookup("encode")(codes, attrs, name)
    sizes = shape(codes, out_type=dtypes.int64)
    rows = reduce_prod(sizes[:-1])
    splits = numbers(rows + 1) * sizes[-1]
    flat = out("UnicodeEncode", [reshape(codes, [-1]), splits], attrs, name)
    encoded = reshape(flat, sizes[:-1])
    assert codes.dims is not None
    encoded.set_shape(codes.dims[:-1])
    return encoded


def _check_rank(codes: Output) -> None:
    if not codes.dims:
        raise errors.InvalidArgumentError(
            "unicode_encode requires code points of a known rank, 1 at least, got "
            + ("rank 0" if codes.dims == () else "an unknown one")
        )
