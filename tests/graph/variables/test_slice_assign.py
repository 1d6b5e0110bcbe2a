"""Slices of variables that are assigned to, and updates of rows in batches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft as wf
from weft import errors

KINDS = pytest.mark.parametrize("resource", [False, True], ids=["reference", "resource"])


@pytest.fixture(autouse=True)
def graph() -> wf.Graph:
    with wf.Graph().as_default() as made:
        yield made


def _variable(value: Any, resource: bool) -> Any:
    return wf.get_variable("v", initializer=np.asarray(value, np.float32), use_resource=resource)


KEYS: list[Any] = [
    np.s_[1:3],
    np.s_[..., 1],
    np.s_[::-2, 1:],
    np.s_[2],
    np.s_[None, 1:2],
    np.s_[-1, -2],
    np.s_[:],
]


@KINDS
def test_as_numpy_assigns(resource: bool) -> None:
    start = np.arange(12.0, dtype=np.float32).reshape(4, 3)
    variable = _variable(start, resource)
    assigned = []
    for key in KEYS:
        value = np.asarray(start[key] * 10 + 1, np.float32)
        assigned.append((variable[key].assign(value), key, value))
        np.testing.assert_array_equal(variable[key].shape.as_list(), value.shape)
    with wf.Session() as session:
        for update, key, value in assigned:
            session.run(variable.initializer)
            wanted = start.copy()
            wanted[key] = value
            np.testing.assert_array_equal(session.run(update), wanted)
            np.testing.assert_array_equal(session.run(variable), wanted)


@KINDS
def test_bounds_may_be_tensors_and_values_broadcast(resource: bool) -> None:
    variable = _variable([1.0, 2.0, 3.0, 4.0], resource)
    first = wf.placeholder(wf.int32, [])
    update = variable[first : first + 2].assign([9.0])
    with wf.Session() as session:
        session.run(variable.initializer)
        np.testing.assert_array_equal(session.run(update, {first: 1}), [1.0, 9.0, 9.0, 4.0])


@KINDS
def test_what_does_not_fit(resource: bool) -> None:
    variable = _variable([1.0, 2.0, 3.0], resource)
    with pytest.raises(errors.OpError):
        variable[:2].assign("text")
    with pytest.raises(AttributeError, match="assign"):
        variable.value()[:2].assign([1.0, 2.0])
    with pytest.raises(errors.InvalidArgumentError, match="shape"):
        update = variable[:2].assign([1.0, 2.0, 3.0])
        with wf.Session() as session:
            session.run(variable.initializer)
            session.run(update)


@KINDS
def test_an_assigned_slice_is_still_a_value(resource: bool) -> None:
    variable = _variable([1.0, 2.0, 3.0], resource)
    total = wf.reduce_sum(variable[1:] * variable[:2])
    (slope,) = wf.gradients(total, [variable])
    with wf.Session() as session:
        session.run(variable.initializer)
        assert session.run(total) == 8.0
        slope = wf.convert_to_tensor(slope)
        np.testing.assert_array_equal(session.run(slope), [2.0, 4.0, 2.0])


@KINDS
def test_batch_scatter_update(resource: bool) -> None:
    variable = _variable(np.zeros((2, 2, 3)), resource)
    indices = np.array([[[0, 1], [2, 1]], [[1, 0], [0, 2]]])
    updates = np.arange(1.0, 9.0, dtype=np.float32).reshape(2, 2, 2)
    wanted = np.zeros((2, 2, 3), np.float32)
    for b in np.ndindex(2, 2):
        wanted[b][indices[b]] = updates[b]
    method = variable.batch_scatter_update(wf.IndexedSlices(updates, indices))
    with wf.Session() as session:
        for update in (wf.batch_scatter_update(variable, indices, updates), method):
            session.run(variable.initializer)
            np.testing.assert_array_equal(session.run(update), wanted)
        wrong = wf.batch_scatter_update(variable, indices + 3, updates)
        with pytest.raises(errors.InvalidArgumentError, match="are out of range"):
            session.run(wrong)
    with pytest.raises(errors.InvalidArgumentError, match="known rank"):
        wf.batch_scatter_update(variable, wf.placeholder(wf.int32), updates)


@KINDS
def test_rows_and_points_are_read(resource: bool) -> None:
    variable = _variable([[1.0, 2.0], [3.0, 4.0]], resource)
    with wf.Session() as session:
        session.run(variable.initializer)
        np.testing.assert_array_equal(session.run(variable.sparse_read([1])), [[3.0, 4.0]])
        assert session.run(variable.gather_nd([0, 1])) == 2.0
