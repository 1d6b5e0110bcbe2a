"""The nodes of a Supervisor: passed by the caller, found in collections, or created."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from weft_autodiff.optimizers.training_util import get_global_step
from weft_graph.ir.collections_keys import GraphKeys
from weft_graph.ir.default_graph import get_default_graph
from weft_graph.variables import reference as variables
from weft_io.ops.summary import merge_all
from weft_io.saving.saver import Saver
from weft_io.training.scaffold import Scaffold
from weft_tensor import errors

_log = logging.getLogger("weft")


class SupervisedNodes(NamedTuple):
    """The nodes of a Supervisor; each may be None."""

    ready_op: Any
    ready_for_local_init_op: Any
    init_op: Any
    local_init_op: Any
    saver: Any
    summary_op: Any
    global_step: Any

    @staticmethod
    def of(arguments: Mapping[str, Any]) -> SupervisedNodes:
        """Return the nodes; a 0 is replaced by the first item of the collection, or a new node."""
        return SupervisedNodes(
            *[
                _find_or_create(*_DEFAULTS[part]) if _is_default(value) else value
                for part, value in arguments.items()
            ]
        )


def _is_default(value: Any) -> bool:
    return isinstance(value, int) and value == 0


def _find_or_create(key: str, default: Callable[[], Any]) -> Any:
    graph = get_default_graph()
    items = graph.get_collection(key)
    if items:
        if len(items) > 1:
            _log.info("Found %d %s operations. Returning the first one.", len(items), key)
        return items[0]
    result = default()
    if result is not None:
        graph.add_to_collection(key, result)
    return result


def _no_op() -> None:
    return None


def _saver() -> Any:
    return Saver() if variables.global_variables() else None


def _global_step() -> Any:
    try:
        return get_global_step()
    except errors.InvalidTypeError as cause:
        _log.warning("%s", cause.message)
        return None


_DEFAULTS: dict[str, tuple[str, Callable[[], Any]]] = {
    "ready_op": (GraphKeys.READY_OP, variables.report_uninitialized_variables),
    "ready_for_local_init_op": (GraphKeys.READY_FOR_LOCAL_INIT_OP, _no_op),
    "init_op": (GraphKeys.INIT_OP, variables.global_variables_initializer),
    "local_init_op": (GraphKeys.LOCAL_INIT_OP, Scaffold.default_local_init_op),
    "saver": (GraphKeys.SAVERS, _saver),
    "summary_op": (GraphKeys.SUMMARY_OP, merge_all),
    "global_step": (GraphKeys.GLOBAL_STEP, _global_step),
}
