"""Checkpoints: Saver, the latest checkpoint of a directory, and looking into one."""

from __future__ import annotations

from typing import Any

from weft_graph.ir.collections_keys import GraphKeys
from weft_graph.messages.collection_items import one_by_one, register_collection
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


def _queue_runner(message: Any, import_scope: str | None = None) -> Any:
    from weft_io.coordination.queue_runner import QueueRunner

    return QueueRunner.from_proto(message, import_scope)


# Here, since programs that only save and restore should not load all that runs queues.
register_collection(GraphKeys.QUEUE_RUNNERS, "QueueRunnerDef", one_by_one(_queue_runner))

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
