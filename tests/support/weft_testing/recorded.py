"""The files in `tests/io/recorded`, written by TensorFlow, and their contents."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import numpy as np

from weft_tensor import dtypes
from weft_tensor.dtypes import DType
from weft_testing.loading import load
from weft_testing.workspace import ROOT

DATA = ROOT / "tests" / "io" / "recorded"
BUNDLES = DATA / "bundles"
GRAPHS = DATA / "graphs"
SAVED_MODELS = DATA / "saved_models"


@cache
def script() -> Any:
    """Return the module `record.py`, which describes the bundles."""
    return load(DATA / "record.py")


def expected() -> Any:
    """Return the results of the recorded graphs."""
    return json.loads((DATA / "expected.json").read_text(encoding="utf-8"))


def tensors() -> dict[str, tuple[DType, Any]]:
    """Return the contents of the bundle `types`: name to element type and array."""
    made = {}
    for name, (kind, value) in script().tensors().items():
        dtype = dtypes.as_dtype(kind)
        made[name] = dtype, value.view(dtype.numpy) if kind == "bfloat16" else value
    return made


def same(one: Any, other: Any) -> bool:
    """Return True if two arrays agree in type, shape and every bit."""
    one, other = (
        np.array(x, object) if isinstance(x, bytes) else np.asarray(x) for x in (one, other)
    )
    if (one.dtype, one.shape) != (other.dtype, other.shape):
        return False
    if one.dtype.hasobject:
        return bool(one.tolist() == other.tolist())
    return bool(one.tobytes() == other.tobytes())
