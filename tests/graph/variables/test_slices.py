"""Slices of variables that are assigned to."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft as wf
from weft_tensor import errors


@pytest.mark.parametrize("resource", [False, True])
def test_a_slice_is_assigned_to(resource: bool) -> None:
    with wf.Graph().as_default(), wf.Session() as session:
        x = wf.get_variable("x", [2, 3], use_resource=resource, initializer=wf.zeros_initializer())
        session.run(x.initializer)
        value: Any = session.run(x[1, 1:].assign([5.0, 6.0]))
        np.testing.assert_array_equal(value, [[0, 0, 0], [0, 5, 6]])
        np.testing.assert_array_equal(session.run(x[..., 0].assign(7.0)), [[7, 0, 0], [7, 5, 6]])
        with pytest.raises(errors.InvalidArgumentError):
            x[0, :2].assign([1.0, 2.0, 3.0])
        assert not hasattr(wf.identity(x)[0], "assign")
        assert not hasattr(x[np.array([True, False])], "assign")


def test_references_are_keys() -> None:
    with wf.Graph().as_default():
        x, y = wf.Variable(1.0), wf.constant(1.0)
        table = {x.experimental_ref(): 1, y.ref(): 2}
        assert table[x.ref()] == 1 and table[y.experimental_ref()] == 2
        assert x.ref() != y.ref() and x.ref().deref() is x
