"""Ops on strings, which are sequences of bytes: joining, splitting, matching."""

from __future__ import annotations

__all__ = [
    "join",
    "length",
    "lower",
    "reduce_join",
    "regex_full_match",
    "regex_replace",
    "split",
    "strip",
    "substr",
    "upper",
]

from collections.abc import Sequence
from typing import Any

from weft_graph.ir.builder import convert_to_tensor, create, out
from weft_graph.ir.composite import AppliesOps, makers
from weft_graph.ir.indexed_slices import SparseTensor
from weft_graph.ir.node import Output
from weft_graph.ir.op_def import NodeSpec, register_op
from weft_graph.ir.traits import EACH_ELEMENT, NOT_DIFFERENTIABLE
from weft_graph.ops.shape_rules import constant_array, normal_axes, same_shape, with_rank
from weft_tensor import dtypes, errors
from weft_tensor.shape import Dims, broadcast_dims, format_dims, merge_dims, num_elements

# ------------------------------------------------------------------------------ shape rules


def _join_shape(node: NodeSpec) -> Sequence[Dims]:
    # Inputs of rank 0 are repeated; all others must have one shape.
    shapes = [value.dims for value in node.inputs if value.dims != ()]
    if not shapes:
        return ((),)
    dims: Dims = None
    for shape in shapes:
        dims = merge_dims(dims, shape)
    return (None if None in shapes else dims,)


def _reduce_join_shape(node: NodeSpec) -> Sequence[Dims]:
    dims = node.inputs[0].dims
    axes = constant_array(node.inputs[1])
    keep: bool = node.attrs["keep_dims"]
    if dims is None:
        return (None,)
    if axes is None:
        return ((None,) * len(dims) if keep else None,)
    reduced = set(normal_axes(axes.reshape(-1).tolist(), len(dims)))
    if keep:
        return (tuple([1 if i in reduced else size for i, size in enumerate(dims)]),)
    return (tuple([size for i, size in enumerate(dims) if i not in reduced]),)


def _substr_shape(node: NodeSpec) -> Sequence[Dims]:
    text, pos, length = [value.dims for value in node.inputs]
    if pos is not None and length is not None and pos != length and None not in (*pos, *length):
        raise errors.InvalidArgumentError(
            f"pos and len must have the same shape, got {format_dims(pos)} and "
            f"{format_dims(length)}"
        )
    return (broadcast_dims(text, pos),)


def _check_one(value: Output, label: str) -> None:
    if num_elements(value.dims) not in (1, None):
        raise errors.InvalidArgumentError(
            f"{label} must be one string, got shape {format_dims(value.dims)}"
        )


def _pattern_shape(node: NodeSpec) -> Sequence[Dims]:
    for value, label in zip(node.inputs[1:], ("the pattern", "the rewrite"), strict=False):
        _check_one(value, label)
    return same_shape(node)


def _split_shape(node: NodeSpec) -> Sequence[Dims]:
    with_rank(node.inputs[0].dims, 1, "the input")
    with_rank(node.inputs[1].dims, 0, "the delimiter")
    return (None, 2), (None,), (2,)


# ------------------------------------------------------------------------------ declarations


_UNIT = "{'BYTE', 'UTF8_CHAR'} = 'BYTE'"
_SPLIT = ("indices: int64", "values: string", "shape: int64")

