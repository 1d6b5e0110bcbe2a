"""Saver: the nodes that save and restore variables, and the management of checkpoints."""

from __future__ import annotations

from weft_graph import proto

__all__ = ["Saver"]

import logging
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from weft_exec import progress
from weft_exec.tracing.consumers import CHECKPOINT, record_block
from weft_graph.ir.collections_keys import GraphKeys
from weft_graph.ir.default_graph import get_default_graph
from weft_graph.messages.collection_items import convert_each, register_collection
from weft_io.arguments import to_list
from weft_io.checkpoint import held_tensors, state
from weft_io.checkpoint.reader import CheckpointNotFoundError
from weft_io.checkpoint.writer import write_checkpoint
from weft_io.files import paths
from weft_io.files.message_files import message_parts
from weft_io.meta_graphs.export import export_meta_graph, rename_saver
from weft_io.saving import background, retention, saver_builder
from weft_io.saving.object_names import names_of_objects
from weft_io.saving.saveables import all_saveable_objects, by_name
from weft_tensor import errors
from weft_tensor.arguments import INT32_MAX, check_integer, check_number, check_text
from weft_tensor.os_errors import convert_os_errors

if TYPE_CHECKING:
    from weft_graph import proto

_log = logging.getLogger("weft")

_WRITTEN_VERSION = 2


class _Save(NamedTuple):
    """The files that one save writes; None for files that were not requested."""

    prefix: str
    directory: str
    list_name: str | None
    graph_path: str | None
    strip_default_attrs: bool


