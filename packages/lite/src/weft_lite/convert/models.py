"""Readers of saved models for `weft compile`, in the entry-point group `weft_compiler.models`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from weft_graph.ir.node import Output
from weft_lite.convert.sources import (
    Source,
    source_of_checkpoint,
    source_of_onnx,
    source_of_saved_model,
)
from weft_tensor import errors

Ends = tuple[dict[str, Output], dict[str, Output]]


def saved_model(
    path: Path,
    inputs: Sequence[str],
    outputs: Sequence[str],
    signature: str | None,
    tags: Sequence[str],
) -> Ends:
    """Return the source of a signature of a SavedModel."""
    _require_none(path, "a SavedModel", names=[*inputs, *outputs])
    return _ends(
        source_of_saved_model(str(path), signature or "serving_default", tags or ["serve"], ())
    )


def checkpoint(
    path: Path,
    inputs: Sequence[str],
    outputs: Sequence[str],
    signature: str | None,
    tags: Sequence[str],
) -> Ends:
    """Return the source of a checkpoint with its graph file."""
    _require_none(path, "a checkpoint", signature=signature, tags=tags)
    if not (inputs and outputs):
        raise errors.InvalidArgumentError("a checkpoint needs the names of inputs and outputs")
    return _ends(source_of_checkpoint(str(path), inputs, outputs, ()))


def onnx(
    path: Path,
    inputs: Sequence[str],
    outputs: Sequence[str],
    signature: str | None,
    tags: Sequence[str],
) -> Ends:
    """Return the source of an ONNX model."""
    _require_none(path, "an ONNX model", names=[*inputs, *outputs], signature=signature, tags=tags)
    return _ends(source_of_onnx(str(path)))


def _require_none(path: Path, kind: str, **arguments: object) -> None:
    """Check that no option is set that a kind of model does not use."""
    for name, argument in arguments.items():
        if argument:
            raise errors.InvalidArgumentError(
                f"{path} is read as {kind}, which does not support {name}, got {argument}"
            )


def _ends(source: Source) -> Ends:
    """Return the inputs and outputs of a source."""
    return source.inputs, source.outputs
