"""String ops."""

from __future__ import annotations

from typing import Final

import numpy as np

from weft_graph.ir.builder import constant
from weft_graph.ir.node import Output
from weft_graph.ops import strings
from weft_graph.ops.array import fill
from weft_graph.ops.broadcasting import broadcast_dynamic_shape, broadcast_to
from weft_graph.ops.comparison import equal, logical_not
from weft_graph.ops.gather import gather, scatter_nd
from weft_graph.ops.join import concat, stack
from weft_graph.ops.masks import boolean_mask, where_v2
from weft_graph.ops.reduction import reduce_all, reduce_any, reduce_sum
from weft_graph.ops.sequence import range as sequence
from weft_graph.ops.shapes import expand_dims, reshape
from weft_graph.ops.sparse import sparse_tensor_to_dense
from weft_graph.ops.strings import string_split_v2
from weft_io.onnx.operation import Operation, cast
from weft_io.onnx.registry import importer
from weft_io.onnx.rules.array import shape64
from weft_tensor import dtypes, errors


@importer("StringConcat")
def _concat(operation: Operation) -> Output:
    x, y = operation[0], operation[1]
    sizes = broadcast_dynamic_shape(shape64(x), shape64(y))
    return strings.join([broadcast_to(x, sizes), broadcast_to(y, sizes)])


@importer("RegexFullMatch")
def _match(operation: Operation) -> Output:
    return strings.regex_full_match(operation[0], operation.required("pattern"))


@importer("StringNormalizer")
def _normalize(operation: Operation) -> Output:
    """Remove stop words and change case; an empty result becomes one empty string."""
    x = operation[0]
    change = operation.attribute("case_change_action", "NONE")
    stops = [word.encode() for word in operation.attribute("stopwords") or []]
    cases = {"LOWER": strings.lower, "UPPER": strings.upper}
    if change != "NONE" and change not in cases:
        raise errors.InvalidArgumentError(
            f"case_change_action must be LOWER or UPPER, got {change!r}"
        )
    if stops:
        words = x
        if not operation.attribute("is_case_sensitive", 0):
            words = strings.lower(x, encoding="utf-8")
            stops = [word.decode().lower().encode() for word in stops]
        flat = reshape(words, [-1])
        result = reduce_any(equal(expand_dims(flat, 1), constant(stops)), 1)
        kept_words = boolean_mask(reshape(x, [-1]), logical_not(result))
        x = kept_words if operation.rank() == 1 else reshape(kept_words, [1, -1])
    if change in cases:
        x = cases[change](x, encoding="utf-8")
    empty = constant([b""] if operation.rank() == 1 else [[b""]])
    count = shape64(reshape(x, [-1]))[0]
    last = operation.rank() - 1
    filled = concat([x, empty], last)
    size = where_v2(equal(count, constant(0, dtypes.int64)), constant(1, dtypes.int64), count)
    return gather(filled, sequence(size), axis=last)


@importer("StringSplit")
def _split(operation: Operation) -> list[Output]:
    """Split each text; return the pieces, padded with empty strings, and their number."""
    x = operation[0]
    sizes = shape64(x)
    flat = reshape(x, [-1])
    parts = string_split_v2(
        flat, operation.attribute("delimiter") or "", maxsplit=operation.attribute("maxsplit", -1)
    )
    rows, columns = parts.dense_shape[0], parts.dense_shape[1]
    table = scatter_nd(parts.indices, parts.values, stack([rows, columns]))
    unit_counts = fill(shape64(parts.values), constant(1, dtypes.int64))
    counts = scatter_nd(parts.indices[:, :1], unit_counts, reshape(rows, [1]))
    return [reshape(table, concat([sizes, [columns]], 0)), reshape(counts, sizes)]


# Markers of the start and end of tokens during the search, and their separator.
_BEGIN, _END, _BETWEEN = "\x01", "\x02", "\x03"
_MAX_CHARACTERS: Final = 1000
"""Maximum number of characters per token, which is a repetition count in a regular expression."""


@importer("Tokenizer", domain="com.microsoft")
def _tokenizer(operation: Operation) -> Output:
    """Import ONNX Runtime's Tokenizer, which scikit-learn's text models use: (..., most tokens)."""
    x, min_characters = operation[0], operation.attribute("mincharnum", 1)
    if operation.attribute("mark", 0):
        raise errors.UnimplementedError(
            "Tokenizer does not support mark=1 (markers of the beginning and end of a text)"
        )
    if not 1 <= min_characters <= _MAX_CHARACTERS:
        raise errors.InvalidArgumentError(
            f"mincharnum of Tokenizer must be 1 to {_MAX_CHARACTERS}, got {min_characters}"
        )
    separators, expression = operation.attribute("separators"), operation.attribute("tokenexp")
    if bool(separators) == bool(expression):
        raise errors.InvalidArgumentError("Tokenizer requires separators or tokenexp, and not both")
    text = strings.regex_replace(reshape(x, [-1]), f"[{_BEGIN}{_END}{_BETWEEN}]", " ")
    if separators == [""]:
        expression = "(?s)."
    elif separators:
        for item in separators:
            text = strings.regex_replace(text, item, _BETWEEN)
        expression = f"[^{_BETWEEN}]+"
    outside = f"[^{_BEGIN}{_END}]"
    text = strings.regex_replace(text, expression, rf"{_BEGIN}\0{_END}")
    text = strings.regex_replace(text, rf"{_END}{outside}*", _END)
    text = strings.regex_replace(text, rf"\A{outside}*", "")
    text = strings.regex_replace(text, f"{_BEGIN}{outside}{{0,{min_characters - 1}}}{_END}", "")
    tokens = strings.string_split(strings.regex_replace(text, _END, ""), _BEGIN)
    result = sparse_tensor_to_dense(tokens, operation.required("pad_value"))
    return reshape(result, concat([shape64(x), shape64(result)[1:]], 0))