register_op(
    "StringJoin",
    ("inputs: N * string",),
    ("output: string",),
    {"N": "int >= 1", "separator": "string = ''"},
    _join_shape,
    traits=EACH_ELEMENT,
)
register_op(
    "ReduceJoin",
    ("inputs: string", "reduction_indices: int32"),
    ("output: string",),
    {"keep_dims": "bool = false", "separator": "string = ''"},
    _reduce_join_shape,
    traits=NOT_DIFFERENTIABLE,
)
register_op(
    "StringLength",
    ("input: string",),
    ("output: int32",),
    {"unit": _UNIT},
    same_shape,
    traits=EACH_ELEMENT,
)
register_op(
    "Substr",
    ("input: string", "pos: T", "len: T"),
    ("output: string",),
    {"T": "{int32, int64}", "unit": _UNIT},
    _substr_shape,
    traits=EACH_ELEMENT,
)
register_op(
    "StringSplit",
    ("input: string", "delimiter: string"),
    _SPLIT,
    {"skip_empty": "bool = true"},
    _split_shape,
    traits=NOT_DIFFERENTIABLE,
)
register_op(
    "StringSplitV2",
    ("input: string", "sep: string"),
    _SPLIT,
    {"maxsplit": "int = -1"},
    _split_shape,
    traits=NOT_DIFFERENTIABLE,
)
for _name in ("StringLower", "StringUpper"):
    register_op(
        _name,
        ("input: string",),
        ("output: string",),
        {"encoding": "string = ''"},
        same_shape,
        traits=EACH_ELEMENT,
    )
register_op(
    "StringStrip",
    ("input: string",),
    ("output: string",),
    shape=same_shape,
    traits=EACH_ELEMENT,
)
register_op(
    "RegexReplace",
    ("input: string", "pattern: string", "rewrite: string"),
    ("output: string",),
    {"replace_global": "bool = true"},
    _pattern_shape,
    traits=EACH_ELEMENT,
)
register_op(
    "StaticRegexReplace",
    ("input: string",),
    ("output: string",),
    {"pattern": "string", "rewrite": "string", "replace_global": "bool = true"},
    same_shape,
    traits=EACH_ELEMENT,
)
register_op(
    "RegexFullMatch",
    ("input: string", "pattern: string"),
    ("output: bool",),
    shape=_pattern_shape,
    traits=EACH_ELEMENT,
)
register_op(
    "StaticRegexFullMatch",
    ("input: string",),
    ("output: bool",),
    {"pattern": "string"},
    same_shape,
    traits=EACH_ELEMENT,
)

# ---------------------------------------------------------------------------------- functions


def string_join(inputs: Sequence[Any], separator: str = "", name: str | None = None) -> Output:
    """Concatenate strings elementwise.

    Args:
      inputs: strings of the same shape; those of rank 0 are repeated.
      separator: text between the strings.

    Examples:
      >>> wf.Session().run(wf.string_join([["a"], ["b"]], "-"))
      array([b'a-b'], dtype=object)
    """
    return out("StringJoin", [list(inputs)], {"separator": separator}, name)


def reduce_join(
    inputs: Any,
    axis: Any = None,
    keep_dims: bool | None = None,
    separator: str = "",
    name: str | None = None,
    reduction_indices: Any = None,
    keepdims: bool | None = None,
) -> Output:
    """Join strings along axes, in the order of `axis`.

    Args:
      inputs: strings of any shape.
      axis: axes to join along; by default all, starting with the last.
      keepdims: keep these axes with size 1; `keep_dims` is a deprecated name.
      separator: text between the strings.
      reduction_indices: deprecated name of `axis`.

    Examples:
      >>> wf.Session().run(wf.reduce_join([["a", "b"], ["c", "d"]], 1))
      array([b'ab', b'cd'], dtype=object)
    """
    value = convert_to_tensor(inputs, dtypes.string)
    axes = reduction_indices if axis is None else axis
    if axes is None:
        if value.dims is None:
            first = out("Sub", [out("Rank", [value]), 1])
            axes = out("Range", [first, -1, -1])
        else:
            axes = list(range(len(value.dims) - 1, -1, -1))
    keep = bool(keepdims if keepdims is not None else keep_dims)
    if isinstance(axes, list) and not axes:
        axes = convert_to_tensor([], dtypes.int32)
    return out("ReduceJoin", [value, axes], {"keep_dims": keep, "separator": separator}, name)


