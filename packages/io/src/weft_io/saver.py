"""Saver: the nodes that save and restore a graph's variables, and the checkpoints they leave."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from weft_graph import stacks
from weft_io import retention, saver_builder
from weft_io.checkpoint import files, state
from weft_io.checkpoint.reader import CheckpointNotFoundError
from weft_io.saveables import all_saveable_objects
from weft_tensor import errors

if TYPE_CHECKING:
    from weft_graph import proto

_log = logging.getLogger("weft")

_WRITTEN_VERSION = 2


class Saver:
    """Saves and restores variables.

    Its nodes are added to the default graph when it is made, so that it works on a finalized graph.
    A checkpoint replaces the one that has its name at once and wholly: a crash at any moment leaves
    the old one or the new. Restoring verifies everything first and then assigns everything.

    Args:
      var_list: variables, or a dict from names in the checkpoint to variables; all variables and
        saveable objects of the graph by default.
      reshape: give restored tensors the shapes of their variables, where the number of elements
        is right.
      sharded: one file per device.
      max_to_keep: how many of the latest checkpoints are kept; None or 0 keeps all.
      keep_checkpoint_every_n_hours: of those that would be removed, keep one per so many hours.
      name: name scope of the nodes; "save" by default.
      restore_sequentially: restore one variable after the other.
      saver_def: a `SaverDef` whose nodes are in the graph already, instead of new nodes.
      builder: makes the nodes; a `SaverBuilder` by default.
      defer_build: wait for `build()`, or the first use.
      allow_empty: a graph without variables is fine: saving and restoring then do nothing.
      write_version: accepted for compatibility; there is one format.
      pad_step_number: write steps with eight digits, so that names sort.
      save_relative_paths: name checkpoints relative to their directory in the state file, so that
        it can be moved.
      filename: the default of the node that is fed the path.
    Raises:
      InvalidArgumentError: there is nothing to save, or a name occurs twice.
      InvalidTypeError: something in `var_list` is no variable.
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
    ) -> None:
        if defer_build and var_list is not None:
            raise errors.InvalidArgumentError(
                "with defer_build, var_list must be None: it is found out when the saver is built"
            )
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
        self._is_empty = False
        self._lock = threading.Lock()  # of the list of checkpoints and its file
        self.saver_def: Any = saver_def
        if saver_def is not None:
            self._check_saver_def()
            self._max_to_keep = saver_def.max_to_keep
            self._every_n_hours = saver_def.keep_checkpoint_every_n_hours
            self._write_version = saver_def.version
        elif not defer_build:
            self.build()
        self._retention = retention.Retention(
            self._max_to_keep, self._every_n_hours, lambda: time.time()
        )

    # ------------------------------------------------------------- the nodes

    def build(self) -> None:
        """Add the nodes to the default graph, if that was not done before.

        Raises: InvalidArgumentError: there is nothing to save.
        """
        if self.saver_def is not None or self._is_empty:
            return
        found = self._var_list
        if found is None:
            found = all_saveable_objects(stacks.get_default_graph())
        if not found:
            if not self._allow_empty:
                raise errors.InvalidArgumentError(
                    "there are no variables to save; make the Saver after them, or pass "
                    "allow_empty=True"
                )
            self._is_empty = True
            return
        builder = self._builder or saver_builder.SaverBuilder(self._write_version)
        self.saver_def = builder.build(
            found,
            reshape=self._reshape,
            sharded=self._sharded,
            max_to_keep=self._max_to_keep or 0,
            keep_checkpoint_every_n_hours=self._every_n_hours,
            name=self._name,
            restore_sequentially=self._restore_sequentially,
            filename=self._filename or "model",
        )
        self._check_saver_def()

    def _check_saver_def(self) -> None:
        from weft_graph import proto

        if not isinstance(self.saver_def, proto.SaverDef):
            raise errors.InvalidTypeError(f"saver_def must be a SaverDef, got {self.saver_def!r}")
        for field in ("save_tensor_name", "restore_op_name"):
            if not getattr(self.saver_def, field):
                raise errors.InvalidArgumentError(f"saver_def must have a {field}")

    def as_saver_def(self) -> proto.SaverDef:
        """The names of its nodes, and its settings, as a message."""
        self.build()
        message: proto.SaverDef = self.saver_def
        return message

    def to_proto(self, export_scope: str | None = None) -> proto.SaverDef | None:
        """The same, with names relative to a name scope; None when it is outside."""
        message = self.as_saver_def()
        if not export_scope:
            return message
        prefix = export_scope.rstrip("/") + "/"
        return saver_builder.renamed(message, lambda name: name.removeprefix(prefix), prefix)

    @staticmethod
    def from_proto(saver_def: proto.SaverDef, import_scope: str | None = None) -> Saver:
        """A saver over nodes that are in the graph, possibly under a name scope."""
        if import_scope:
            prefix = import_scope.rstrip("/") + "/"
            saver_def = saver_builder.renamed(saver_def, lambda name: prefix + name) or saver_def
        return Saver(saver_def=saver_def)

    # ------------------------------------------------------------- the list of checkpoints

    @property
    def last_checkpoints(self) -> list[str]:
        """Prefixes of the checkpoints that are kept, oldest first."""
        return [prefix for prefix, _ in self._retention.last]

    def set_last_checkpoints(self, last_checkpoints: Sequence[str]) -> None:
        """Replace the list, as of now; oldest first."""
        self.set_last_checkpoints_with_time([(path, time.time()) for path in last_checkpoints])

    def set_last_checkpoints_with_time(
        self, last_checkpoints_with_time: Sequence[tuple[str, float]]
    ) -> None:
        """Replace the list by (prefix, seconds since the epoch) pairs; oldest first."""
        pairs = list(last_checkpoints_with_time)
        if not all(isinstance(pair, tuple) and len(pair) == 2 for pair in pairs):
            raise errors.InvalidTypeError(f"(prefix, time) pairs are required, got {pairs!r}")
        self._retention.last = pairs

    def recover_last_checkpoints(self, checkpoint_paths: Sequence[str]) -> None:
        """Take over those of the checkpoints that exist, for instance those of a former process."""
        existing = [path for path in checkpoint_paths if state.checkpoint_exists(path)]
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

        Args:
          sess: a session over the graph with the saver's nodes.
          save_path: prefix of the checkpoint's files; its directory is made if it is missing.
          global_step: number, or a tensor or variable with one, appended as "-<step>".
          latest_filename: name of the state file; "checkpoint" by default.
          meta_graph_suffix: suffix of the file with the graph.
          write_meta_graph: write that file too.
          write_state: record the checkpoint in the state file, and remove those beyond
            `max_to_keep`.
          strip_default_attrs: leave attributes with default values out of the graph's file.
          save_debug_info: accepted for compatibility: nodes carry their lines in weft's own files.
        Returns: the prefix to restore from; None when there is nothing to save.
        Raises:
          FailedPreconditionError: a variable has no value.
          ResourceExhaustedError: the disk is full; what was there before still is.
          PermissionDeniedError, ...: by what the operating system says.
        """
        _check_session(sess)
        self.build()
        prefix = self._prefix(sess, os.fspath(save_path), global_step)
        directory, base = files.split_prefix(prefix)
        if not base:
            raise errors.InvalidArgumentError(f"the path {save_path!r} ends in no name")
        state.state_path(directory, latest_filename)
        if self._is_empty:
            return None
        if not write_state:
            written = self._run(sess, prefix)
        else:
            with self._lock:
                written = self._run_and_record(sess, prefix, directory, latest_filename)
        if write_meta_graph:
            self._write_graph(sess.graph, f"{prefix}.{meta_graph_suffix}", strip_default_attrs)
        return written

    def _prefix(self, sess: Any, save_path: str, global_step: Any) -> str:
        if global_step is None:
            return save_path
        if hasattr(global_step, "graph") or isinstance(global_step, str):
            global_step = sess.run(global_step)
        step = int(global_step)
        return f"{save_path}-{step:08d}" if self._pad_step_number else f"{save_path}-{step}"

    def _run(self, sess: Any, prefix: str) -> str:
        feeds = {self.saver_def.filename_tensor_name: os.fsencode(prefix)}
        return os.fsdecode(sess.run(self.saver_def.save_tensor_name, feeds))

    def _run_and_record(
        self, sess: Any, prefix: str, directory: str, latest_filename: str | None
    ) -> str:
        name = latest_filename or state.STATE_FILE
        with files.reported(f"saving {prefix}"):
            os.makedirs(directory, exist_ok=True)
            self._retention.adopt(retention.recover(directory, name))
            note = retention.RetentionJournal(directory, name, prefix)
        before = self._retention.snapshot()
        try:
            written = self._run(sess, prefix)
            doomed = self._retention.record(written)
            with files.reported(f"saving {prefix}"):
                note.removes(doomed)
            state.update_checkpoint_state(
                os.path.dirname(prefix),
                written,
                self.last_checkpoints,
                name,
                save_relative_paths=self._save_relative_paths,
            )
        except BaseException:  # because the list has to go on saying what there is
            self._retention.rollback(before)
            self._retention.adopt([prefix])  # if it is there
            note.give_up()
            raise
        try:
            for path in doomed:
                state.remove_checkpoint(path)
        except BaseException:  # because the next save has to go on, whatever stopped this one
            note.abandon()
            raise
        with files.reported(f"saving {prefix}"):
            note.done()
        return written

    def _write_graph(self, graph: Any, filename: str, strip_default_attrs: bool) -> None:
        try:
            message = self.export_meta_graph(strip_default_attrs=strip_default_attrs, graph=graph)
        except (errors.InvalidArgumentError, errors.UnimplementedError) as cause:
            _log.warning("%s is not written, the checkpoint is: %s", filename, cause)
            return
        with files.reported(f"writing {filename}"):
            files.write_atomically(filename, message.SerializeToString())

    def export_meta_graph(
        self,
        filename: str | None = None,
        collection_list: Sequence[str] | None = None,
        as_text: bool = False,
        clear_devices: bool = False,
        strip_default_attrs: bool = False,
        graph: Any = None,
    ) -> proto.MetaGraphDef:
        """The graph with this saver as a `MetaGraphDef`; arguments as of `export_meta_graph`."""
        from weft_io import meta_graph

        return meta_graph.export_meta_graph(
            filename,
            saver_def=self.as_saver_def(),
            collection_list=collection_list,
            as_text=as_text,
            graph=graph,
            clear_devices=clear_devices,
            strip_default_attrs=strip_default_attrs,
        )

    # ------------------------------------------------------------- restoring

    def restore(self, sess: Any, save_path: str) -> None:
        """Give the variables the values in a checkpoint; they need not be initialized.

        Args:
          sess: a session over the graph with the saver's nodes.
          save_path: what `save` returned, or `latest_checkpoint`.
        Raises:
          NotFoundError: there is no such checkpoint, or it lacks variables or files; all missing
            variables are named.
          InvalidArgumentError: a variable has another type or shape.
          DataLossError: the checkpoint is damaged. No variable was changed.
        """
        if save_path is None:
            raise errors.InvalidArgumentError(
                "there is no checkpoint to restore: save_path is None"
            )
        _check_session(sess)
        self.build()
        if self._is_empty:
            return
        prefix = os.fspath(save_path)
        if not state.checkpoint_exists(prefix):
            raise CheckpointNotFoundError(f"there is no valid checkpoint at {prefix}")
        feeds = {self.saver_def.filename_tensor_name: os.fsencode(prefix)}
        sess.run(self.saver_def.restore_op_name, feeds)


def _check_session(sess: Any) -> None:
    if not (hasattr(sess, "run") and hasattr(sess, "graph")):
        raise errors.InvalidTypeError(f"a session is required, got {sess!r}")
