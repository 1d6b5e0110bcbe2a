"""Ragged tensors in elements: on their way unchanged, in batches with one more ragged axis."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from weft_testing.waiting import rounds

import weft as wf
from weft import errors


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple([_plain(item) for item in value])
    return value.to_list() if isinstance(value, wf.ragged.RaggedTensorValue) else value.tolist()


def run(dataset: wf.data.Dataset) -> list[Any]:
    element = dataset.make_one_shot_iterator().get_next()
    found = []
    with wf.Session() as session:
        for _ in rounds():
            try:
                found.append(_plain(session.run(element)))
            except errors.OutOfRangeError:
                return found


ROWS = [[1, 2], [], [3], [4, 5, 6]]
DEEP = [[[1], [2, 3]], [], [[4]]]


def _rows() -> wf.data.Dataset:
    return wf.data.Dataset.from_tensor_slices(wf.ragged.constant(ROWS))


def _deep() -> wf.data.Dataset:
    return wf.data.Dataset.from_tensor_slices(wf.ragged.constant(DEEP))


def test_rows_become_ragged_batches() -> None:
    with wf.Graph().as_default():
        assert run(_rows()) == ROWS
        assert _rows().element_spec == wf.RaggedTensorSpec([None], wf.int32, 0)
        assert run(_rows().batch(3)) == [ROWS[:3], ROWS[3:]]
        assert run(_rows().batch(3, drop_remainder=True)) == [ROWS[:3]]
        dropped = _rows().batch(3, drop_remainder=True)
        assert dropped.element_spec == wf.RaggedTensorSpec([3, None], wf.int32, 1)
        assert run(_rows().batch(2).batch(2)) == [[ROWS[:2], ROWS[2:]]]
        assert run(_deep().batch(2)) == [DEEP[:2], DEEP[2:]]
        assert run(_deep().batch(2).unbatch()) == DEEP


def test_rows_of_rows_come_together_again() -> None:
    with wf.Graph().as_default():
        numbers = _rows().unbatch()
        assert run(numbers) == [1, 2, 3, 4, 5, 6]
        assert run(numbers.batch(4).batch(2)) == [[[1, 2, 3, 4], [5, 6]]]
        pairs = wf.data.Dataset.zip((_rows(), _deep())).batch(2)
        assert run(pairs) == [(ROWS[:2], DEEP[:2]), (ROWS[2:3], DEEP[2:])]
        rows = wf.ragged.constant([[1], [2, 3]]), wf.ragged.constant([[[4]], [[5], [6, 7]]])
        beside = wf.data.Dataset.from_tensor_slices(rows).unbatch()
        assert run(beside) == [(1, [4]), (2, [5]), (3, [6, 7])]
        equal = wf.data.Dataset.from_tensors(([[1, 2]], wf.ragged.constant([[[3], [4, 5]]])))
        assert run(equal.unbatch()) == [([1, 2], [[3], [4, 5]])]
        assert run(equal.unbatch().unbatch()) == [(1, [3]), (2, [4, 5])]


def test_axes_behind_the_ragged_ones_stay_dense() -> None:
    with wf.Graph().as_default():
        inner = wf.ragged.constant([[[1, 2]], [[3, 4], [5, 6]]], ragged_rank=1)
        batch = wf.data.Dataset.from_tensor_slices(inner).batch(2)
        assert batch.element_spec == wf.RaggedTensorSpec([None, None, 2], wf.int32, 1)
        assert run(batch) == [[[[1, 2]], [[3, 4], [5, 6]]]]


def test_functions_of_ragged_elements() -> None:
    with wf.Graph().as_default():
        whole = wf.data.Dataset.from_tensors(wf.ragged.constant(ROWS))
        sums = whole.map(lambda r: (r + 1, wf.reduce_sum(r, axis=1)))
        assert run(sums) == [([[2, 3], [], [4], [5, 6, 7]], [3, 0, 3, 15])]
        kept = _rows().filter(lambda row: wf.size(row) > 0).batch(9)
        assert run(kept) == [[[1, 2], [3], [4, 5, 6]]]
        assert run(_deep().take_while(lambda r: wf.equal(r.nrows(), 2))) == DEEP[:1]
        windows = _deep().window(2).flat_map(lambda window: window.batch(2))
        assert run(windows) == [DEEP[:2], DEEP[2:]]
        assert run(_deep().prefetch(1).cache().shuffle(1).enumerate().batch(3)) == [
            ([0, 1, 2], DEEP)
        ]
        last = _deep().reduce(wf.ragged.constant([[0]]), lambda state, r: r)
        assert wf.Session().run(last).to_list() == DEEP[-1]
        parallel = _deep().map(lambda r: r * 2, num_parallel_calls=2).batch(2)
        assert run(parallel) == [[[[2], [4, 6]], []], [[[8]]]]


@pytest.mark.parametrize("dtype", [wf.bool, wf.int8, wf.float16, wf.complex64, wf.string])
def test_element_types(dtype: wf.DType) -> None:
    with wf.Graph().as_default():
        values = wf.cast([1, 0, 1], wf.int32)
        given = wf.as_string(values) if dtype == wf.string else wf.cast(values, dtype)
        ragged = wf.RaggedTensor.from_row_splits(given, [0, 0, 3])
        ((first, second),) = run(wf.data.Dataset.from_tensor_slices(ragged).batch(2))
        assert first == []
        assert second == wf.Session().run(given).tolist()


def test_iterators_of_given_structure() -> None:
    with wf.Graph().as_default():
        dataset = _deep().batch(2)
        classes = wf.data.get_output_classes(dataset)
        assert classes == wf.RaggedTensorSpec([None, None, None], wf.int32, 2)
        form = dataset.output_types, dataset.output_shapes
        iterator = wf.data.Iterator.from_structure(*form, output_classes=classes)
        begin = iterator.make_initializer(dataset)
        handle = wf.placeholder(wf.string, [])
        fed = wf.data.Iterator.from_string_handle(handle, *form, classes).get_next()
        with wf.Session() as session:
            session.run(begin)
            assert session.run(iterator.get_next()).to_list() == DEEP[:2]
            named = session.run(iterator.string_handle())
            assert session.run(fed, {handle: named}).to_list() == DEEP[2:]
        with pytest.raises(TypeError):
            iterator.make_initializer(_deep())
        with pytest.raises(errors.InvalidArgumentError, match="RaggedTensorSpec is required"):
            wf.data.Iterator.from_structure(*form, output_classes=wf.RaggedTensor)


def test_a_saved_window_of_ragged_elements_goes_on(tmp_path: Any) -> None:
    with wf.Graph().as_default():
        windows = _rows().window(3, shift=1, drop_remainder=True)
        single = wf.data.experimental.get_single_element
        batches = windows.map(lambda window: single(window.batch(3)))
        iterator = batches.make_initializable_iterator()
        element = iterator.get_next()
        saver = wf.train.Saver([wf.data.experimental.make_saveable_from_iterator(iterator)])
        with wf.Session() as session:
            session.run(iterator.initializer)
            assert session.run(element).to_list() == ROWS[:3]
            path = saver.save(session, str(tmp_path / "place"))
        with wf.Session() as session:
            session.run(iterator.initializer)
            saver.restore(session, path)
            assert session.run(element).to_list() == ROWS[1:]


def test_tensors_of_different_sizes_in_ragged_batches() -> None:
    ragged_batch = wf.data.experimental.dense_to_ragged_batch
    with wf.Graph().as_default():
        numbers = wf.data.Dataset.range(4)
        rows = numbers.map(lambda n: wf.fill([n], n))
        assert run(rows.apply(ragged_batch(3))) == [[[], [1], [2, 2]], [[3, 3, 3]]]
        few = rows.apply(ragged_batch(3, drop_remainder=True, row_splits_dtype=wf.int32))
        assert few.element_spec == wf.RaggedTensorSpec([3, None], wf.int64, 1, wf.int32)
        assert run(few) == [[[], [1], [2, 2]]]
        mixed = numbers.map(lambda n: (wf.fill([2, n], n), wf.fill([n, 2], n), n))
        (first, _) = run(mixed.apply(ragged_batch(2)))
        assert first == ([[[], []], [[1], [1]]], [[], [[1, 1]]], [0, 1])
        with pytest.raises(TypeError, match="int32 or int64"):
            ragged_batch(2, row_splits_dtype=wf.float32)


def test_ragged_structures() -> None:
    made = wf.data.experimental.RaggedTensorStructure(wf.int32, [3, None], 1)
    assert made == wf.RaggedTensorSpec([3, None], wf.int32, 1)


def test_what_ragged_elements_do_not_do() -> None:
    with wf.Graph().as_default():
        with pytest.raises(errors.UnimplementedError, match="padded_batch requires dense tensors"):
            _deep().padded_batch(2, [None, None])
        with pytest.raises(TypeError, match="different types"):
            _deep().concatenate(wf.data.Dataset.from_tensors(wf.ragged.constant(DEEP)))
        with pytest.raises(errors.InvalidArgumentError, match="different shapes"):
            run(_rows().map(lambda row: row).batch(2))
        padded = run(_rows().padded_batch(2, [None]))
        np.testing.assert_array_equal(padded[0], [[1, 2], [0, 0]])
