"""Scaffold: the nodes that prepare a model in a session."""

from __future__ import annotations

__all__ = ["Scaffold"]

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from weft_graph.ir.collections_keys import GraphKeys
from weft_graph.ir.default_graph import get_default_graph
from weft_graph.ir.node import Node, Output
from weft_graph.ops.control import group
from weft_graph.variables import reference as variables
from weft_io.ops.summary import merge_all
from weft_io.saving.saver import Saver
from weft_tensor import errors
from weft_tensor.arguments import check_function

_log = logging.getLogger("weft")

_PARTS = (
    "init_op",
    "init_feed_dict",
    "init_fn",
    "ready_op",
    "ready_for_local_init_op",
    "local_init_op",
    "local_init_feed_dict",
    "summary_op",
    "saver",
)


class Scaffold:
    """The nodes that initialize a model, check that it is ready, save it and summarize it.

    `finalize` takes omitted parts from the graph's collections, or creates them.

    Args:
      init_op:
        node that initializes the global variables.
      init_feed_dict: feeds of `init_op`.
      init_fn: called as `init_fn(scaffold, session)` after `init_op`.
      ready_op: string, shape (n,): names of variables that are not ready.
      ready_for_local_init_op: string, shape (n,): names that `local_init_op` still waits for.
      local_init_op: node that initializes state that is not in checkpoints: local variables and
        tables.
      summary_op: string, shape (): serialized summaries.
      saver: a `Saver`.
      copy_from_scaffold: another scaffold, whose parts replace omitted ones.
      local_init_feed_dict: feeds of `local_init_op`.
    Raises: InvalidTypeError: an argument has a wrong type.

    Examples:
      >>> scaffold = wf.train.Scaffold(init_fn=lambda scaffold, session: None)
      >>> x = wf.Variable(1.0)
      >>> with wf.train.MonitoredTrainingSession(scaffold=scaffold) as session:
      ...     session.run(x)
      np.float32(1.0)
    """

    def __init__(
        self,
        init_op: Any = None,
        init_feed_dict: Mapping[Any, Any] | None = None,
        init_fn: Callable[[Scaffold, Any], Any] | None = None,
        ready_op: Any = None,
        ready_for_local_init_op: Any = None,
        local_init_op: Any = None,
        summary_op: Any = None,
        saver: Any = None,
        copy_from_scaffold: Scaffold | None = None,
        local_init_feed_dict: Mapping[Any, Any] | None = None,
    ) -> None:
        other = copy_from_scaffold
        if not (other is None or isinstance(other, Scaffold)):
            raise errors.InvalidTypeError(f"copy_from_scaffold is not a Scaffold: {other!r}")
        if init_fn is not None:
            check_function(init_fn, "init_fn", 2)
        supplied = {
            "init_op": init_op,
            "init_feed_dict": init_feed_dict,
            "init_fn": init_fn,
            "ready_op": ready_op,
            "ready_for_local_init_op": ready_for_local_init_op,
            "local_init_op": local_init_op,
            "local_init_feed_dict": local_init_feed_dict,
            "summary_op": summary_op,
            "saver": saver,
        }
        if other is not None:
            for part in _PARTS:
                supplied[part] = other._parts[part] if supplied[part] is None else supplied[part]
        self._parts: dict[str, Any] = supplied

    def finalize(self, resumable: bool = False) -> Scaffold:
        """Find or create missing parts in the default graph, and finalize the graph.

        Args:
          resumable: True if a created saver is resumable; see `Saver`.
        Returns: this scaffold.
        Raises: FailedPreconditionError: a collection has more than one item to choose from, or a
          part is missing from a finalized graph.
        """
        parts = self._parts
        for part, (key, default) in _DEFAULTS.items():
            if parts[part] is None:
                parts[part] = Scaffold.get_or_default(part, key, default)
        if parts["saver"] is None:
            make = partial(Saver, sharded=True, allow_empty=True, resumable=resumable)
            parts["saver"] = Scaffold.get_or_default("saver", GraphKeys.SAVERS, make)
        parts["saver"].build()
        get_default_graph().finalize()
        _log.info("Graph was finalized.")
        return self

    @property
    def init_fn(self) -> Callable[[Any], Any] | None:
        """The function called with a session to initialize state that nodes cannot initialize."""
        init_fn = self._parts["init_fn"]
        return None if init_fn is None else lambda session: init_fn(self, session)

    @property
    def init_op(self) -> Any:
        """The node that initializes the global variables."""
        return self._parts["init_op"]

    @property
    def init_feed_dict(self) -> Mapping[Any, Any] | None:
        """The feeds of `init_op`."""
        return self._parts["init_feed_dict"]  # type: ignore[no-any-return]

    @property
    def ready_op(self) -> Any:
        """The output with the names of variables that are not ready."""
        return self._parts["ready_op"]

    @property
    def ready_for_local_init_op(self) -> Any:
        """The output with the names that `local_init_op` still waits for."""
        return self._parts["ready_for_local_init_op"]

    @property
    def local_init_op(self) -> Any:
        """The node that initializes state that is not in checkpoints."""
        return self._parts["local_init_op"]

    @property
    def local_init_feed_dict(self) -> Mapping[Any, Any] | None:
        """The feeds of `local_init_op`."""
        return self._parts["local_init_feed_dict"]  # type: ignore[no-any-return]

    @property
    def summary_op(self) -> Any:
        """The summaries, or None."""
        return self._parts["summary_op"]

    @property
    def saver(self) -> Any:
        """The saver."""
        return self._parts["saver"]

    @staticmethod
    def get_or_default(
        arg_name: str, collection_key: str, default_constructor: Callable[[], Any]
    ) -> Any:
        """Return the item of a collection of the default graph, or create and add it.

        Args:
          arg_name: the corresponding argument of `Scaffold`, for the message.
          collection_key: the collection.
          default_constructor: creates the item; None is not added.
        Raises: FailedPreconditionError: the collection has more than one item.
        """
        graph = get_default_graph()
        collection = graph.get_collection(collection_key)
        if len(collection) > 1:
            raise errors.FailedPreconditionError(
                f'More than one item in the collection "{collection_key}". Please indicate which '
                "one to use by passing it to the tf.Scaffold constructor as:  "
                f"tf.Scaffold({arg_name}=item to use)"
            )
        if collection:
            return collection[0]
        constructor = default_constructor()
        if constructor is not None:
            graph.add_to_collection(collection_key, constructor)
        return constructor

    @staticmethod
    def default_local_init_op() -> Node:
        """Return a node that initializes local variables and tables."""
        return group(variables.local_variables_initializer(), variables.tables_initializer())


def _default_init_op() -> Node:
    extra = get_default_graph().get_collection("saved_model_initializers")
    return group(variables.global_variables_initializer(), *extra)


def _default_ready_for_local_init_op() -> Output:
    return variables.report_uninitialized_variables(variables.global_variables())


_DEFAULTS: dict[str, tuple[str, Callable[[], Any]]] = {
    "init_op": (GraphKeys.INIT_OP, _default_init_op),
    "ready_op": (GraphKeys.READY_OP, variables.report_uninitialized_variables),
    "ready_for_local_init_op": (
        GraphKeys.READY_FOR_LOCAL_INIT_OP,
        _default_ready_for_local_init_op,
    ),
    "local_init_op": (GraphKeys.LOCAL_INIT_OP, Scaffold.default_local_init_op),
    "summary_op": (GraphKeys.SUMMARY_OP, merge_all),
}
