"""No gradient flows through strings."""

from __future__ import annotations

from weft_autodiff.registry import NotDifferentiable

for _op in (
    "StringJoin",
    "ReduceJoin",
    "StringLength",
    "Substr",
    "StringSplit",
    "StringSplitV2",
    "StringLower",
    "StringUpper",
    "StringStrip",
    "StringToNumber",
    "AsString",
    "StringToHashBucket",
    "StringToHashBucketFast",
    "StringToHashBucketStrong",
    "RegexReplace",
    "StaticRegexReplace",
    "RegexFullMatch",
    "StaticRegexFullMatch",
    "EncodeBase64",
    "DecodeBase64",
    "StringFormat",
    "DecodeRaw",
):
    NotDifferentiable(_op)