_MAX_SKIPS: Final = 1000
_ALWAYS_ALLOWED_COLUMNS: Final = 1_000_000
"""Number of columns that is always allowed, however few n-grams there are."""


@importer("TfIdfVectorizer")
def _tf_idf(operation: Operation) -> Output:
    """Count each n-gram of a pool in each row, with a limited number of skipped elements."""
    x = operation[0]
    rows = expand_dims(x, 0) if operation.rank() == 1 else x
    pool = operation.attribute("pool_strings") or operation.attribute("pool_int64s")
    pool = [item.encode() if isinstance(item, str) else item for item in pool or []]
    starts, ngram_indices = operation.required("ngram_counts"), operation.required("ngram_indexes")
    shortest, longest = operation.required("min_gram_length"), operation.required("max_gram_length")
    if min(ngram_indices, default=-1) < 0 or max(
        ngram_indices
    ) >= _ALWAYS_ALLOWED_COLUMNS + 1000 * len(ngram_indices):
        raise errors.InvalidArgumentError(
            f"ngram_indexes of TfIdfVectorizer must name columns of {len(ngram_indices)} n-grams, "
            f"got {min(ngram_indices, default=None)} to {max(ngram_indices, default=None)}"
        )
    none = reduce_sum(cast(equal(rows, rows), dtypes.float32), 1, keepdims=True) * 0.0
    parts = [none]
    columns = np.zeros(
        max(ngram_indices) + 1, np.int64
    )  # of `parts` side by side, 0 is that of nothing
    offset, width = 0, 1
    for length, start in enumerate(starts, 1):
        end = starts[length] if length < len(starts) else len(pool)
        grams = [pool[i : i + length] for i in range(start, end, length)]
        if shortest <= length <= longest and grams:
            parts.append(_occurrences(rows, grams, length, _skips(operation, rows)))
            columns[ngram_indices[offset : offset + len(grams)]] = width + np.arange(len(grams))
            width += len(grams)
        offset += len(grams)
    counts = gather(concat(parts, 1), constant(columns), axis=1)
    return _weight(operation, counts, operation.rank() == 1)


def _skips(operation: Operation, rows: Output) -> int:
    """Return the maximum number of skipped elements; each adds several nodes."""
    skips: int = operation.required("max_skip_count")
    width = rows.dims[1] if rows.dims is not None else None
    if width is not None:
        skips = min(skips, width)
    if not 0 <= skips <= _MAX_SKIPS:
        raise errors.InvalidArgumentError(
            f"max_skip_count of TfIdfVectorizer must be 0 to {_MAX_SKIPS}, got {skips}"
        )
    return skips


def _occurrences(rows: Output, grams: list[list[object]], length: int, skips: int) -> Output:
    """Count each n-gram in each row, (rows, grams)."""
    gram_table = constant(np.array(grams, object if isinstance(grams[0][0], bytes) else np.int64))
    if gram_table.dtype is not rows.dtype.base_dtype:
        gram_table = cast(gram_table, rows.dtype.base_dtype)
    width = shape64(rows)[1]
    total = None
    for skip in range(skips + 1 if length > 1 else 1):
        reach = (skip + 1) * (length - 1)
        last = width - reach
        first = sequence(where_v2(last > 0, last, constant(0, dtypes.int64)))
        windows = stack([gather(rows, first + (skip + 1) * i, axis=1) for i in range(length)], 2)
        matches = reduce_all(equal(expand_dims(windows, 2), gram_table), 3)
        result = reduce_sum(cast(matches, dtypes.float32), 1)
        total = result if total is None else total + result
    assert total is not None
    return total


def _weight(operation: Operation, counts: Output, flat: bool) -> Output:
    mode, weights = operation.required("mode"), operation.attribute("weights")
    if mode not in ("TF", "IDF", "TFIDF"):
        raise errors.InvalidArgumentError(
            f"mode of TfIdfVectorizer must be TF, IDF or TFIDF, got {mode!r}"
        )
    if mode == "IDF":
        counts = cast(counts > 0.0, dtypes.float32)
    if weights and mode != "TF":
        placed = np.zeros(max(operation.required("ngram_indexes")) + 1, np.float32)
        placed[operation.required("ngram_indexes")] = weights
        counts = counts * constant(placed)
    return counts[0] if flat else counts
