"""Values that a session keeps between its steps."""

from __future__ import annotations

import numpy as np
import pytest

import weft as wf
from weft import errors
from weft_tensor.finalizers import settle


@pytest.fixture(autouse=True)
def graph() -> wf.Graph:
    with wf.Graph().as_default() as made:
        yield made


@pytest.mark.parametrize("dtype", [wf.float32, wf.int64, wf.string, wf.bool, wf.complex128])
@pytest.mark.parametrize("shape", [[], [2], [0, 3]], ids=str)
def test_keeps_a_value(dtype: wf.DType, shape: list[int]) -> None:
    value = np.zeros(shape, object if dtype is wf.string else dtype.as_numpy_dtype)
    value[...] = b"x" if dtype is wf.string else 1
    x = wf.placeholder(dtype, shape)
    with wf.Session() as session:
        handle = session.run(wf.get_session_handle(x), {x: value})
        holder, kept = wf.get_session_tensor(handle.handle, dtype)
        got = session.run(kept, {holder: handle.handle})
        np.testing.assert_array_equal(got, value)
        np.testing.assert_array_equal(handle.eval(), value)
        assert handle.dtype is dtype and handle.handle.startswith("GetSessionHandle;")
        np.testing.assert_array_equal(session.run(wf.identity(x), {x: handle}), value)


def test_the_value_is_a_copy() -> None:
    x = wf.placeholder(wf.float32, [2])
    fed = np.ones(2, np.float32)
    with wf.Session() as session:
        handle = session.run({"a": [wf.get_session_handle(x)]}, {x: fed})["a"][0]
        fed[:] = 9.0
        handle.eval()[:] = 8.0
        holder, kept = wf.get_session_tensor(handle.handle, wf.float32)
        session.run(kept, {holder: handle.handle})[:] = 7.0
        np.testing.assert_array_equal(handle.eval(), [1.0, 1.0])


def test_variables_that_were_kept_do_not_change() -> None:
    variable = wf.Variable([1.0, 2.0])
    keep, update = wf.get_session_handle(variable), variable.assign_add([1.0, 1.0])
    with wf.Session() as session:
        session.run(variable.initializer)
        handle = session.run(keep)
        session.run(update)
        np.testing.assert_array_equal(handle.eval(), [1.0, 2.0])


def test_values_are_dropped() -> None:
    keep = wf.get_session_handle(wf.constant([1.0, 2.0]))
    holder, kept = wf.get_session_tensor("", wf.float32)
    fed, deleter = wf.delete_session_tensor("")
    with wf.Session() as session:
        first = session.run(keep)
        session.run(deleter, {fed: first.handle})
        for again in (first.eval, first.delete):
            with pytest.raises(errors.InvalidArgumentError, match="keeps no tensor"):
                again()
        second = session.run(keep)
        name = second.handle
        del second
        settle()
        with pytest.raises(errors.InvalidArgumentError, match="keeps no tensor"):
            session.run(kept, {holder: name})
        name = session.run(keep).get_raw_handle()
        np.testing.assert_array_equal(session.run(kept, {holder: name}), [1.0, 2.0])
        _, wrong = wf.get_session_tensor(name, wf.int32)
        with pytest.raises(errors.InvalidArgumentError, match="float32"):
            session.run(wrong, {wrong.op.inputs[0]: name})


def test_handles_come_from_callables_and_partial_runs() -> None:
    x = wf.placeholder(wf.float32, [])
    keep = wf.get_session_handle(x * 2.0)
    with wf.Session() as session:
        assert session.make_callable(keep, [x])(3.0).eval() == 6.0
        handle = session.partial_run_setup([keep], [x])
        assert session.partial_run(handle, keep, {x: 4.0}).eval() == 8.0
