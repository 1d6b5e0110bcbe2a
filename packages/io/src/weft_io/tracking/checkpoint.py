"""`Checkpoint` saves variables under the names of the attributes that lead to them."""

from __future__ import annotations

__all__ = ["Checkpoint"]

from functools import partial
from typing import Any

from weft_graph import proto
from weft_graph.ir.builder import constant
from weft_graph.ir.constants import to_array
from weft_graph.ir.default_graph import get_default_graph
from weft_graph.variables.base import Variable
from weft_io.checkpoint.reader import CheckpointReader
from weft_io.checkpoint.state import update_checkpoint_state
from weft_io.files import paths
from weft_io.saving.object_names import GRAPH_KEY, read_object_graph
from weft_io.saving.saver import Saver
from weft_io.saving.warm_start import read_initially
from weft_io.tracking.load_status import (
    CheckpointLoadStatus,
    InitializationStatus,
    LoadStatus,
    NameBasedStatus,
    session_of,
)
from weft_io.tracking.matching import Matches
from weft_io.tracking.objects import (
    Composite,
    ObjectGraph,
    StringSaveable,
    check_trackable,
)
from weft_tensor import dtypes, errors


class Checkpoint(Composite):
    """Saves and restores the variables, optimizers and layers reachable from its attributes.

    Variables are saved under the names of attributes, such as "encoder/kernel", instead of their
    own names, so that checkpoints remain valid if a program is reorganized. Items of lists and
    dicts are named by index and key. It writes the same files as a `Saver`; TensorFlow's
    object-based checkpoints can be read, too.

    Args:
      **kwargs: initial attributes; more can be set later.
    Attributes:
      save_counter: a variable, int64 (): the number of calls of `save`.
    Raises:
      InvalidTypeError: an attribute cannot be saved.

    Examples:
      >>> w = wf.get_variable("w", [], initializer=wf.ones_initializer())
      >>> optimizer = wf.train.MomentumOptimizer(0.1, 0.9)
      >>> step = optimizer.minimize(w * w, var_list=[w])
      >>> checkpoint = wf.train.Checkpoint(model={"w": w}, optimizer=optimizer)
      >>> with wf.Session() as session:
      ...     session.run(wf.global_variables_initializer())
      ...     session.run(step)
      ...     prefix = checkpoint.save("./objects")
      >>> wf.train.load_variable(prefix, "model/w/.ATTRIBUTES/VARIABLE_VALUE")
      np.float32(0.8)
      >>> with wf.Session() as session:
      ...     checkpoint.restore(prefix).assert_consumed().run_restore_ops()
      ...     session.run(w)
      np.float32(0.8)
    """

    save_counter: Any

    def __init__(self, **kwargs: Any) -> None:
        object.__setattr__(self, "tracked", {})
        self._saver: Saver | None = None
        self._saver_key: Any = None
        self._pending: tuple[str, proto.TrackableObjectGraph] | None = None
        for name, value in sorted(kwargs.items()):
            check_trackable(value, name)
            setattr(self, name, value)

    def __setattr__(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)
        if name[0] == "_":
            return
        check_trackable(value, name)
        self.tracked[name] = value
        if self._pending is not None:
            self._restore_initially(value)

    def __delattr__(self, name: str) -> None:
        object.__delattr__(self, name)
        self.tracked.pop(name, None)

    def __getattr__(self, name: str) -> Any:
        if name != "save_counter":
            raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}", name=name)
        graph = ObjectGraph(self).graph or get_default_graph()
        with graph.as_default(), graph.control_dependencies(None), graph.device("/cpu:0"):
            make: Any = Variable  # its metaclass takes the arguments
            counter = make(
                to_array(0, dtypes.int64),
                trainable=False,
                name="save_counter",
                collections=[],
            )
            self._increment = counter.assign_add(to_array(1, dtypes.int64))
        self.save_counter = counter
        return counter

    # ---------------------------------------------------------------------------- saving

    def write(self, file_prefix: str, session: Any = None) -> str:
        """Save under a prefix, without counting or recording the checkpoint as the latest.

        Args:
          file_prefix: prefix of the checkpoint's files; its directory is created if it is missing.
          session: the default session by default.
        Returns: the prefix.
        Raises: FailedPreconditionError: a variable has no value, or there is no session.
        """
        objects = ObjectGraph(self)
        selected = session_of(objects.graph, session, "Checkpoint.write()")
        saver = self._saver_of(objects, selected.graph)
        saver.save(selected, paths.as_path(file_prefix), write_meta_graph=False, write_state=False)
        return paths.as_path(file_prefix)

    def save(self, file_prefix: str, session: Any = None) -> str:
        """Increment `save_counter`, save under "<prefix>-<counter>", and record it as the latest.

        Args:
          file_prefix: prefix of the checkpoint's files.
          session: the default session by default.
        Returns: the prefix with its number.
        Raises: as `write`.
        """
        number = self.next_number(session)
        prefix = self.write(f"{paths.as_path(file_prefix)}-{number}", session)
        directory, _ = paths.split_prefix(prefix)
        update_checkpoint_state(directory, prefix, [prefix], save_relative_paths=True)
        return prefix

    def next_number(self, session: Any = None) -> int:
        """Increment `save_counter` in a session; return the new value."""
        counter = self.save_counter
        selected = session_of(counter.graph, session, "Checkpoint.save()")
        try:
            return int(selected.run(self._increment))
        except errors.FailedPreconditionError:
            selected.run(counter.initializer)
            return int(selected.run(self._increment))

    def _saver_of(self, object_graph: ObjectGraph, graph: Any) -> Saver:
        """Return the saver of the current objects; create a new one if they have changed."""
        message = object_graph.message().SerializeToString(deterministic=True)
        key = (message, graph, [id(result.value) for result in object_graph.objects])
        if self._saver is None or key != self._saver_key:
            with graph.as_default():
                saved = object_graph.saved()
                saved[GRAPH_KEY] = StringSaveable(partial(constant, message), GRAPH_KEY)
                self._saver = Saver(saved, max_to_keep=0, name="save")
            self._saver_key = key
        return self._saver

    # ------------------------------------------------------------------------- restoring

    def restore(self, save_path: str | None) -> LoadStatus:
        """Match the program's objects with a checkpoint's; the returned status restores them.

        A variable that becomes an attribute later starts with its value in the checkpoint.

        Args:
          save_path: a result of `save` or `latest_checkpoint`, or of a `Saver` (variables are then
            matched by their own names); None if there is no checkpoint yet.
        Returns: a status. `run_restore_ops(session)` restores; `initialize_or_restore(session)`
          also initializes variables that the checkpoint lacks, or all if there is no checkpoint.
          `assert_consumed()` checks that program and checkpoint have the same objects,
          `assert_existing_objects_matched()` that the checkpoint has all objects of the program,
          `assert_nontrivial_match()` that it has at least one. A failed check is an AssertionError.
        Raises: NotFoundError, DataLossError: the checkpoint does not exist, or is damaged.
        """
        if save_path is None:
            self.save_counter  # noqa: B018 - makes it, so that it is initialized with the others
            return InitializationStatus(self)
        prefix = paths.as_path(save_path)
        reader = CheckpointReader(prefix)
        message = read_object_graph(reader)
        self.save_counter  # noqa: B018
        if message is None:
            return NameBasedStatus(prefix, self)
        self._pending = (prefix, message)
        for key, state in Matches(self, message).states.items():
            state.deserialize(reader.get_tensor(key))
        return CheckpointLoadStatus(prefix, lambda: Matches(self, message))

    def _restore_initially(self, value: Any) -> None:
        """Make new variables start with their values in the restored checkpoint."""
        assert self._pending is not None
        prefix, message = self._pending
        new = {id(result.value) for result in ObjectGraph(value).objects}
        matches = Matches(self, message)
        for key, variable in matches.values.items():
            if id(variable) in new and isinstance(variable, Variable):
                read_initially(prefix, key, variable)
        for key, state in matches.states.items():
            if id(state) in new:
                state.deserialize(CheckpointReader(prefix).get_tensor(key))
