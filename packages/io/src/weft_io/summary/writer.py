"""FileWriter: summaries, graphs and run metadata as events for TensorBoard."""

from __future__ import annotations

__all__ = ["FileWriter"]

import struct
import time
import warnings
from types import TracebackType
from typing import Any

from weft_graph import proto
from weft_graph.ir.graph import Graph
from weft_io.files.systems import PathLike
from weft_io.meta_graphs.export import export_meta_graph
from weft_io.summary.event_writer import EventFileWriter
from weft_io.summary.messages import decode_error
from weft_io.summary.session_writer import SessionEventWriter
from weft_tensor import errors

_WALL_TIME = struct.Struct("<Bd")
_UINT64 = (1 << 64) - 1


class FileWriter:
    """Writes summaries, graphs and other events to a new event file, in a background thread.

    It is thread-safe, and a `with` block closes it. If an event cannot be written, the next add,
    flush or close raises the error. All later calls raise it too, until the writer is closed and
    reopened.

    Args:
      logdir: a directory, created if necessary, or a URL that fsspec knows.
      graph: a
        graph to write first.
      max_queue: number of queued events at which adding an event waits.
      flush_secs: maximum number of seconds until an event is on the disk; the first event is
        flushed
        immediately.
      graph_def: deprecated name of `graph`.
      filename_suffix: appended to the file's
        name.
      session: writers of one session and directory share a file, which is closed with the last.
    Raises: OpError: the file cannot be created.

    Examples:
      >>> with wf.summary.FileWriter("./log", wf.get_default_graph()) as writer:
      ...     writer.add_summary(wf.Session().run(wf.summary.scalar("loss", 0.5)), global_step=1)
    """

    def __init__(
        self,
        logdir: PathLike,
        graph: Any = None,
        max_queue: int = 10,
        flush_secs: float = 120,
        graph_def: Any = None,
        filename_suffix: str | None = None,
        session: Any = None,
    ) -> None:
        options = (logdir, max_queue, flush_secs, filename_suffix)
        self.event_writer: EventFileWriter | SessionEventWriter
        if session is None:
            self.event_writer = EventFileWriter(*options)
        else:
            self.event_writer = SessionEventWriter(session, *options)
        self._run_tags: set[str] = set()
        self._described: set[str] = set()
        if graph is not None or graph_def is not None:
            self._add_first_graph(graph, graph_def)

    def _add_first_graph(self, graph: Any, graph_def: Any) -> None:
        message = _graph_def_of(graph, graph_def)
        self._add_event(proto.Event(graph_def=message.SerializeToString()), None)
        source = graph if isinstance(graph, Graph) else None
        self.add_meta_graph(export_meta_graph(graph_def=message, graph=source))

    def __enter__(self) -> FileWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def get_logdir(self) -> str:
        """Return the directory."""
        return self.event_writer.get_logdir()

    # -------------------------------------------------------------------------------- adding

    def add_summary(self, summary: Any, global_step: Any = None) -> None:
        """Append a summary.

        Args:
          summary: the value of a summary node, or a `Summary` message. The metadata of a tag is
            written once.
          global_step: integer.
        Raises: InvalidArgumentError: the bytes are not a `Summary`.
        """
        if not isinstance(summary, bytes):
            summary = _message(summary, "Summary").SerializeToString()
        data = self._strip_known_metadata(summary)
        self._warn_if_closed()
        self.event_writer.add_serialized(_summary_event(data, global_step))

    def _strip_known_metadata(self, data: bytes) -> bytes:
        """Return a summary's bytes without metadata of tags that was already written."""
        summary = _parse_summary(data)
        dropped = False
        for value in summary.value:
            if value.HasField("metadata"):
                if value.tag in self._described:
                    value.ClearField("metadata")
                    dropped = True
                self._described.add(value.tag)
        return summary.SerializeToString() if dropped else data

    def add_session_log(self, session_log: Any, global_step: Any = None) -> None:
        """Append a `SessionLog`: that a session started, stopped, or saved a checkpoint."""
        message = _message(session_log, "SessionLog")
        self._add_event(proto.Event(session_log=_ours(proto.SessionLog, message)), global_step)

    def add_graph(self, graph: Any, global_step: Any = None, graph_def: Any = None) -> None:
        """Append a graph for TensorBoard.

        Args:
          graph: a `Graph`, or a `GraphDef` message.
          global_step: integer.
          graph_def: deprecated name of `graph`.
        Raises: InvalidArgumentError: both are set, or the graph cannot be represented in a
          `GraphDef`.
        """
        message = _graph_def_of(graph, graph_def)
        self._add_event(proto.Event(graph_def=message.SerializeToString()), global_step)

    def add_meta_graph(self, meta_graph_def: Any, global_step: Any = None) -> None:
        """Append a `MetaGraphDef`."""
        message = _message(meta_graph_def, "MetaGraphDef")
        self._add_event(proto.Event(meta_graph_def=message.SerializeToString()), global_step)

    def add_run_metadata(self, run_metadata: Any, tag: str, global_step: Any = None) -> None:
        """Append the trace of a run, which TensorBoard shows on the graph.

        Args:
          run_metadata: a `RunMetadata`, filled in by `Session.run`.
          tag: the unique name of the run.
          global_step: integer.
        Raises: InvalidArgumentError: the tag is already used.
        """
        if tag in self._run_tags:
            raise errors.InvalidArgumentError(
                f"run metadata with the tag {tag!r} were already added"
            )
        data = _message(run_metadata, "RunMetadata").SerializeToString()
        self._run_tags.add(tag)
        tagged = proto.TaggedRunMetadata(tag=tag, run_metadata=data)
        self._add_event(proto.Event(tagged_run_metadata=tagged), global_step)

    def add_event(self, event: Any) -> None:
        """Append an `Event` message unchanged."""
        self._warn_if_closed()
        self.event_writer.add_event(_message(event, "Event"))

    def _add_event(self, event: proto.Event, step: Any) -> None:
        event.wall_time = time.time()
        if step is not None:
            event.step = _int64(step)
        self._warn_if_closed(4)
        self.event_writer.add_event(event)

    def _warn_if_closed(self, level: int = 3) -> None:
        if self.event_writer.closed:
            warnings.warn(
                "the FileWriter is closed: new events are dropped until it is reopened",
                stacklevel=level,
            )

    # -------------------------------------------------------------------- flushing and closing

    def flush(self) -> None:
        """Wait until all added events are on the disk."""
        self._warn_if_closed()
        self.event_writer.flush()

    def close(self) -> None:
        """Write all added events, and close the file."""
        self.event_writer.close()

    def reopen(self) -> None:
        """Continue in a new file after `close`; do nothing if the writer is open."""
        self.event_writer.reopen()