def string_length(input: Any, name: str | None = None, unit: str = "BYTE") -> Output:
    """Return the number of bytes, or of code points with unit "UTF8_CHAR": int32.

    Args:
      input: string, any shape.
    Returns: int32, shape of `input`.

    Examples:
      >>> wf.Session().run(wf.strings.length(["weft", ""]))
      array([4, 0], dtype=int32)
    """
    return out("StringLength", [input], {"unit": unit}, name)


def substr(input: Any, pos: Any, len: Any, name: str | None = None, unit: str = "BYTE") -> Output:
    """Return `len` bytes or code points of each string from `pos` on; negative: from the end.

    Args:
      input: strings; broadcast with `pos`.
      pos, len: integers of the same type and shape.
    Raises: InvalidArgumentError: at run time, `pos` is outside of a string.

    Examples:
      >>> wf.Session().run(wf.substr(["weft"], 1, 2))
      array([b'ef'], dtype=object)
    """
    return out("Substr", [input, pos, len], {"unit": unit}, name)


def string_split(
    source: Any,
    sep: Any = None,
    skip_empty: bool = True,
    delimiter: Any = None,
    result_type: str = "SparseTensor",
    name: str | None = None,
) -> Any:
    """Split strings at any byte of a delimiter; an empty delimiter splits into bytes.

    Args:
      source: strings, shape (n,).
      sep: string of rank 0, a space by default; `delimiter` is its deprecated name.
      skip_empty: skip empty parts.
      result_type: "SparseTensor" or "RaggedTensor".
    Returns: strings of dense shape (n, largest number of parts), or a RaggedTensor of shape (n,
      (parts)).
    Raises: InvalidArgumentError: `result_type` is unknown.

    Examples:
      >>> wf.Session().run(wf.string_split(["a b", "c"]).values)
      array([b'a', b'b', b'c'], dtype=object)
    """
    sep = delimiter if sep is None else sep
    sep = " " if sep is None else sep
    ragged = _is_ragged_result(result_type)
    if ragged or isinstance(source, AppliesOps):
        attrs = {"skip_empty": bool(skip_empty)}
        rows = makers.lookup("split")(source, "StringSplit", sep, attrs, name)
        return rows if ragged else rows.to_sparse()
    inputs = [source, sep]
    indices, values, shape = create("StringSplit", inputs, {"skip_empty": skip_empty}, name).outputs
    return SparseTensor(indices, values, shape)


def _is_ragged_result(result_type: str) -> bool:
    """Return True if rows of strings are returned as a RaggedTensor.

    Raises: InvalidArgumentError: the result type is unknown.
    """
    if result_type not in ("SparseTensor", "RaggedTensor"):
        raise errors.InvalidArgumentError(
            f"result_type must be 'SparseTensor' or 'RaggedTensor', got {result_type!r}"
        )
    return result_type == "RaggedTensor"


def string_split_v2(
    source: Any, sep: Any = None, maxsplit: int = -1, name: str | None = None
) -> SparseTensor:
    """Split strings at a separator like Python's `str.split`.

    Args:
      source: strings, shape (n,).
      sep: string of rank 0; whitespace if it is empty or None.
      maxsplit: largest number of splits; -1 for no limit.
    Returns: strings of dense shape (n, largest number of parts).
    """
    inputs = [source, "" if sep is None else sep]
    indices, values, shape = create("StringSplitV2", inputs, {"maxsplit": maxsplit}, name).outputs
    return SparseTensor(indices, values, shape)


def string_lower(input: Any, encoding: str = "", name: str | None = None) -> Output:
    """Convert ASCII letters, or all letters with encoding "utf-8", to lower case.

    Args:
      input: string, any shape.
    Returns: shape and dtype of `input`.

    Examples:
      >>> wf.Session().run(wf.strings.lower(["A", "b"]))
      array([b'a', b'b'], dtype=object)
    """
    return out("StringLower", [input], {"encoding": encoding}, name)


