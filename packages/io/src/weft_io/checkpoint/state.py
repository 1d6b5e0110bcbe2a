"""The file `checkpoint`, which names the latest checkpoints of a directory.

It is a `CheckpointState` in protobuf's text format, as TensorFlow writes it, preceded by a comment
with a checksum. Files without that comment can be read as well.
"""

from __future__ import annotations

from weft_graph import proto

__all__ = [
    "checkpoint_exists",
    "generate_checkpoint_state_proto",
    "get_checkpoint_mtimes",
    "get_checkpoint_state",
    "latest_checkpoint",
    "list_variables",
    "load_checkpoint",
    "load_variable",
    "remove_checkpoint",
    "update_checkpoint_state",
]

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from weft_io.checkpoint import writer
from weft_io.checkpoint.index import index_path
from weft_io.checkpoint.reader import CheckpointNotFoundError, CheckpointReader
from weft_io.files import checksum_header, paths
from weft_tensor import errors
from weft_tensor.arguments import check_text
from weft_tensor.os_errors import convert_os_errors

if TYPE_CHECKING:
    from weft_graph import proto

_log = logging.getLogger("weft")

STATE_FILE: Final = "checkpoint"


# --------------------------------------------------------------------------- the message


def generate_checkpoint_state_proto(
    save_dir: str,
    model_checkpoint_path: str,
    all_model_checkpoint_paths: Sequence[str] | None = None,
    all_model_checkpoint_timestamps: Sequence[float] | None = None,
    last_preserved_timestamp: float | None = None,
) -> proto.CheckpointState:
    """Return a `CheckpointState` that names the latest checkpoints.

    Args:
      save_dir: directory of the state file. If it is a relative path, relative paths of
        checkpoints become relative to it.
      model_checkpoint_path: prefix of the latest checkpoint.
      all_model_checkpoint_paths: prefixes of all kept checkpoints, oldest first; the latest is
        added if it is not the last of them.
      all_model_checkpoint_timestamps: write time of each, in seconds since the epoch.
      last_preserved_timestamp: write time of the last checkpoint that is kept permanently.
    Returns: the message.
    Raises: InvalidArgumentError: the numbers of timestamps and paths differ, or a path is not
      UTF-8.

    Examples:
      >>> state = wf.train.generate_checkpoint_state_proto(
      ...     "./log", "./log/model-2", ["./log/model-1", "./log/model-2"]
      ... )
      >>> state.model_checkpoint_path
      'model-2'
    """
    prefixes = list(all_model_checkpoint_paths or ())
    if not prefixes or prefixes[-1] != model_checkpoint_path:
        prefixes.append(model_checkpoint_path)
    times = list(all_model_checkpoint_timestamps or ())
    if times and len(times) != len(prefixes):
        raise errors.InvalidArgumentError(
            f"one timestamp per checkpoint is required, got {len(times)} for {len(prefixes)}"
        )
    if not paths.is_absolute(save_dir):
        prefixes = [p if paths.is_absolute(p) else paths.relative(p, save_dir) for p in prefixes]
    try:
        return proto.CheckpointState(
            model_checkpoint_path=prefixes[-1],
            all_model_checkpoint_paths=prefixes,
            all_model_checkpoint_timestamps=times,
            last_preserved_timestamp=last_preserved_timestamp,
        )
    except (UnicodeError, ValueError) as cause:
        raise errors.InvalidArgumentError(f"paths must be UTF-8, got {prefixes}") from cause


def update_checkpoint_state(
    save_dir: str,
    model_checkpoint_path: str,
    all_model_checkpoint_paths: Sequence[str] | None = None,
    latest_filename: str | None = None,
    all_model_checkpoint_timestamps: Sequence[float] | None = None,
    last_preserved_timestamp: float | None = None,
    save_relative_paths: bool = False,
) -> None:
    """Write the state file, which names the latest checkpoints of a directory, atomically.

    `Saver.save` does this; a program that writes checkpoints in another way calls it.

    Args:
      save_dir, model_checkpoint_path, all_model_checkpoint_paths, all_model_checkpoint_timestamps,
        last_preserved_timestamp: as for `generate_checkpoint_state_proto`.
      latest_filename: name of the file; "checkpoint" by default.
      save_relative_paths: name the checkpoints relative to `save_dir`, so that the directory can
        be moved.
    Raises:
      InvalidArgumentError: as `generate_checkpoint_state_proto`; `latest_filename` is not a name.
      NotFoundError: `save_dir` does not exist.

    Examples:
      >>> step = wf.Variable(7, name="step")
      >>> with wf.Session() as session:
      ...     session.run(step.initializer)
      ...     older = wf.train.Saver().save(session, "./older")
      ...     newer = wf.train.Saver().save(session, "./newer")
      >>> wf.train.update_checkpoint_state(".", older)
      >>> wf.train.latest_checkpoint(".")
      './older'
    """
    save_dir = paths.as_path(save_dir)
    if save_relative_paths:
        checkpoint_paths = [model_checkpoint_path, *(all_model_checkpoint_paths or ())]
        model_checkpoint_path, *prefixes = [
            paths.relative(path, save_dir) for path in checkpoint_paths
        ]
        base = paths.absolute(save_dir)  # absolute: the paths are relative to it already
    else:
        prefixes, base = list(all_model_checkpoint_paths or ()), save_dir
    message = generate_checkpoint_state_proto(
        base,
        model_checkpoint_path,
        prefixes,
        all_model_checkpoint_timestamps,
        last_preserved_timestamp,
    )
    path = state_path(save_dir, latest_filename)
    storage = paths.storage_of(save_dir)
    with convert_os_errors("writing", path), storage.locked(save_dir or "."):
        storage.write_atomically(path, _to_bytes(message))


