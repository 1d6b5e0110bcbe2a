"""The tuning constant, and the state of iterators in checkpoints."""

from __future__ import annotations

__all__ = ["make_saveable_from_iterator"]

from typing import Any

from weft_io.data.iterator import Iterator
from weft_io.ops.dataset import is_fed
from weft_io.saving.resuming import saveable_of
from weft_io.saving.saveables import SaveableObject
from weft_io.streams.prefetching import AUTOTUNE as AUTOTUNE
from weft_tensor import errors


def make_saveable_from_iterator(iterator: Any) -> SaveableObject:
    """What a Saver saves of an iterator: where it is.

    Add it to the collection SAVEABLE_OBJECTS, or give it to a Saver. A restored iterator goes on
    with exactly the elements that had not been taken; what shuffling and reading ahead had buffered
    is saved too. An initializable iterator may be initialized before it is restored, or after: what
    was restored waits for the next run of the initializer that had been used when it was saved. One
    that had not been initialized then is at its beginning.

    Calls of a parallel map that were under way are made again. A Python generator begins anew, and
    the elements that it gave before are dropped. The streams of random numbers inside of functions
    are not saved.

    Args:
      iterator: an `Iterator`.
    Raises: InvalidTypeError: it is not an Iterator; InvalidArgumentError: it stands for others, by
      a string handle that is fed.

    Examples:
      >>> iterator = wf.data.Dataset.range(9).make_initializable_iterator()
      >>> element = iterator.get_next()
      >>> saved = wf.data.experimental.make_saveable_from_iterator(iterator)
      >>> saver = wf.train.Saver([saved])
      >>> with wf.Session() as session:
      ...     session.run(iterator.initializer)
      ...     session.run([element])
      ...     path = saver.save(session, "./place")
      [np.int64(0)]
      >>> with wf.Session() as session:
      ...     session.run(iterator.initializer)
      ...     saver.restore(session, path)
      ...     session.run([element])
      [np.int64(1)]
    """
    if not isinstance(iterator, Iterator):
        raise errors.InvalidTypeError(f"an Iterator is required, got {iterator!r}")
    resource = iterator._iterator_resource
    if is_fed(resource):
        raise errors.InvalidArgumentError(
            f"{resource.op.name!r} is whichever iterator its string handle is fed of: save the "
            "iterators that it may stand for"
        )
    return saveable_of(resource)
