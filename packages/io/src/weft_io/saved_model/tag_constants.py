"""The usual tags of graphs in a SavedModel."""

from __future__ import annotations

__all__ = ["GPU", "SERVING", "TPU", "TRAINING"]

from typing import Final

SERVING: Final = "serve"
TRAINING: Final = "train"
GPU: Final = "gpu"
TPU: Final = "tpu"
