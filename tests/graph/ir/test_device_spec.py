"""Device names and requests: forms, parts that change, merging, equality."""

from __future__ import annotations

import pytest

import weft as wf
from weft import errors


def test_the_parts_make_the_canonical_form() -> None:
    spec = wf.DeviceSpec(job="ps", replica=0, task=1, device_type="gpu", device_index=2)
    assert spec.to_string() == "/job:ps/replica:0/task:1/device:GPU:2"
    assert wf.DeviceSpec.from_string(spec.to_string()) == spec
    assert wf.DeviceSpec(device_type="CPU").to_string() == "/device:CPU:*"
    assert wf.DeviceSpec().to_string() == ""


def test_parts_are_set_and_merged_in_place() -> None:
    spec = wf.DeviceSpec(job="ps")
    spec.task, spec.device_type = 1, "cpu"
    spec.merge_from(wf.DeviceSpec(task=2, device_index=3))
    assert spec.to_string() == "/job:ps/task:2/device:CPU:3"
    spec.task = None
    assert spec.task is None
    assert spec.parse_from_string("/gpu:1") is spec
    assert (spec.job, spec.device_type, spec.device_index) == (None, "GPU", 1)


def test_changing_one_changes_no_other() -> None:
    first = wf.DeviceSpec.from_string("/job:a")
    merged, replaced = first.make_merged_spec(wf.DeviceSpec(task=1)), first.replace(job="b")
    first.job = "c"
    assert merged.to_string() == "/job:a/task:1"
    assert replaced.job == "b"
    assert wf.DeviceSpec.from_string("/job:a").job == "a"


def test_equal_specs_hash_alike() -> None:
    assert (
        len({wf.DeviceSpec.from_string("/gpu:0"), wf.DeviceSpec(None, None, None, "GPU", 0)}) == 1
    )
    assert wf.DeviceSpec(job="a") != wf.DeviceSpec(job="b")


@pytest.mark.parametrize(
    ("outer", "inner", "merged"),
    [
        ("/gpu:1", "/gpu:*", "/device:GPU:1"),
        ("/gpu:1", "/cpu:*", "/device:CPU:*"),
        ("/gpu:1", "/gpu:0", "/device:GPU:0"),
        ("/job:a/gpu:1", "/job:b", "/job:b/device:GPU:1"),
    ],
)
def test_inner_requests_refine_outer_ones(outer: str, inner: str, merged: str) -> None:
    spec = wf.DeviceSpec.from_string(outer)
    assert spec.make_merged_spec(wf.DeviceSpec.from_string(inner)).to_string() == merged
    with wf.Graph().as_default(), wf.device(outer), wf.device(inner):
        assert wf.constant(1.0).device == merged


def test_a_block_requests_the_spec_as_it_was_at_its_beginning() -> None:
    spec = wf.DeviceSpec(device_type="CPU", device_index=0)
    with wf.Graph().as_default(), wf.device(spec):
        spec.device_index = 1
        assert wf.constant(1.0).device == "/device:CPU:0"


def test_a_function_may_answer_with_a_spec() -> None:
    with wf.Graph().as_default(), wf.device(lambda node: wf.DeviceSpec(job=node.name)):
        assert wf.constant(1.0, name="c").device == "/job:c"


def test_what_is_no_number_is_refused() -> None:
    with pytest.raises(errors.InvalidArgumentError, match="must be a number"):
        wf.DeviceSpec.from_string("/gpu:x")
