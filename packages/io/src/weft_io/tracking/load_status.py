"""Status objects returned by `Checkpoint.restore`: checks of the match, and restore nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from weft_graph.ir import thread_stacks
from weft_graph.variables.reference import variables_initializer
from weft_io.checkpoint.reader import CheckpointReader
from weft_io.saving.saver import Saver
from weft_io.tracking.matching import Matches
from weft_io.tracking.objects import COUNTER, ObjectGraph
from weft_tensor import errors


class CheckpointMatchError(errors.NotFoundError, AssertionError):
    """Error for a checkpoint and a program with different variables.

    The class is also an AssertionError, as in TensorFlow.
    """


def session_of(graph: Any, session: Any, call: str) -> Any:
    """Return a session that runs a graph: `session`, or the default one."""
    selected = session or thread_stacks.get_default_session()
    return thread_stacks.session_for(
        selected.graph if graph is None and selected else graph, selected, call
    )


class LoadStatus(Protocol):
    """The interface of all statuses."""

    def assert_consumed(self) -> LoadStatus:
        """Check that program and checkpoint have the same objects."""
        ...

    def assert_existing_objects_matched(self) -> LoadStatus:
        """Check that the checkpoint has all variables of the program."""
        ...

    def assert_nontrivial_match(self) -> LoadStatus:
        """Check that the checkpoint has at least one object of the program."""
        ...

    def expect_partial(self) -> LoadStatus:
        """Accept that parts of the checkpoint are not used."""
        ...

    def run_restore_ops(self, session: Any = None) -> None:
        """Restore the variables from the checkpoint."""
        ...

    def initialize_or_restore(self, session: Any = None) -> None:
        """Restore the variables, and initialize all others."""
        ...


class CheckpointLoadStatus:
    """The status for an object-based checkpoint.

    Args:
      match: function that matches the current objects with the checkpoint's.
    """

    def __init__(self, prefix: str, match: Callable[[], Matches]) -> None:
        self._prefix = prefix
        self._match = match
        self._saver: Saver | None = None
        self._restored: dict[str, int] = {}

    def assert_consumed(self) -> CheckpointLoadStatus:
        """Check that program and checkpoint have the same objects.

        Raises: CheckpointMatchError: the program or the checkpoint has an object that the other
          lacks.
        """
        result = self._match()
        _check("the program does not use what the checkpoint has", self._prefix, result.unused)
        return self.assert_existing_objects_matched()

    def assert_existing_objects_matched(self) -> CheckpointLoadStatus:
        """Check that the checkpoint has all variables of the program.

        Raises: CheckpointMatchError: it lacks a variable.
        """
        missing = self._match().missing
        _check("the checkpoint lacks variables of the program", self._prefix, missing)
        return self

    def assert_nontrivial_match(self) -> CheckpointLoadStatus:
        """Check that the checkpoint has at least one object of the program.

        Raises: CheckpointMatchError: it has none.
        """
        if self._match().trivial:
            raise CheckpointMatchError(f"none of the program's objects is in {self._prefix}")
        return self

    def expect_partial(self) -> CheckpointLoadStatus:
        """Accept that parts of the checkpoint are not used; nothing complains of that anyhow."""
        return self

    def run_restore_ops(self, session: Any = None) -> None:
        """Restore the variables from the checkpoint.

        Args:
          session: the default session by default.
        """
        result = self._match()
        if not result.values:
            return
        saver = self._saver_of(result.values)
        saver.restore(session_of(_graph(result.values), session, "run_restore_ops()"), self._prefix)

    def initialize_or_restore(self, session: Any = None) -> None:
        """Restore the variables from the checkpoint, and initialize the missing ones.

        Args:
          session: the default session by default.
        """
        lacking = self._match().lacking
        if lacking:
            selected = session_of(lacking[0].graph, session, "initialize_or_restore()")
            selected.run(variables_initializer(lacking))
        self.run_restore_ops(session)

    def _saver_of(self, values: Mapping[str, Any]) -> Saver:
        key = {name: id(value) for name, value in values.items()}
        if self._saver is None or key != self._restored:
            with _graph(values).as_default():
                self._saver = Saver(dict(values), max_to_keep=0, name="restore")
            self._restored = key
        return self._saver


class NameBasedStatus(CheckpointLoadStatus):
    """The status for a checkpoint of a `Saver`, whose variables are matched by their own names."""

    def __init__(self, prefix: str, root: Any) -> None:
        super().__init__(prefix, lambda: NameMatches(root, CheckpointReader(prefix)))  # type: ignore[arg-type,return-value] # has the same attributes


class NameMatches:
    """Matches by the names of variables, with the attributes of `Matches`."""

    def __init__(self, root: Any, reader: CheckpointReader) -> None:
        stored_names = set(reader.get_variable_to_shape_map())
        saved = ObjectGraph(root).saved()
        counter = next((v for key, v in saved.items() if key.startswith(f"{COUNTER}/")), None)
        values_by_name = {_object_name(value): value for value in saved.values()}
        self.values = {
            name: value for name, value in values_by_name.items() if name in stored_names
        }
        missing = sorted(values_by_name.keys() - stored_names)
        self.lacking = [values_by_name[name] for name in missing]
        self.missing = [name for name in missing if values_by_name[name] is not counter]
        self.unused = sorted(stored_names - values_by_name.keys())
        self.trivial = not self.values


class InitializationStatus:
    """The status without a checkpoint, which only initializes variables."""

    def __init__(self, root: Any) -> None:
        self._root = root

    def assert_consumed(self) -> InitializationStatus:
        """Raise CheckpointMatchError, because there is no checkpoint."""
        raise CheckpointMatchError("restore() was called without a checkpoint (save_path=None)")

    assert_existing_objects_matched = assert_nontrivial_match = assert_consumed

    def expect_partial(self) -> InitializationStatus:
        """Do nothing, because there is no checkpoint."""
        return self

    def run_restore_ops(self, session: Any = None) -> None:
        """Raise CheckpointMatchError, because there is no checkpoint."""
        self.assert_consumed()

    def initialize_or_restore(self, session: Any = None) -> None:
        """Initialize all variables.

        Args:
          session: the default session by default.
        """
        objects = ObjectGraph(self._root)
        variables = [v for v in objects.saved().values() if hasattr(v, "initializer")]
        if variables:
            selected = session_of(objects.graph, session, "initialize_or_restore()")
            selected.run(variables_initializer(variables))


def _object_name(value: Any) -> str:
    name: str = value.op.name if hasattr(value, "initializer") else value.name
    return name


def _graph(values: Mapping[str, Any]) -> Any:
    value = next(iter(values.values()))
    return value.graph if hasattr(value, "graph") else value.op.graph


def _check(label: str, prefix: str, names: Sequence[str]) -> None:
    if names:
        others_text = f" and {len(names) - 10} more" if len(names) > 10 else ""
        raise CheckpointMatchError(f"{prefix}: {label}: {', '.join(names[:10])}{others_text}")
