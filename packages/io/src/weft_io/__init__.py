"""Data input and output: checkpoints, datasets, images, ONNX, queues and summaries."""

from __future__ import annotations

from weft_io.checkpoint.reader import CheckpointReader
from weft_io.checkpoint.state import (
    checkpoint_exists,
    generate_checkpoint_state_proto,
    get_checkpoint_mtimes,
    get_checkpoint_state,
    latest_checkpoint,
    list_variables,
    load_checkpoint,
    load_variable,
    remove_checkpoint,
    update_checkpoint_state,
)
from weft_io.meta_graphs.export import export_meta_graph
from weft_io.saving.meta_graph import import_meta_graph
from weft_io.saving.saveables import SaveableObject, SaveSpec
from weft_io.saving.saver import Saver
from weft_io.saving.warm_start import init_from_checkpoint

__all__ = [
    "CheckpointReader",
    "SaveSpec",
    "SaveableObject",
    "Saver",
    "checkpoint_exists",
    "export_meta_graph",
    "generate_checkpoint_state_proto",
    "get_checkpoint_mtimes",
    "get_checkpoint_state",
    "import_meta_graph",
    "init_from_checkpoint",
    "latest_checkpoint",
    "list_variables",
    "load_checkpoint",
    "load_variable",
    "remove_checkpoint",
    "update_checkpoint_state",
]
