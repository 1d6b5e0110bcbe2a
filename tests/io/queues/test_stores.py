"""Storage of queue elements: whole batches, packed rows, released memory."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest
from weft_testing.waiting import empty, traced

from weft_io.resources.chunks import ChunkStore, PaddingStore
from weft_io.resources.columns import ObjectColumn, PackedColumn, column_for
from weft_io.resources.element_order import PriorityStore, ShufflingStore
from weft_tensor import dtypes

FLOAT = (dtypes.float32,)


class Tracked(np.ndarray):
    """An array that can be watched."""


def tracked(shape: tuple[int, ...]) -> np.ndarray:
    return np.zeros(shape, np.float32).view(Tracked)


def test_a_batch_leaves_as_it_came() -> None:
    store = ChunkStore(FLOAT, ((),))
    batch = np.arange(6, dtype=np.float32)
    store.add_many((batch,), 0, 6)
    (whole,) = store.take_many(6, empty)()
    assert whole is batch
    store.add_many((batch,), 0, 6)
    (part,) = store.take_many(4, empty)()
    assert part.base is batch and part.tolist() == [0, 1, 2, 3]
    assert len(store) == 2


def test_pieces_are_joined_in_order() -> None:
    store = ChunkStore((dtypes.float32, dtypes.string), ((2,), ()))
    store.add((np.array([1.0, 1.0], np.float32), np.array(b"a", object)))
    texts = np.array([b"b", b"c", b"d"], object)
    store.add_many((np.full((3, 2), 2.0, np.float32), texts), 0, 2)
    store.add((np.array([3.0, 3.0], np.float32), np.array(b"e", object)))
    numbers, letters = store.take_many(4, empty)()
    assert numbers[:, 0].tolist() == [1, 2, 2, 3]
    assert letters.tolist() == [b"a", b"b", b"c", b"e"]
    assert len(store) == 0


def test_elements_of_a_batch_are_scalars_or_views() -> None:
    store = ChunkStore((dtypes.int32, dtypes.float32, dtypes.string), ((), (2,), ()))
    rows = np.ones((2, 2), np.float32)
    store.add_many((np.array([4, 5], np.int32), rows, np.array([b"x", b"y"], object)), 0, 2)
    number, row, text = store.take()
    assert type(number) is np.int32 and number == 4
    assert row.base is rows
    assert isinstance(text, np.ndarray) and text.shape == () and text.item() == b"x"


def test_an_allocation_that_fails_takes_nothing() -> None:
    def refuse(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        raise MemoryError

    for store in (
        ChunkStore(FLOAT, ((),)),
        ShufflingStore(FLOAT, ((),)),
        PriorityStore((dtypes.int64, dtypes.float32), ((), ())),
    ):
        values = (np.arange(2),) * isinstance(store, PriorityStore)
        store.add_many((*values, np.ones(2, np.float32)), 0, 2)
        store.add((*[v[0] for v in values], np.float32(3)))
        with pytest.raises(MemoryError):
            store.take_many(3, refuse)
        assert len(store) == 3
        assert sorted(store.take_many(3, empty)()[-1].tolist()) == [1, 1, 3]


def test_padding_fills_what_is_missing() -> None:
    store = PaddingStore((dtypes.int32, dtypes.string), ((None, 2), (None,)))
    store.add((np.ones((1, 2), np.int32), np.array([b"a", b"b"], object)))
    store.add_many(
        (np.full((2, 3, 2), 5, np.int32), np.array([[b"c"], [b"d"]], object)),
        0,
        2,
    )
    numbers, texts = store.take_many(3, empty)()
    assert numbers.shape == (3, 3, 2)
    assert numbers[0].tolist() == [[1, 1], [0, 0], [0, 0]]
    assert texts.tolist() == [[b"a", b"b"], [b"c", b""], [b"d", b""]]


@pytest.mark.parametrize(
    ("dtype", "dims", "packed"),
    [
        (dtypes.float32, (), True),
        (dtypes.float32, (1024,), True),
        (dtypes.float32, (1025,), False),
        (dtypes.string, (), True),
        (dtypes.float32, (None,), False),
        (dtypes.float32, None, False),
        (dtypes.variant, (), False),
    ],
)
def test_small_elements_of_known_shape_are_packed(
    dtype: dtypes.DType, dims: tuple[int | None, ...] | None, packed: bool
) -> None:
    assert isinstance(column_for(dtype, dims), PackedColumn if packed else ObjectColumn)


def test_a_large_row_does_not_keep_its_batch() -> None:
    store = ShufflingStore(FLOAT, ((2000,),))
    batch = tracked((50, 2000))
    gone = weakref.ref(batch)
    store.add_many((batch,), 0, 50)
    del batch
    gc.collect()
    assert gone() is None and len(store) == 50


@pytest.mark.parametrize("kind", ["fifo", "shuffling", "priority"])
@pytest.mark.parametrize("strings", [False, True])
def test_taken_elements_are_let_go(kind: str, strings: bool) -> None:
    types = (dtypes.int64, dtypes.string if strings else dtypes.float32)
    shapes = ((), () if strings else (2000,))
    store = {
        "fifo": ChunkStore(types, shapes),
        "shuffling": ShufflingStore(types, shapes),
        "priority": PriorityStore(types, shapes),
    }[kind]

    def fill() -> weakref.ref:
        value = np.array(b"x", object) if strings else tracked((2000,))
        store.add((np.int64(3), value))
        store.add((np.int64(4), value))
        return weakref.ref(value)

    held = fill()
    store.take()
    store.take_many(1, empty)()
    gc.collect()
    assert held() is None


def test_what_is_taken_is_safe_from_what_comes() -> None:
    for store in (
        ShufflingStore((dtypes.float32,), ((2,),), (1, 1)),
        PriorityStore((dtypes.int64, dtypes.float32), ((), (2,))),
    ):
        lead = (np.int64(0),) * isinstance(store, PriorityStore)
        store.add((*lead, np.array([1, 1], np.float32)))
        (*_, first) = store.take()
        store.add((*lead, np.array([2, 2], np.float32)))
        assert first.tolist() == [1, 1]


def test_shuffling_is_fair_and_repeats_with_its_seeds() -> None:
    def order(seeds: tuple[int, int]) -> list[int]:
        store = ShufflingStore((dtypes.int64,), ((),), seeds)
        store.add_many((np.arange(20),), 0, 20)
        taken = store.take_many(5, empty)()[0].tolist()
        return taken + [int(store.take()[0]) for _ in range(15)]

    assert order((1, 2)) == order((1, 2)) != order((1, 3))
    assert sorted(order((0, 0))) == list(range(20))
    counts = np.zeros(4)
    store = ShufflingStore((dtypes.int64,), ((),), (5, 5))
    for _ in range(2000):
        store.add_many((np.arange(4),), 0, 4)
        counts[store.take_many(2, empty)()[0]] += 1
        counts[int(store.take()[0])] += 1
        store.clear()
    assert np.abs(counts / 1500 - 1).max() < 0.1


def test_a_million_elements_pass_in_constant_memory() -> None:
    stores = [
        ChunkStore(FLOAT, ((),)),
        ShufflingStore(FLOAT, ((),)),
        PaddingStore(FLOAT, ((),)),
    ]
    batch = np.ones(1000, np.float32)
    for store in stores:
        store.add_many((batch.copy(),), 0, 1000)
        with traced() as memory:
            for _ in range(1000):
                store.add_many((batch.copy(),), 0, 1000)
                store.take_many(1000, empty)()
        assert memory.peak < 100_000


def test_places_are_used_again() -> None:
    store = PriorityStore((dtypes.int64, dtypes.float32), ((), ()))
    batch = np.arange(100), np.ones(100, np.float32)
    store.add_many(batch, 0, 100)
    for _ in range(50):
        store.add_many(batch, 0, 100)
        store.take_many(99, empty)()
        store.take()
    assert len(store) == 100 and store._num_slots <= 400


def test_idle_stores_give_their_memory_back() -> None:
    batch = np.ones(100_000, np.float32)
    store = ShufflingStore(FLOAT, ((),))
    store.add_many((batch,), 0, len(batch))
    store.take_many(len(batch) - 10, empty)()
    assert store._num_slots < 100
    priorities = PriorityStore((dtypes.int64, dtypes.float32), ((), ()))
    priorities.add_many((np.arange(len(batch)), batch), 0, len(batch))
    priorities.take_many(len(batch), empty)()
    assert priorities._num_slots == 0
