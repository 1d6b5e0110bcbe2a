"""Evaluators of exported models: ONNX's reference evaluator, and ONNX Runtime if installed."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterator, Mapping
from importlib.util import find_spec
from typing import Any

from onnx import ModelProto
from onnx.reference import ReferenceEvaluator

REFERENCE, RUNTIME = "reference", "runtime"


def answers(
    model: ModelProto, feeds: Mapping[str, Any], without: Collection[str] = ()
) -> Iterator[list[Any]]:
    """Return the outputs of a model by each available evaluator."""
    if REFERENCE not in without:
        with warnings.catch_warnings():
            # It overflows, divides by zero and takes means of nothing, and says so, as NumPy does.
            warnings.simplefilter("ignore", RuntimeWarning)
            try:
                yield ReferenceEvaluator(model).run(None, dict(feeds))
            except RuntimeError as error:  # it lacks some old versions of ops
                if "No implementation for operator" not in str(error):
                    raise
    if RUNTIME not in without and find_spec("onnxruntime"):
        yield _by_runtime(model, feeds)


def _by_runtime(model: ModelProto, feeds: Mapping[str, Any]) -> list[Any]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    providers = ["CPUExecutionProvider"]
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers)
    found: list[Any] = session.run(None, dict(feeds))
    return found