def _summary_event(summary: bytes, step: Any) -> bytes:
    """Return a serialized `Event` with the current time that contains a serialized `Summary`.

    The summary is not parsed, because this runs in every step.
    """
    time_and_step = _WALL_TIME.pack(0x09, time.time())
    if step is not None:
        time_and_step += b"\x10" + _varint(_int64(step) & _UINT64)
    return b"".join((time_and_step, b"\x2a", _varint(len(summary)), summary))


def _int64(step: Any) -> int:
    number = int(step)
    if not -(1 << 63) <= number < 1 << 63:
        raise errors.InvalidArgumentError(f"a step must fit into 64 bits, got {number}")
    return number


def _varint(number: int) -> bytes:
    if number <= 0x7F:
        return bytes((number,))
    result = bytearray()
    while number > 0x7F:
        result.append(number & 0x7F | 0x80)
        number >>= 7
    result.append(number)
    return bytes(result)


def _parse_summary(data: bytes) -> proto.Summary:
    try:
        return proto.Summary.FromString(data)
    except decode_error() as cause:
        raise errors.InvalidArgumentError(
            f"a serialized Summary is required, but the {len(data)} bytes cannot be parsed as one"
        ) from cause


def _message(value: Any, name: str) -> Any:
    """Return `value` if it is a message of that name, of weft or of another library."""
    descriptor = getattr(value, "DESCRIPTOR", None)
    if descriptor is None or descriptor.name != name or not hasattr(value, "SerializeToString"):
        raise errors.InvalidTypeError(f"a {name} message is required, got {type(value).__name__}")
    return value


def _ours(kind: Any, message: Any) -> Any:
    return message if isinstance(message, kind) else kind.FromString(message.SerializeToString())


def _graph_def_of(graph: Any, graph_def: Any) -> Any:
    """Return the `GraphDef` of a graph, or the definition itself."""
    if graph is not None and graph_def is not None:
        raise errors.InvalidArgumentError("pass graph or graph_def, which is its deprecated name")
    definition = graph_def if graph is None else graph
    if isinstance(definition, Graph):
        return definition.as_graph_def(add_shapes=True)
    if (
        definition is None
        or getattr(getattr(definition, "DESCRIPTOR", None), "name", "") != "GraphDef"
    ):
        raise errors.InvalidTypeError(
            f"a Graph or a GraphDef is required, got {type(definition).__name__}"
        )
    return definition
