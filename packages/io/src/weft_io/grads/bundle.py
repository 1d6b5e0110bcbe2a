"""No gradient flows through the names of files."""

from __future__ import annotations

from weft_autodiff.registry import NotDifferentiable

NotDifferentiable("ShardedFilename")
NotDifferentiable("ShardedFilespec")
NotDifferentiable("MergeV2Checkpoints")