def state_path(directory: str, latest_filename: str | None = None) -> str:
    """Return the path of a directory's state file.

    Raises: InvalidTypeError, InvalidArgumentError: `latest_filename` is not a file name.
    """
    name = STATE_FILE if latest_filename is None else check_text(latest_filename, "latest_filename")
    if not name or paths.base_name(name) != name:
        raise errors.InvalidArgumentError(
            f"latest_filename must be a name without directories, got {name!r}"
        )
    return paths.join(directory, name)


def _to_bytes(message: proto.CheckpointState) -> bytes:
    from google.protobuf import text_format

    untyped: Any = message
    return checksum_header.TEXT.add_checksum(text_format.MessageToString(untyped).encode())


def _from_bytes(data: bytes, path: str) -> proto.CheckpointState:
    from google.protobuf import text_format

    checksum_header.TEXT.begins(data, path)
    message = proto.CheckpointState()
    untyped: Any = message
    try:
        text_format.Merge(data.decode(), untyped)
    except (text_format.ParseError, UnicodeDecodeError) as cause:
        raise errors.DataLossError(f"{path} is damaged: {cause}") from cause
    if not message.model_checkpoint_path:
        raise errors.DataLossError(f"{path} is damaged: it does not name a checkpoint")
    return message


# --------------------------------------------------------------------------- reading it


