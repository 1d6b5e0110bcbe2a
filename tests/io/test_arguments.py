"""Functions of weft_io with invalid arguments: a table of calls and messages."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

import weft as wf
from weft_tensor import errors

TYPE, VALUE = errors.InvalidTypeError, errors.InvalidArgumentError


def _virtual(value: Any) -> Callable[[], None]:
    experimental = wf.config.experimental
    (cpu,) = experimental.list_physical_devices("CPU")
    return lambda: experimental.set_virtual_device_configuration(cpu, value)


REFUSED: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (lambda: wf.io.tf_record_batches("none", 0), VALUE, "batch_size must be at least 1, got 0"),
    (lambda: wf.io.tf_record_batches("none", 1.5), TYPE, "batch_size must be an integer, got 1.5"),
    (lambda: wf.io.parquet_batches("none", 0), VALUE, "batch_size must be at least 1, got 0"),
    (
        lambda: wf.io.write_graph(3, ".", "graph"),
        TYPE,
        "write_graph requires a Graph or a GraphDef, got 3",
    ),
    (
        lambda: wf.train.BundleSaverBuilder(write_version="a"),
        TYPE,
        "write_version must be an integer, got 'a'",
    ),
    (
        lambda: wf.saved_model.get_tensor_from_tensor_info(1),
        TYPE,
        "a TensorInfo is required, got 1",
    ),
    (_virtual([3]), TYPE, "must be a list of VirtualDeviceConfiguration, got 3"),
]


def test_refused() -> None:
    for call, kind, words in REFUSED:
        with pytest.raises(kind, match=re.escape(words)):
            call()
