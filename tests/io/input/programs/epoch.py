"""Goes once through the records of some files, in batches, with a checkpoint after each batch.

Run as a program with a way to read, a number of readers, a directory, and the files. The variable
`used` has what was used. Run again, it goes on behind the last checkpoint, with as many readers as
it is told now. It prints a line for each checkpoint and one at the end.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft_exec import Session
from weft_graph.ir.builder import constant
from weft_graph.ir.default_graph import control_dependencies
from weft_graph.ir.graph import Graph
from weft_graph.ops import join
from weft_graph.variables.reference import Variable, global_variables_initializer
from weft_io import Saver, latest_checkpoint
from weft_io.data.experimental import make_saveable_from_iterator
from weft_io.data.files_datasets import TFRecordDataset
from weft_io.input.readers import TFRecordReader
from weft_io.queues.queue import FIFOQueue
from weft_tensor import dtypes, errors

Step = Callable[[], Any]


def texts(name: str) -> Variable:
    """A variable for any number of strings."""
    return Variable(
        np.empty(0, object), dtype=dtypes.string, name=name, validate_shape=False, use_resource=True
    )


def say(what: str) -> None:
    sys.stdout.write(what + "\n")
    sys.stdout.flush()


class Queued:
    """Readers that share a queue of names; their places and the names that are left are saved."""

    def __init__(self, files: Sequence[str], readers: int) -> None:
        names, self.places = texts("names"), texts("places")
        self.saved = [names, self.places]
        self.queue = FIFOQueue(-1, dtypes.string, [[]])
        self.readers = [TFRecordReader() for _ in range(readers)]
        self.first = self.queue.enqueue_many([constant(list(files))])
        left = self.queue.dequeue_up_to(self.queue.size())
        put_back = self.queue.enqueue_many([left])
        states = join.stack([reader.serialize_state() for reader in self.readers])
        with control_dependencies([put_back]):
            self.remember = [
                names.assign(left),
                self.places.assign(states),
            ]
        self.again = [
            self.queue.enqueue_many([names.read_value()]),
            *[
                reader.restore_state(self.places.read_value()[i::readers])
                for i, reader in enumerate(self.readers)
            ],
        ]
        self.size, self.close = self.queue.size(), self.queue.close()
        self.batches = [reader.read_up_to(self.queue, 3)[1] for reader in self.readers]

    def begin(self, session: Session, restore: Step | None) -> None:
        if restore is None:
            session.run(self.first)
        else:
            restore()
            session.run(self.again)
        self.closed = False
        self.ready(session)

    def ready(self, session: Session) -> None:
        if not self.closed and not session.run(self.size):
            session.run(self.close)  # for those who wait for a name
            self.closed = True
        session.run(self.remember)


class Iterated:
    """An iterator over a dataset, which reads ahead, shuffles, and saves itself."""

    def __init__(self, files: Sequence[str], readers: int) -> None:
        records = TFRecordDataset(list(files), num_parallel_reads=readers)
        iterator = records.shuffle(10, seed=3).batch(3).prefetch(2).make_initializable_iterator()
        self.saved = [make_saveable_from_iterator(iterator)]
        self.initializer = iterator.initializer
        self.batches = [iterator.get_next()]

    def begin(self, session: Session, restore: Step | None) -> None:
        session.run(self.initializer)
        if restore is not None:
            restore()

    def ready(self, session: Session) -> None:
        pass


def main(way: str, readers: int, directory: str, files: Sequence[str]) -> None:
    with Graph().as_default() as graph:
        used = texts("used")
        source: Any = (Queued if way == "queue" else Iterated)(files, readers)
        uses = [used.assign(join.concat([used.read_value(), batch], 0)) for batch in source.batches]
        saver = Saver([used, *source.saved], max_to_keep=2)
        start = global_variables_initializer()
    with Session(graph=graph) as session:
        session.run(start)
        path = latest_checkpoint(directory)
        source.begin(session, path and (lambda: saver.restore(session, path)))
        number = int(path.rpartition("-")[2]) if path else 0
        waiting = list(uses)
        while waiting:
            use = waiting.pop(0)
            try:
                session.run(use)
            except errors.OutOfRangeError:
                continue
            waiting.append(use)
            source.ready(session)
            number += 1
            saver.save(session, f"{directory}/m", number, write_meta_graph=False)
            say(f"saved {number}")
        say("end " + b" ".join(session.run(used)).decode())


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4:])
