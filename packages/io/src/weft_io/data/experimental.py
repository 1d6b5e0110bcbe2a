"""AUTOTUNE, and the state of iterators in checkpoints."""

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
    """Return a saveable object for the position of an iterator.

    Add it to the collection SAVEABLE_OBJECTS, or pass it to a Saver. A restored iterator continues
    with exactly the elements that had not been returned; buffered elements of shuffling and
    prefetching are saved too. An initializable iterator may be initialized before or after it is
    restored: the restored state waits for the next run of the initializer that was used when it was
    saved. An iterator that was not initialized then starts at its beginning.

    Pending calls of a parallel map are repeated. A Python generator is restarted, and the elements
    that it had returned are skipped. The random streams inside functions are not saved.

    Args:
      iterator: an `Iterator`.
    Raises: InvalidTypeError: it is not an Iterator; InvalidArgumentError: it refers to another
      iterator by a fed string handle.

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
            f"{resource.op.name!r} refers to an iterator by a fed string handle: save the "
            "iterators that it may refer to instead"
        )
    return saveable_of(resource)
