"""Compiled loops over TensorArrays and stacks raise the same errors as kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from weft_testing.parts import Parts

import weft as wf
from weft_compiler.lower import whole_loop
from weft_graph.ops.stack import stack_pop_v2, stack_push_v2, stack_v2
from weft_tensor import errors


@pytest.fixture
def lowered(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The loops that were lowered."""
    monkeypatch.setenv("WEFT_JIT", "now")
    found: list[Any] = []
    lower = whole_loop.lower_loop

    def noted(*given: Any) -> Any:
        found.append(lower(*given))
        return found[-1]

    monkeypatch.setattr(whole_loop, "lower_loop", noted)
    return found


def read(index: Any, **options: Any) -> Any:
    array = wf.TensorArray(wf.float32, 4, element_shape=[2], **options).unstack(wf.ones([4, 2]))
    turn = lambda i, total: (i + 1, total * 2.0 + array.read(index(i)))  # noqa: E731
    return wf.while_loop(lambda i, _: i < 3, turn, [0, wf.zeros([2])])[1]


def write(index: Any, **options: Any) -> Any:
    array = wf.TensorArray(wf.float32, 4, element_shape=[2], **options)
    turn = lambda i, a: (i + 1, a.write(index(i), wf.ones([2]) * wf.to_float(i)))  # noqa: E731
    return wf.while_loop(lambda i, _: i < 3, turn, [0, array])[1].gather([1, 2])


def pop(index: Any) -> Any:
    """Pop as many values as `index` has at 2, of a stack of 3."""
    handle = stack_v2(-1, wf.float32)

    def pushed(i: Any, x: Any) -> Any:
        return i + 1, stack_push_v2(handle, x * 2.0)

    def popped(i: Any, total: Any) -> Any:
        value = stack_pop_v2(handle, wf.float32)
        value.set_shape([2])
        return i + 1, total * 3.0 + value

    last = wf.while_loop(lambda i, _: i < 3, pushed, [0, wf.ones([2])])[1]
    with wf.control_dependencies([last]):
        start, count = wf.zeros([2]), index(2)
    return wf.while_loop(lambda i, _: i < count, popped, [0, start])[1]


REFUSED = {
    read: [
        ("moves", 2, {}, r"index 4 to read is not in \[0, 4\)"),
        ("moves", -1, {}, r"index -1 to read is not in \[0, 4\)"),
        ("moves", 2, {"clear_after_read": False}, r"index 4 to read is not in \[0, 4\)"),
        ("stays", 1, {}, "cannot be read twice"),
    ],
    write: [
        ("moves", 2, {}, r"index 4 to write is not in \[0, 4\)"),
        ("moves", -1, {}, r"index -1 to write is not in \[0, 4\)"),
        ("moves", -1, {"dynamic_size": True}, "index -1 to write"),
        ("stays", 1, {}, "has been written already"),
    ],
    pop: [("moves", 2, {}, "is empty")],
}
TAKEN = {
    read: [("moves", 0, {}, 7), ("stays", 1, {"clear_after_read": False}, 7)],
    write: [("moves", 0, {}, [[1, 1], [2, 2]]), ("moves", 1, {}, [[0, 0], [1, 1]])],
    pop: [("moves", 1, {}, 8 * 9 + 4 * 3 + 2), ("moves", 0, {}, 8 * 3 + 4)],
}


def run(use: Any, how: str, offset: int, options: dict[str, Any]) -> Any:
    with wf.Graph().as_default(), wf.Session() as session:
        fed = wf.placeholder(wf.int32, [])
        index = (lambda i: i + fed) if how == "moves" else (lambda _: fed)
        return session.run(use(index, **options), {fed: offset})


@pytest.mark.parametrize("use", TAKEN)
def test_a_compiled_loop_refuses_what_kernels_refuse(lowered: list[Any], use: Any) -> None:
    with Parts() as parts:
        for how, offset, options, expected in TAKEN[use]:
            with parts.part(f"{how} from {offset} {options}"):
                got = run(use, how, offset, options)
                np.testing.assert_array_equal(got, np.broadcast_to(expected, got.shape))
        for how, offset, options, words in REFUSED[use]:
            with parts.part(words), pytest.raises(errors.InvalidArgumentError, match=words):
                run(use, how, offset, options)
    assert lowered
