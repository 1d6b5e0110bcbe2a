"""Fetches in classes of the package attrs, and feeds of NumPy's extended numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

import weft as wf


class _Field:
    def __init__(self, name: str) -> None:
        self.name = name


class Sample:
    """A class as `attr.s` makes it."""

    __attrs_attrs__ = (_Field("total"), _Field("parts"))
    __hash__ = None  # type: ignore[assignment] # as of classes with an __eq__

    def __init__(self, total: Any, parts: Any) -> None:
        self.total, self.parts = total, parts


def test_instances_of_attrs_classes_are_fetched_by_their_fields() -> None:
    x = wf.placeholder(wf.int32)
    nested = {"sample": Sample(x + 1, Sample(x * 2, [x]))}
    with wf.Session() as session:
        for value in (1, 5):
            got = session.run(nested, {x: value})["sample"]
            assert (type(got), got.total) == (Sample, value + 1)
            assert (got.parts.total, got.parts.parts) == (2 * value, [value])


def test_extended_numbers_are_fed_as_ordinary_ones() -> None:
    x, z = wf.placeholder(wf.float32, [None]), wf.placeholder(wf.complex64)
    feeds = {x: np.array([0.5, 2.0], np.longdouble), z: np.clongdouble(1j)}
    real, imaginary = wf.Session().run([x * 2, z], feeds)
    assert (real.dtype, real.tolist(), imaginary) == (np.float32, [1.0, 4.0], 1j)


def test_the_array_interface_makes_a_constant() -> None:
    class Wrapper:
        array = np.arange(3)
        __array_interface__ = array.__array_interface__

    assert wf.Session().run(wf.constant(Wrapper())).tolist() == [0, 1, 2]
