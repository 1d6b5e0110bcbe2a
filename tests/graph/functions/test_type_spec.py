"""Specs of values: equality, compatibility and the most specific common spec."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from weft_testing.parts import Parts

import weft as wf
from weft import errors

SPECS: list[tuple[wf.TypeSpec, str]] = [
    (wf.TensorSpec([None, 3]), "TensorSpec(shape=[?,3], dtype=float32, name=None)"),
    (wf.SparseTensorSpec([2, None], wf.int32), "SparseTensorSpec(shape=[2,?], dtype=int32)"),
    (
        wf.IndexedSlicesSpec([2, 3], wf.float64, wf.int32, wf.int64, [2]),
        "IndexedSlicesSpec([2,3], float64, int32, int64, [2])",
    ),
    (wf.TensorArraySpec([2], wf.int32, True, False), "TensorArraySpec([2], int32, True, False)"),
    (
        wf.OptionalSpec({"a": wf.TensorSpec([])}),
        "OptionalSpec({'a': TensorSpec(shape=[], dtype=float32, name=None)})",
    ),
    (wf.NoneTensorSpec(), "NoneTensorSpec()"),
    (
        wf.data.DatasetSpec(wf.SparseTensorSpec()),
        "DatasetSpec(SparseTensorSpec(shape=<unknown>, dtype=float32), [])",
    ),
]


def test_specs_are_equal_to_themselves_alone() -> None:
    for i, (spec, text) in enumerate(SPECS):
        assert repr(spec) == text
        for j, (other, _) in enumerate(SPECS):
            assert (spec == other) is (i == j)
            assert spec.is_compatible_with(other) is (i == j)
        assert hash(spec) == hash(spec.most_specific_compatible_type(spec))
        assert spec.most_specific_compatible_type(spec) == spec


WIDER: list[tuple[Any, Any, Any]] = [
    (wf.SparseTensorSpec([2, 3]), wf.SparseTensorSpec([2, 4]), wf.SparseTensorSpec([2, None])),
    (wf.SparseTensorSpec([2]), wf.SparseTensorSpec([2, 4]), wf.SparseTensorSpec()),
    (wf.TensorSpec([None, 3]), wf.TensorSpec([2, 3]), wf.TensorSpec([None, 3])),
    (wf.IndexedSlicesSpec([2, 3]), wf.IndexedSlicesSpec([4, 3]), wf.IndexedSlicesSpec([None, 3])),
    (wf.TensorArraySpec([2]), wf.TensorArraySpec([3]), wf.TensorArraySpec([None])),
    (
        wf.OptionalSpec(wf.TensorSpec([2])),
        wf.OptionalSpec(wf.TensorSpec([3])),
        wf.OptionalSpec(wf.TensorSpec([None])),
    ),
]


def test_what_two_specs_have_in_common() -> None:
    for first, second, common in WIDER:
        assert first.most_specific_compatible_type(second) == common
        assert common.is_compatible_with(first) and common.is_compatible_with(second)
    for first, second in (
        (wf.SparseTensorSpec([2]), wf.SparseTensorSpec([2], wf.int32)),
        (wf.SparseTensorSpec([2]), wf.TensorSpec([2])),
        (wf.TensorArraySpec(), wf.TensorArraySpec(dynamic_size=True)),
        (wf.OptionalSpec(wf.TensorSpec([2])), wf.OptionalSpec((wf.TensorSpec([2]),))),
    ):
        with pytest.raises(errors.InvalidArgumentError, match="compatible with both"):
            first.most_specific_compatible_type(second)


VALUES: dict[str, tuple[Callable[[], Any], Any]] = {
    "tensor": (lambda: wf.ones([2, 3]), wf.TensorSpec([2, 3])),
    "number": (lambda: 3, wf.TensorSpec([], wf.int32)),
    "text": (lambda: "a", wf.TensorSpec([], wf.string)),
    "array": (lambda: np.ones(3), wf.TensorSpec([3], wf.float64)),
    "list of tensors": (lambda: [wf.ones([]), 2.0], wf.TensorSpec([2])),
    "variable": (lambda: wf.Variable([1.0]), wf.TensorSpec([1])),
    "sparse": (
        lambda: wf.SparseTensor([[0, 0]], [1], [2, 5]),
        wf.SparseTensorSpec([2, 5], wf.int32),
    ),
    "its value": (
        lambda: wf.SparseTensorValue([[0]], [1.0], [2]),
        wf.SparseTensorSpec([2], wf.float32),
    ),
    "slices": (
        lambda: wf.IndexedSlices(wf.ones([2, 3]), wf.constant([1, 2])),
        wf.IndexedSlicesSpec([None, 3], wf.float32, wf.int32, None, [2]),
    ),
    "array of tensors": (lambda: wf.TensorArray(wf.int32, 3), wf.TensorArraySpec(None, wf.int32)),
    "none": (lambda: None, wf.NoneTensorSpec()),
    "dataset": (
        lambda: wf.data.Dataset.range(3),
        wf.data.DatasetSpec(wf.TensorSpec([], wf.int64)),
    ),
    "optional": (
        lambda: wf.data.experimental.Optional.from_value({"a": 1}),
        wf.OptionalSpec({"a": wf.TensorSpec([], wf.int32)}),
    ),
}


def test_specs_of_values() -> None:
    with Parts() as parts:
        for name, (make, spec) in VALUES.items():
            with parts.part(name), wf.Graph().as_default():
                value = make()
                assert wf.type_spec_from_value(value) == spec
                assert spec.is_compatible_with(value)
                assert (
                    isinstance(value, spec.value_type)
                    or isinstance(spec, wf.TensorSpec)
                    or name == "its value"
                )
    assert not wf.TensorSpec([3]).is_compatible_with(wf.errors)


def test_elements_of_datasets_have_specs() -> None:
    with wf.Graph().as_default():
        sparse = wf.SparseTensor([[0, 0]], [1.0], [2, 5])
        dataset = wf.data.Dataset.from_tensor_slices({"a": [1, 2], "s": sparse})
        spec = {"a": wf.TensorSpec([], wf.int32), "s": wf.SparseTensorSpec([5])}
        assert dataset.element_spec == spec
        assert dataset.make_one_shot_iterator().element_spec == spec
        windows = wf.data.Dataset.range(3).window(2)
        assert windows.element_spec == wf.data.DatasetSpec(wf.TensorSpec([], wf.int64))
