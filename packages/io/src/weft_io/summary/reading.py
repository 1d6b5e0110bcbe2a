"""Reading of event files."""

from __future__ import annotations

__all__ = ["summary_iterator"]

from collections import deque
from collections.abc import Iterator

from weft_graph import proto
from weft_io.files.systems import PathLike, as_path
from weft_io.records.tfrecord import OVERHEAD, TFRecordSource
from weft_io.summary.messages import decode_error
from weft_tensor import errors


class summary_iterator(Iterator["proto.Event"]):  # noqa: N801 - TensorFlow's public name
    """The events of an event file, in order.

    At the end of a file that is still being written, iteration can be resumed later.

    Args:
      path:
        path of the file, or a URL that fsspec knows.
    Raises:
      NotFoundError: the file does not exist.
      DataLossError: a record is damaged or incomplete; iteration does not skip it.

    Examples:
      >>> import glob
      >>> with wf.summary.FileWriter("./curve") as writer:
      ...     for step, loss in enumerate([0.5, 0.25]):
      ...         value = wf.Summary.Value(tag="loss", simple_value=loss)
      ...         writer.add_summary(wf.Summary(value=[value]), step)
      >>> [path] = glob.glob("./curve/*")
      >>> for event in wf.train.summary_iterator(path):
      ...     for value in event.summary.value:
      ...         event.step, value.tag, value.simple_value
      (0, 'loss', 0.5)
      (1, 'loss', 0.25)
    """

    def __init__(self, path: PathLike) -> None:
        self._path = as_path(path)
        self._offset = 0
        self._records: deque[bytes] = deque()
        self._source: TFRecordSource | None = TFRecordSource(self._path)

    def __next__(self) -> proto.Event:
        if not self._records:
            self._records.extend(self._next_chunk())
            if not self._records:
                raise StopIteration
        record = self._records[0]
        try:
            event = proto.Event.FromString(record)
        except decode_error() as cause:
            raise errors.DataLossError(
                f"corrupted record at {self._offset} of {self._path}: its {len(record)} bytes are "
                "not an Event"
            ) from cause
        self._records.popleft()
        self._offset += len(record) + OVERHEAD
        return event

    def _next_chunk(self) -> list[bytes]:
        """Return records from `_offset` on; at the end and after an error, the file is reopened."""
        source = self._source or TFRecordSource(self._path, offset=self._offset)
        self._source = None
        try:
            records = source.read_chunk()
            if records:
                self._source = source
            return records
        finally:
            if self._source is None:
                source.close()
