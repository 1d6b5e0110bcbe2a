"""Graphs, variables, queues and datasets copy arrays; the caller's array stays unchanged."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft as wf

ARRAYS: list[Callable[[], np.ndarray[Any, Any]]] = [
    lambda: np.zeros((0, 3), np.float32),
    lambda: np.zeros(0, object),
    lambda: np.arange(3.0),
    lambda: np.arange(6, dtype=np.int32)[::2],
    lambda: np.array(5.0),
    lambda: np.array([b"a", b"b"], object),
    lambda: np.array(["a", "b"]),
]


class Foreign:
    """An array of another framework."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self.array = array

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        return self.array


TAKERS: dict[str, Callable[[np.ndarray[Any, Any]], Any]] = {
    "constant": wf.constant,
    "constant of a foreign array": lambda a: wf.constant(Foreign(a)),
    "raw constant": lambda a: wf.raw_ops.Const(value=a, dtype=wf.as_dtype(a.dtype)),
    "message": wf.make_tensor_proto,
    "variable": lambda a: wf.Variable(a).initial_value,
    "resource variable": lambda a: wf.Variable(a, use_resource=True).initial_value,
    "constant initializer": lambda a: wf.constant_initializer(a, wf.as_dtype(a.dtype))(a.shape),
    "stack": lambda a: wf.stack([a, a])[0],
    "dataset": lambda a: wf.data.Dataset.from_tensors(a).make_one_shot_iterator().get_next(),
    "python function": lambda a: wf.py_func(lambda: a.copy(), [], wf.as_dtype(a.dtype)),
}


@pytest.mark.parametrize("taker", TAKERS)
@pytest.mark.parametrize("make", ARRAYS)
def test_an_array_in_the_program_is_copied(
    taker: str, make: Callable[[], np.ndarray[Any, Any]]
) -> None:
    array, before = make(), make()
    with wf.Graph().as_default():
        if array.dtype.kind == "U" and taker == "raw constant":
            array, before = array.astype(object), before.astype(object)
        taken = TAKERS[taker](array)
        assert array.flags.writeable
        np.testing.assert_array_equal(array, before)
        if not isinstance(taken, wf.Tensor) or taker == "python function":
            return
        array[...] = b"z" if array.dtype.kind in "OU" else 9
        wanted = before.astype("S") if before.dtype.kind in "OU" else before
        with wf.Session() as session:
            value = np.asarray(session.run(taken))
    np.testing.assert_array_equal(value.astype(wanted.dtype), wanted)


def _variable(use_resource: bool) -> Callable[[wf.Tensor], tuple[Any, Any]]:
    def build(x: wf.Tensor) -> tuple[Any, Any]:
        first = wf.fill(x.shape, wf.constant("-" if x.dtype == wf.string else 0, x.dtype))
        v = wf.Variable(first, use_resource=use_resource)
        return v.assign(x), v.read_value()

    return build


def _queue(x: wf.Tensor) -> tuple[Any, Any]:
    queue = wf.FIFOQueue(1, [x.dtype], [x.shape])
    return queue.enqueue([x]), queue.dequeue()


def _area(x: wf.Tensor) -> tuple[Any, Any]:
    area = wf.queue.StagingArea([x.dtype], [x.shape])
    return area.put([x]), area.get()[0]


def _barrier(x: wf.Tensor) -> tuple[Any, Any]:
    barrier = wf.queue.Barrier((x.dtype,), shapes=[x.shape[1:]])
    return barrier.insert_many(0, ["a", "b"], x), barrier.take_many(2)[2][0]


def _iterator(dataset: Any) -> tuple[Any, Any]:
    iterator = wf.data.make_initializable_iterator(dataset)
    return iterator.initializer, iterator.get_next()


def _element(x: wf.Tensor) -> tuple[Any, Any]:
    return _iterator(wf.data.Dataset.from_tensors(x))


def _rows(x: wf.Tensor) -> tuple[Any, Any]:
    return _iterator(wf.data.Dataset.from_tensor_slices(x).batch(2))


def _range() -> Any:
    return wf.data.Dataset.range(2)


def _generated(x: wf.Tensor) -> tuple[Any, Any]:
    return _iterator(
        wf.data.Dataset.from_generator(lambda given: iter([given]), x.dtype, x.shape, (x,))
    )


KEEPERS: dict[str, Callable[[wf.Tensor], tuple[Any, Any]]] = {
    "reference variable": _variable(False),
    "resource variable": _variable(True),
    "queue": _queue,
    "staging area": _area,
    "barrier": _barrier,
    "dataset of an element": _element,
    "dataset of rows": _rows,
    "map": lambda x: _iterator(_range().map(lambda i: wf.identity(x))),
    "parallel map": lambda x: _iterator(_range().map(lambda i: wf.identity(x), 2)),
    "flat map": lambda x: _iterator(_range().flat_map(lambda i: wf.data.Dataset.from_tensors(x))),
    "interleave": lambda x: _iterator(
        _range().interleave(lambda i: wf.data.Dataset.from_tensors(x), 1)
    ),
    "parallel interleave": lambda x: _iterator(
        _range().interleave(lambda i: wf.data.Dataset.from_tensors(x), 2, num_parallel_calls=2)
    ),
    "filter": lambda x: _iterator(
        wf.data.Dataset.from_tensors(x).filter(lambda y: wf.reduce_all(wf.equal(x, y)))
    ),
    "generator": _generated,
}


@pytest.mark.parametrize("devices", [1, 2])
@pytest.mark.parametrize("keeper", KEEPERS)
def test_what_was_fed_is_kept_as_it_was(keeper: str, devices: int) -> None:
    for given in (np.arange(4.0).reshape(2, 2), np.array([[b"a", b"b"], [b"c", b"d"]], object)):
        before = given.copy()
        with wf.Graph().as_default():
            with wf.device("/cpu:0"):
                x = wf.placeholder(wf.as_dtype(given.dtype), [2, 2])
                y = wf.reshape(wf.identity(x), [2, 2])  # which may share its memory
            with wf.device(f"/cpu:{devices - 1}"):
                put, get = KEEPERS[keeper](y)
            with wf.Session(config=wf.ConfigProto(device_count={"CPU": devices})) as session:
                session.run([put, wf.identity(y)], {x: given})
                given[...] = b"z" if given.dtype.hasobject else 9
                np.testing.assert_array_equal(session.run(get), before)


def test_an_array_that_a_library_lent_may_be_written_to() -> None:
    with wf.Graph().as_default(), wf.Session() as session:
        png = wf.placeholder(wf.string, [])
        image = np.full([2, 3, 3], 7, np.uint8)
        found = session.run(
            wf.image.decode_png(png), {png: session.run(wf.image.encode_png(image))}
        )
    found[0, 0] = 1
    assert found.sum() == 7 * 15 + 3