class Saver:
    """Saves and restores variables.

    Its nodes are added to the default graph at construction, so it can be used on a finalized
    graph. A checkpoint replaces an older one of the same name atomically: after a crash, either the
    old or the new one is complete. Restoring verifies everything before it assigns anything.

    `save` of an asynchronous saver returns as soon as the saver holds references to the values. A
    thread writes them while training continues; updates of variables that are not written yet copy
    them first. One checkpoint is written at a time: the next `save`, `restore`, `close` and the end
    of the program wait for it. A write error is logged immediately, and raised by the next call of
    `save`, `restore`, `close` or `wait_until_finished`.

    Args:
      var_list: variables, or a dict from names in the checkpoint to variables; all variables and
        saveable objects of the graph by default.
      reshape: reshape restored tensors to the shapes of their variables, if the number of elements
        matches.
      sharded: write one file per device.
      max_to_keep: number of the latest checkpoints to keep; None or 0 keeps all.
      keep_checkpoint_every_n_hours: also keep one of the older checkpoints per this number of
        hours.
      name: name scope of the nodes; "save" by default.
      restore_sequentially: restore one variable after the other.
      saver_def: a `SaverDef` whose nodes are already in the graph, instead of new nodes.
      builder: creates the nodes; a `SaverBuilder` by default.
      defer_build: add the nodes in `build()`, or at the first use.
      allow_empty: accept a graph without variables; saving and restoring then do nothing.
      write_version: accepted for compatibility; there is one format.
      pad_step_number: write steps with eight digits, so that names sort.
      save_relative_paths: name checkpoints relative to their directory in the state file, so that
        it can be moved.
      filename: the default of the node that is fed the path.
      asynchronous: write checkpoints in the background. TensorFlow has no such argument.
      resumable: also save the positions of the graph's random ops in their streams and of its
        iterators in their datasets, so that restored training continues with the same numbers and
        examples. Random ops in function bodies and nodes that are added to the graph later are not
        included. TensorFlow has no such argument.
    Raises:
      InvalidArgumentError: there is nothing to save, or a name occurs twice.
      InvalidTypeError: something in `var_list` is not a variable, or a setting is of a wrong type.

    Examples:
      >>> step = wf.Variable(7, name="step")
      >>> saver = wf.train.Saver()
      >>> with wf.Session() as session:
      ...     session.run(step.initializer)
      ...     prefix = saver.save(session, "./model", global_step=step)
      >>> prefix
      './model-7'
      >>> with wf.Session() as session:
      ...     saver.restore(session, prefix)
      ...     session.run(step)
      np.int32(7)
    """

    def __init__(
        self,
        var_list: Any = None,
        reshape: bool = False,
        sharded: bool = False,
        max_to_keep: int | None = 5,
        keep_checkpoint_every_n_hours: float = 10000.0,
        name: str | None = None,
        restore_sequentially: bool = False,
        saver_def: Any = None,
        builder: Any = None,
        defer_build: bool = False,
        allow_empty: bool = False,
        write_version: int = _WRITTEN_VERSION,
        pad_step_number: bool = False,
        save_relative_paths: bool = False,
        filename: str | None = None,
        asynchronous: bool = False,
        resumable: bool = False,
    ) -> None:
        if defer_build and var_list is not None:
            raise errors.InvalidArgumentError(
                "with defer_build, var_list must be None: it is determined when the saver is built"
            )
        if max_to_keep is not None:
            max_to_keep = check_integer(max_to_keep, "max_to_keep", 0, INT32_MAX)
        keep_checkpoint_every_n_hours = check_number(
            keep_checkpoint_every_n_hours, "keep_checkpoint_every_n_hours", 0
        )
        check_integer(write_version, "write_version", 0, _WRITTEN_VERSION)
        if name is not None:
            check_text(name, "name")
        if filename is not None:
            check_text(filename, "filename")
        if not (builder is None or hasattr(builder, "build")):
            raise errors.InvalidTypeError(f"builder must be a SaverBuilder, got {builder!r}")
        self._var_list = var_list
        self._reshape = reshape
        self._sharded = sharded
        self._max_to_keep = max_to_keep
        self._every_n_hours = keep_checkpoint_every_n_hours
        self._name = name
        self._restore_sequentially = restore_sequentially
        self._builder = builder
        self._allow_empty = allow_empty
        self._write_version = write_version
        self._pad_step_number = pad_step_number
        self._save_relative_paths = save_relative_paths
        self._filename = filename
        self._asynchronous = asynchronous
        self._resumable = resumable
        self._pending_hold: Any = None  # the output of the node that holds the values to save
        self._job: background.Job | None = None
        self._graph_cache: tuple[Any, Sequence[bytes] | None] = (None, None)
        self._save_lock = threading.Lock()  # serializes the start of asynchronous saves
        self._is_empty = False
        self._by_name = False  # whether it replaces a saver whose names a checkpoint lacks
        self._lock = threading.Lock()  # of the list of checkpoints and its file
        self.saver_def: Any = saver_def
        if saver_def is not None:
            self._check_saver_def()
            self._max_to_keep = check_integer(saver_def.max_to_keep, "max_to_keep of saver_def", 0)
            self._every_n_hours = saver_def.keep_checkpoint_every_n_hours
            self._write_version = saver_def.version
            self._add_hold()
        elif not defer_build:
            self.build()
        self._retention = retention.Retention(
            self._max_to_keep, self._every_n_hours, lambda: time.time()
        )

    # ------------------------------------------------------------- the nodes

    def build(self) -> None:
        """Add the nodes to the default graph, unless they exist.

        Raises: InvalidArgumentError: there is nothing to save.
        """
        if self.saver_def is not None or self._is_empty:
            return
        saveable_objects = self._var_list
        if saveable_objects is None:
            saveable_objects = all_saveable_objects(get_default_graph())
        if self._resumable:
            saveable_objects = _add_run_state(saveable_objects)
        if not saveable_objects:
            if not self._allow_empty:
                raise errors.InvalidArgumentError(
                    "there are no variables to save; create the Saver after them, or pass "
                    "allow_empty=True"
                )
            self._is_empty = True
            return
        builder = self._builder or saver_builder.SaverBuilder(self._write_version)
        self.saver_def = builder.build(
            saveable_objects,
            reshape=self._reshape,
            sharded=self._sharded,
            max_to_keep=self._max_to_keep or 0,
            keep_checkpoint_every_n_hours=self._every_n_hours,
            name=self._name,
            restore_sequentially=self._restore_sequentially,
            filename=self._filename or "model",
        )
        self._check_saver_def()
        self._add_hold()

    def _add_hold(self) -> None:
        if self._asynchronous:
            self._pending_hold = saver_builder.add_hold(get_default_graph(), self.saver_def)

    def _check_saver_def(self) -> None:
        _check_saver_def(self.saver_def)
        for field in ("save_tensor_name", "restore_op_name"):
            if not getattr(self.saver_def, field):
                raise errors.InvalidArgumentError(f"saver_def must have a {field}")

    def as_saver_def(self) -> proto.SaverDef:
        """Return the names of the nodes, and the settings, as a message."""
        self.build()
        message: proto.SaverDef = self.saver_def
        return message

    def to_proto(self, export_scope: str | None = None) -> proto.SaverDef | None:
        """Return `as_saver_def()` with names relative to a name scope; None if outside of it."""
        message = self.as_saver_def()
        if export_scope is not None:
            check_text(export_scope, "export_scope")
        if not export_scope:
            return message
        prefix = export_scope.rstrip("/") + "/"
        return rename_saver(message, lambda name: name.removeprefix(prefix), prefix)

    @staticmethod
    def from_proto(saver_def: proto.SaverDef, import_scope: str | None = None) -> Saver:
        """Return a saver that uses nodes of the default graph, possibly under a name scope."""
        _check_saver_def(saver_def)
        if import_scope:
            prefix = import_scope.rstrip("/") + "/"
            saver_def = rename_saver(saver_def, lambda name: prefix + name) or saver_def
        return Saver(saver_def=saver_def)

    # ------------------------------------------------------------- the list of checkpoints

    @property
    def last_checkpoints(self) -> list[str]:
        """The prefixes of the kept checkpoints, oldest first."""
        return [prefix for prefix, _ in self._retention.last]

    def set_last_checkpoints(self, last_checkpoints: Sequence[str]) -> None:
        """Replace the list of kept checkpoints, oldest first; their write time becomes now."""
        paths = to_list(last_checkpoints, "last_checkpoints")
        self.set_last_checkpoints_with_time([(path, time.time()) for path in paths])

    def set_last_checkpoints_with_time(
        self, last_checkpoints_with_time: Sequence[tuple[str, float]]
    ) -> None:
        """Replace the list of kept checkpoints, oldest first.

        Args:
          last_checkpoints_with_time: (prefix, seconds since the epoch) of each.
        """
        pairs = to_list(last_checkpoints_with_time, "last_checkpoints_with_time")
        for pair in pairs:
            if not (isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[0], str)):
                raise errors.InvalidTypeError(f"(prefix, time) pairs are required, got {pair!r}")
            check_number(pair[1], "the time of a checkpoint")
        with self._lock:  # a checkpoint that is being written is added to the old list first
            self._retention.last = pairs

    def recover_last_checkpoints(self, checkpoint_paths: Sequence[str]) -> None:
        """Replace the list by these checkpoints, except those that do not exist."""
        paths = to_list(checkpoint_paths, "checkpoint_paths")
        existing = [path for path in paths if state.checkpoint_exists(path)]
        times = state.get_checkpoint_mtimes(existing)
        self.set_last_checkpoints_with_time(list(zip(existing, times, strict=True)))

    # ------------------------------------------------------------- saving

    def save(
        self,
        sess: Any,
        save_path: str,
        global_step: Any = None,
        latest_filename: str | None = None,
        meta_graph_suffix: str = "meta",
        write_meta_graph: bool = True,
        write_state: bool = True,
        strip_default_attrs: bool = False,
        save_debug_info: bool = False,
    ) -> str | None:
        """Save the variables.

        An asynchronous saver returns while the checkpoint is still being written, and raises the
        error of the previous one. It makes the path absolute, because the program may change its
        working directory.

        Args:
          sess: a session over the graph with the saver's nodes.
          save_path: prefix of the checkpoint's files; its directory is created if necessary.
          global_step: number, or a tensor or variable with one, appended as "-<step>".
          latest_filename: name of the state file; "checkpoint" by default.
          meta_graph_suffix: suffix of the file with the graph.
          write_meta_graph: write that file too.
          write_state: record the checkpoint in the state file, and remove those beyond
            `max_to_keep`.
          strip_default_attrs: omit attributes with default values from the graph's file.
          save_debug_info: accepted and ignored.
        Returns: the prefix to restore from; None if there is nothing to save except the graph.
        Raises:
          InvalidTypeError, InvalidArgumentError: an argument is invalid, for instance a
            `global_step` that is not an integer.
          FailedPreconditionError: a variable has no value.
          ResourceExhaustedError: the disk is full; the previous checkpoint still exists.
          PermissionDeniedError and others: the operating system reports an error.
        """
        _check_session(sess)
        check_text(meta_graph_suffix, "meta_graph_suffix")
        if latest_filename is not None:
            check_text(latest_filename, "latest_filename")
        self.build()
        prefix = self._prefix(sess, paths.as_path(save_path), global_step)
        if self._asynchronous:
            prefix = paths.absolute(prefix)
        directory, _ = paths.split_prefix(prefix)
        state.state_path(directory, latest_filename)
        save = _Save(
            prefix,
            directory,
            (latest_filename or state.STATE_FILE) if write_state else None,
            f"{prefix}.{meta_graph_suffix}" if write_meta_graph else None,
            strip_default_attrs,
        )
        if self._is_empty:
            self._write_graph(save, self._current_graph_file(sess.graph, save))
            return None
        if self._asynchronous:
            return self._start(sess, save)
        return self._carry_out(
            save,
            lambda: self._run(sess, prefix),
            lambda: self._current_graph_file(sess.graph, save),
        )

    def _prefix(self, sess: Any, save_path: str, global_step: Any) -> str:
        if global_step is None:
            return save_path
        if hasattr(global_step, "graph") or isinstance(global_step, str):
            global_step = sess.run(global_step)
        step = _parse_step_count(global_step)
        return f"{save_path}-{step:08d}" if self._pad_step_number else f"{save_path}-{step}"

    def _run(self, sess: Any, prefix: str) -> str:
        feeds = {self.saver_def.filename_tensor_name: os.fsencode(prefix)}
        return os.fsdecode(sess.run(self.saver_def.save_tensor_name, feeds))

    def _start(self, sess: Any, save: _Save) -> str:
        """Hold the values, and write them in a thread."""
        with self._save_lock:
            self.wait_until_finished()
            items = held_tensors.take(sess.run(self._pending_hold).decode())
            graph_file = self._graph_file_later(sess.graph, save)

            def write() -> str:
                write_checkpoint(save.prefix, items)
                return save.prefix

            self._job = background.Job(
                f"the checkpoint {save.prefix}",
                lambda: self._carry_out(save, write, graph_file),
                getattr(sess, "fail_next_step", None),
            )
        return save.prefix

    def _graph_file_later(self, graph: Any, save: _Save) -> Callable[[], Sequence[bytes] | None]:
        """Return a function that returns the graph's file, for use while the program continues."""
        if graph.finalized or save.graph_path is None:
            return lambda: self._cached_graph_file(graph, save)
        data = self._cached_graph_file(graph, save)  # now: nodes may be added meanwhile
        return lambda: data

    def wait_until_finished(self) -> None:
        """Wait until an asynchronous saver has written its checkpoint.

        Raises: the error of the write, once.
        """
        job = self._job
        if job is None:
            return
        job.wait()
        if self._job is job:
            self._job = None
        job.result()

    def close(self) -> None:
        """Wait for the last checkpoint, like `wait_until_finished`; call it last."""
        self.wait_until_finished()

    def _carry_out(
        self,
        save: _Save,
        write: Callable[[], str],
        graph_file: Callable[[], Sequence[bytes] | None],
    ) -> str:
        """Write the tensors, the list of checkpoints, and the graph."""
        with record_block(CHECKPOINT, "save", "_Checkpoint"):
            if save.list_name is None:
                written = write()
            else:
                with self._lock:
                    written = self._write_and_record(save, save.list_name, write)
            if save.graph_path is not None:
                self._write_graph(save, graph_file())
            return written

    def _write_graph(self, save: _Save, parts: Sequence[bytes] | None) -> None:
        if save.graph_path is not None and parts is not None:
            with convert_os_errors("writing", save.graph_path):
                paths.write_atomically(save.graph_path, *parts)

    def _write_and_record(self, save: _Save, list_name: str, write: Callable[[], str]) -> str:
        prefix, directory = save.prefix, save.directory
        with convert_os_errors("saving", prefix):
            paths.storage_of(directory).make_directory(directory)
            self._retention.add_existing(retention.recover(directory, list_name))
            note = retention.RetentionJournal(directory, list_name, prefix)
        snapshot = self._retention.snapshot()
        try:
            written = write()
            expired = self._retention.record(written)
            with convert_os_errors("saving", prefix):
                note.removes(expired)
            state.update_checkpoint_state(
                directory,
                written,
                self.last_checkpoints,
                list_name,
                save_relative_paths=self._save_relative_paths,
            )
        except BaseException:  # because the list must match the existing checkpoints
            self._retention.rollback(snapshot)
            self._retention.add_existing([prefix])  # if it exists
            note.give_up()
            raise
        try:
            for path in expired:
                state.remove_checkpoint(path)
        except BaseException:  # because the next save must be possible after any error
            note.abandon()
            raise
        with convert_os_errors("saving", prefix):
            note.done()
        return written

    def _graph_file(self, graph: Any, save: _Save) -> Sequence[bytes] | None:
        strip = save.strip_default_attrs
        try:
            return message_parts(self.export_meta_graph(strip_default_attrs=strip, graph=graph))
        except (errors.InvalidArgumentError, errors.UnimplementedError) as cause:
            _log.warning(
                "the checkpoint is complete, but writing %s failed: %s", save.graph_path, cause
            )
            return None

    def _current_graph_file(self, graph: Any, save: _Save) -> Sequence[bytes] | None:
        """Return the graph's file, cached if the graph is finalized and thus cannot change."""
        make = self._cached_graph_file if graph.finalized else self._graph_file
        return make(graph, save)

    def _cached_graph_file(self, graph: Any, save: _Save) -> Sequence[bytes] | None:
        """Return the graph's file, cached unless nodes were added since the last save."""
        keys = graph.get_all_collection_keys()
        collections = [(key, [id(item) for item in graph.get_collection(key)]) for key in keys]
        cache_key = (graph, graph.version, save.strip_default_attrs, collections)
        if self._graph_cache[0] != cache_key:
            self._graph_cache = (cache_key, self._graph_file(graph, save))
        return self._graph_cache[1]

    def export_meta_graph(
        self,
        filename: str | None = None,
        collection_list: Sequence[str] | None = None,
        as_text: bool = False,
        export_scope: str | None = None,
        clear_devices: bool = False,
        clear_extraneous_savers: bool = False,
        strip_default_attrs: bool = False,
        save_debug_info: bool = False,
        graph: Any = None,
    ) -> proto.MetaGraphDef:
        """Export graph and saver as a `MetaGraphDef`; for arguments see `export_meta_graph`."""
        return export_meta_graph(
            filename,
            saver_def=self.as_saver_def(),
            collection_list=collection_list,
            as_text=as_text,
            graph=graph,
            export_scope=export_scope,
            clear_devices=clear_devices,
            clear_extraneous_savers=clear_extraneous_savers,
            strip_default_attrs=strip_default_attrs,
            save_debug_info=save_debug_info,
        )

    # ------------------------------------------------------------- restoring

    def restore(self, sess: Any, save_path: str) -> None:
        """Restore the variables from a checkpoint; they need not be initialized.

        Args:
          sess: a session over the graph with the saver's nodes.
          save_path: a result of `save` or `latest_checkpoint`.
        Raises:
          NotFoundError: the checkpoint does not exist, or lacks variables or files; all missing
            variables are named.
          InvalidArgumentError: a variable has another type or shape.
          DataLossError: the checkpoint is damaged. No variable was changed. Also the error of a
            pending `save` of an asynchronous saver: `restore` waits for it first.
        """
        if save_path is None:
            raise errors.InvalidArgumentError(
                "save_path must be the path of a checkpoint, got None"
            )
        _check_session(sess)
        self.build()
        if self._is_empty:
            return
        self.wait_until_finished()
        prefix = paths.as_path(save_path)
        if not state.checkpoint_exists(prefix):
            raise CheckpointNotFoundError(f"there is no valid checkpoint at {prefix}")
        feeds = {self.saver_def.filename_tensor_name: os.fsencode(prefix)}
        try:
            with record_block(CHECKPOINT, "restore", "_Checkpoint"):
                sess.run(self.saver_def.restore_op_name, feeds)
        except errors.NotFoundError:
            renamed = self._object_saver(sess.graph, prefix)
            if renamed is None:
                raise
            _log.warning("%s is object-based; its variables are matched by their own names", prefix)
            renamed.restore(sess, prefix)
        else:
            progress.log.info("Restored parameters from %s", prefix)

    def _object_saver(self, graph: Any, prefix: str) -> Saver | None:
        """Return a saver of the variables under their names in an object-based checkpoint.

        None if the checkpoint is not object-based, or lacks one of the variables.
        """
        if graph.finalized or self._by_name:
            return None
        names = names_of_objects(prefix)
        saveable_objects = self._var_list
        if saveable_objects is None:
            saveable_objects = all_saveable_objects(graph)
        saveables = by_name(saveable_objects)
        if not saveables.keys() <= names.keys():
            return None
        with graph.as_default():
            saver = Saver({names[name]: item for name, item in saveables.items()}, max_to_keep=0)
        saver._by_name = True
        return saver


def _parse_step_count(step: Any) -> int:
    """Convert a step number, which may be a float, to an integer."""
    value = np.asarray(step)
    if value.shape == () and value.dtype.kind == "f" and float(value).is_integer():
        return int(value)
    if value.shape != () or value.dtype.kind not in "iuO":
        raise errors.InvalidTypeError(f"global_step must be an integer, got {step!r}")
    return check_integer(value.item(), "global_step")


def _check_saver_def(saver_def: Any) -> None:
    if not isinstance(saver_def, proto.SaverDef):
        raise errors.InvalidTypeError(f"saver_def must be a SaverDef, got {saver_def!r}")


def _add_run_state(result: Any) -> Any:
    """Add the state that makes a saver resumable to its list."""
    from weft_io.saving.resuming import state_of_run

    state = state_of_run(get_default_graph())
    if isinstance(result, Mapping):
        return {**result, **{item.name: item for item in state}}
    return [*result, *state]


def _check_session(sess: Any) -> None:
    if not (hasattr(sess, "run") and hasattr(sess, "graph")):
        raise errors.InvalidTypeError(f"a session is required, got {sess!r}")


register_collection(GraphKeys.SAVERS, "SaverDef", convert_each(Saver.from_proto))