def get_checkpoint_state(
    checkpoint_dir: str, latest_filename: str | None = None
) -> proto.CheckpointState | None:
    """Read the state file, and complete relative paths by the directory.

    Args:
      checkpoint_dir: a directory.
      latest_filename: name of the state file; "checkpoint" by default.
    Returns: a CheckpointState message; None if there is no state file.
    Raises: DataLossError: the file is damaged.

    Examples:
      >>> print(wf.train.get_checkpoint_state("nowhere"))
      None
    """
    checkpoint_dir = paths.as_path(checkpoint_dir)
    path = state_path(checkpoint_dir, latest_filename)
    with convert_os_errors("reading", path):
        try:
            data = paths.read_bytes(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
    message = _from_bytes(data, path)
    message.model_checkpoint_path = paths.join(checkpoint_dir, message.model_checkpoint_path)
    prefixes = message.all_model_checkpoint_paths
    for i, prefix in enumerate(prefixes):
        prefixes[i] = paths.join(checkpoint_dir, prefix)
    return message


def latest_checkpoint(checkpoint_dir: str, latest_filename: str | None = None) -> str | None:
    """Return the prefix of the latest checkpoint of a directory.

    Checkpoints are found even if the directory was moved. If the latest one was removed, the one
    before it is returned, with a warning.

    Args:
      checkpoint_dir: a directory.
      latest_filename: name of the state file; "checkpoint" by default.
    Returns: None when there is no state file, or none of the checkpoints it names exists.
    Raises: DataLossError: the state file is damaged.

    Examples:
      >>> print(wf.train.latest_checkpoint("nowhere"))
      None
    """
    checkpoint_dir = paths.as_path(checkpoint_dir)
    message = get_checkpoint_state(checkpoint_dir, latest_filename)
    if message is None:
        return None
    newest = message.model_checkpoint_path
    for path in [newest, *reversed(message.all_model_checkpoint_paths)]:
        for candidate in (path, paths.join(checkpoint_dir, paths.base_name(path))):
            if checkpoint_exists(candidate):
                if path != newest:
                    _log.warning(
                        "%s does not exist; using the checkpoint before it, %s", newest, candidate
                    )
                return candidate
    _log.warning("none of the checkpoints that %s names exists", state_path(checkpoint_dir))
    return None


def checkpoint_exists(checkpoint_prefix: str) -> bool:
    """Return True if a checkpoint of that prefix exists.

    Args:
      checkpoint_prefix: a result of `Saver.save`.

    Examples:
      >>> wf.train.checkpoint_exists("nowhere/model")
      False
    """
    return paths.exists(index_path(paths.as_path(checkpoint_prefix)))


def get_checkpoint_mtimes(checkpoint_prefixes: Sequence[str]) -> list[float]:
    """Return the write times of the checkpoints that exist.

    Args:
      checkpoint_prefixes: results of `Saver.save`.
    Returns: seconds since the epoch, in the same order; checkpoints that do not exist are left out.

    Examples:
      >>> import time
      >>> step = wf.Variable(7, name="step")
      >>> with wf.Session() as session:
      ...     session.run(step.initializer)
      ...     prefix = wf.train.Saver().save(session, "./timed")
      >>> [written] = wf.train.get_checkpoint_mtimes([prefix, "./nowhere"])
      >>> written <= time.time()
      True
    """
    times = []
    for prefix in checkpoint_prefixes:
        try:
            path = index_path(paths.as_path(prefix))
            times.append(paths.storage_of(path).modification_time(path))
        except FileNotFoundError:
            continue
    return times


def remove_checkpoint(
    checkpoint_prefix: str,
    checkpoint_format_version: int = 2,
    meta_graph_suffix: str = "meta",
) -> None:
    """Remove a checkpoint and its graph, if they exist.

    Args:
      checkpoint_prefix: a result of `Saver.save`.
      checkpoint_format_version: accepted for compatibility.
      meta_graph_suffix: suffix of the file with the graph.

    Examples:
      >>> step = wf.Variable(7, name="step")
      >>> with wf.Session() as session:
      ...     session.run(step.initializer)
      ...     prefix = wf.train.Saver().save(session, "./removed")
      >>> wf.train.remove_checkpoint(prefix)
      >>> wf.train.checkpoint_exists(prefix)
      False
    """
    prefix = paths.as_path(checkpoint_prefix)
    writer.remove_checkpoint(prefix, [f"{paths.base_name(prefix)}.{meta_graph_suffix}"])


# --------------------------------------------------------------------------- looking into one


def load_checkpoint(ckpt_dir_or_file: str) -> CheckpointReader:
    """Return a reader of a checkpoint, or of the latest one of a directory.

    Args:
      ckpt_dir_or_file: the prefix of a checkpoint, or a directory, to use its latest one.
    Raises: NotFoundError, DataLossError: the checkpoint does not exist, or is damaged.

    Examples:
      >>> step = wf.Variable(7, name="step")
      >>> with wf.Session() as session:
      ...     session.run(step.initializer)
      ...     prefix = wf.train.Saver().save(session, "./read")
      >>> wf.train.load_checkpoint(prefix).get_tensor("step")
      np.int32(7)
    """
    return CheckpointReader(latest_in(paths.as_path(ckpt_dir_or_file)))


def latest_in(path: str) -> str:
    """Return the latest checkpoint of a directory; the path itself if it is not a directory.

    Raises: NotFoundError, DataLossError: the directory has none, or its state file is damaged.
    """
    if not paths.storage_of(path).is_directory(path):
        return path
    result = latest_checkpoint(path)
    if result is None:
        raise CheckpointNotFoundError(f"the directory {path} has no checkpoint")
    return result


def list_variables(ckpt_dir_or_file: str) -> list[tuple[str, list[int]]]:
    """Return the names and shapes of the tensors in a checkpoint, sorted by name.

    Args:
      ckpt_dir_or_file: the prefix of a checkpoint, or a directory, to use its latest one.

    Examples:
      >>> step = wf.Variable(7, name="step")
      >>> with wf.Session() as session:
      ...     session.run(step.initializer)
      ...     prefix = wf.train.Saver().save(session, "./listed")
      >>> wf.train.list_variables(prefix)
      [('step', [])]
    """
    return sorted(load_checkpoint(ckpt_dir_or_file).get_variable_to_shape_map().items())


def load_variable(ckpt_dir_or_file: str, name: str) -> Any:
    """Return one tensor of a checkpoint; `name` may end in ":0".

    Args:
      ckpt_dir_or_file: the prefix of a checkpoint, or a directory, to use its latest one.
      name: name of the variable.
    Raises: InvalidTypeError, NotFoundError, DataLossError: the name is not a string; the tensor
      does not exist, or is damaged.

    Examples:
      >>> step = wf.Variable(7, name="step")
      >>> with wf.Session() as session:
      ...     session.run(step.initializer)
      ...     prefix = wf.train.Saver().save(session, "./loaded")
      >>> wf.train.load_variable(prefix, "step")
      np.int32(7)
    """
    name = check_text(name, "the name of a variable").removesuffix(":0")
    return load_checkpoint(ckpt_dir_or_file).get_tensor(name)