def string_upper(input: Any, encoding: str = "", name: str | None = None) -> Output:
    """Convert ASCII letters, or all letters with encoding "utf-8", to upper case.

    Args:
      input: string, any shape.
    Returns: shape and dtype of `input`.

    Examples:
      >>> wf.Session().run(wf.strings.upper(["A", "b"]))
      array([b'A', b'B'], dtype=object)
    """
    return out("StringUpper", [input], {"encoding": encoding}, name)


def string_strip(input: Any, name: str | None = None) -> Output:
    """Remove whitespace at both ends.

    Args:
      input: string, any shape.
    Returns: shape and dtype of `input`.

    Examples:
      >>> wf.Session().run(wf.string_strip([" a ", "b"]))
      array([b'a', b'b'], dtype=object)
    """
    return out("StringStrip", [input], name=name)


def regex_replace(
    input: Any, pattern: Any, rewrite: Any, replace_global: bool = True, name: str | None = None
) -> Output:
    r"""Replace matches of a regular expression.

    Args:
      input: strings of any shape.
      pattern: string, rank 0: a regular expression of RE2, matched against UTF-8.
      rewrite: string, rank 0; \1 to \9 are groups, \0 is the match, and two backslashes are one.
      replace_global: replace all matches, not only the first.
    Returns: string, shape of `input`.
    Raises (at run time): InvalidArgumentError: `pattern` is not a regular expression, or `rewrite`
      refers to a missing group.

    Examples:
      >>> wf.Session().run(wf.regex_replace(["a1b2"], "[0-9]", ""))
      array([b'ab'], dtype=object)
    """
    attrs: dict[str, Any] = {"replace_global": replace_global}
    if isinstance(pattern, str | bytes) and isinstance(rewrite, str | bytes):
        attrs |= {"pattern": pattern, "rewrite": rewrite}
        return out("StaticRegexReplace", [input], attrs, name)
    return out("RegexReplace", [input, pattern, rewrite], attrs, name)


def regex_full_match(input: Any, pattern: Any, name: str | None = None) -> Output:
    """Return True where a whole string matches a regular expression.

    Args:
      input: string, any shape.
      pattern: string, rank 0: a regular expression of RE2, matched against UTF-8.
    Returns: bool, shape of `input`.
    Raises (at run time): InvalidArgumentError: `pattern` is not a regular expression.

    Examples:
      >>> wf.Session().run(wf.strings.regex_full_match(["a1", "1a"], "[a-z][0-9]"))
      array([ True, False])
    """
    if isinstance(pattern, str | bytes):
        return out("StaticRegexFullMatch", [input], {"pattern": pattern}, name)
    return out("RegexFullMatch", [input, pattern], name=name)


def split(
    input: Any = None,
    sep: Any = None,
    maxsplit: int = -1,
    result_type: str = "SparseTensor",
    source: Any = None,
    name: str | None = None,
) -> Any:
    """Split strings at a separator; newer name of `string_split_v2`.

    Args:
      source: deprecated name of `input`.
      result_type: "SparseTensor" or "RaggedTensor"; for the latter, `input` may have any rank or be
        ragged.
    Raises: InvalidArgumentError: `result_type` is unknown.

    Examples:
      >>> wf.Session().run(wf.strings.split(["a b", "c"])).values
      array([b'a', b'b', b'c'], dtype=object)
    """
    text = source if input is None else input
    if _is_ragged_result(result_type):
        attrs = {"maxsplit": maxsplit}
        return makers.lookup("split")(
            text, "StringSplitV2", "" if sep is None else sep, attrs, name
        )
    if isinstance(text, AppliesOps):
        return split(text, sep, maxsplit, "RaggedTensor", name=name).to_sparse()
    return string_split_v2(text, sep, maxsplit, name)


# The names of `wf.strings`.
join = string_join
length = string_length
lower = string_lower
upper = string_upper
strip = string_strip
