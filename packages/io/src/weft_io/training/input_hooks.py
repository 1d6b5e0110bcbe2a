"""The hook that saves the positions of iterators together with the model."""

from __future__ import annotations

__all__ = ["CheckpointInputPipelineHook"]

from collections.abc import Sequence
from typing import Any

from weft_graph.ir.collections_keys import GraphKeys
from weft_graph.ir.default_graph import get_default_graph
from weft_io.arguments import to_list
from weft_io.coordination.coordinator import Coordinator
from weft_io.data.experimental import make_saveable_from_iterator
from weft_io.ops.dataset import is_serialized, iterators_of
from weft_io.saving.resuming import saveable_of
from weft_io.saving.saveables import SaveableObject
from weft_io.training.hook import SessionRunHook
from weft_tensor import errors


class CheckpointInputPipelineHook(SessionRunHook):
    """Saves the positions of iterators in the checkpoints of the session.

    A restored session continues with the position at the step of its variables. The hook adds the
    iterators to the collection SAVEABLE_OBJECTS before the session is created, for the saver that
    the session's `Scaffold` creates, or one with `defer_build=True`. Their initializers run in
    every session: they are in TABLE_INITIALIZERS, are part of the scaffold's `local_init_op`, or
    are run by a hook. A checkpoint saved without the hook can be restored, with a warning: the
    input then starts at its beginning.

    Args:
      iterators: `Iterator`s; by default all initializable and one-shot iterators of the graph.
    Raises: InvalidTypeError: an item is not an iterator; when the session is created,
      FailedPreconditionError: there are no iterators, or the saver does not save them.

    Examples:
      >>> def train(steps):
      ...     with wf.Graph().as_default():
      ...         iterator = wf.data.Dataset.range(100).make_initializable_iterator()
      ...         wf.add_to_collection(wf.GraphKeys.TABLE_INITIALIZERS, iterator.initializer)
      ...         element = iterator.get_next()
      ...         advance = wf.train.get_or_create_global_step().assign_add(1)
      ...         position = wf.data.experimental.CheckpointInputPipelineHook()
      ...         stop = wf.train.StopAtStepHook(num_steps=steps)
      ...         with wf.train.MonitoredTrainingSession(
      ...             checkpoint_dir="./positions", hooks=[position, stop]
      ...         ) as session:
      ...             while not session.should_stop():
      ...                 last, _ = session.run([element, advance])
      ...             return int(last)
      >>> train(3), train(4)
      (2, 6)
    """

    def __init__(self, iterators: Sequence[Any] | None = None) -> None:
        self._saver_argument = None
        if iterators is not None:
            result = to_list(iterators, "iterators")
            for item in result:
                make_saveable_from_iterator(item)
            self._saver_argument = result

    def begin(self) -> None:
        """Add the iterators to the saved state.

        Raises: FailedPreconditionError: there are no iterators.
        """
        graph = get_default_graph()
        if self._saver_argument is None:
            resources = iterators_of(graph)
        else:
            resources = [item._iterator_resource for item in self._saver_argument]
        self._saveables = [saveable_of(resource, optional=True) for resource in resources]
        if not self._saveables:
            raise errors.FailedPreconditionError(
                "CheckpointInputPipelineHook needs an initializable or one-shot iterator in the "
                "graph, got none"
            )
        saved = graph.get_collection(GraphKeys.SAVEABLE_OBJECTS)
        names = {item.name for item in saved if isinstance(item, SaveableObject)}
        for saveable in self._saveables:
            if saveable.name not in names:
                graph.add_to_collection(GraphKeys.SAVEABLE_OBJECTS, saveable)

    def after_create_session(self, session: Any, coord: Coordinator) -> None:
        """Check that the iterators are saved."""
        for saveable in self._saveables:
            if not is_serialized(saveable.op):
                raise errors.FailedPreconditionError(
                    f"no saver saves the iterator {saveable.name!r}: the saver was built before "
                    "the session. Let the session's Scaffold create it, or create it with "
                    "defer_build=True"
                )
