"""Structures that are nested deeper than Python's stack, or contain themselves: named errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft as wf
from weft_tensor import errors

_DEPTH = 10_000


def _list(leaf: Any) -> Any:
    for _ in range(_DEPTH):
        leaf = [leaf]
    return leaf


def _tuple(leaf: Any) -> Any:
    for _ in range(_DEPTH):
        leaf = (leaf,)
    return leaf


def _dict(leaf: Any) -> Any:
    for _ in range(_DEPTH):
        leaf = {"a": leaf}
    return leaf


def _circle(leaf: Any) -> Any:
    found: list[Any] = [leaf]
    found.append(found)
    return found


def _circle_of_dicts(leaf: Any) -> Any:
    found: dict[str, Any] = {"a": leaf}
    found["b"] = found
    return found


MAKERS: list[Callable[[Any], Any]] = [_list, _tuple, _dict, _circle, _circle_of_dicts]


def _run(fetches: Any, feeds: Any = None) -> Any:
    with wf.Session() as session:
        return session.run(fetches, feeds)


def _generated(value: Any) -> Any:
    dataset = wf.data.Dataset.from_generator(lambda: iter([value]), wf.float32)
    return _run(wf.data.make_one_shot_iterator(dataset).get_next())


USES_OF_TENSORS: dict[str, Callable[[Any], Any]] = {
    "run": _run,
    "make_callable": lambda s: wf.Session().make_callable(s),
    "flatten": wf.nest.flatten,
    "map_structure": lambda s: wf.nest.map_structure(lambda x: x, s),
    "assert_same_structure": lambda s: wf.nest.assert_same_structure(s, s),
    "pack_sequence_as": lambda s: wf.nest.pack_sequence_as(s, [1]),
    "cond": lambda s: wf.cond(wf.constant(True), lambda: s, lambda: s),
    "case": lambda s: wf.case([(wf.constant(True), lambda: s)], default=lambda: s),
    "while_loop": lambda s: wf.while_loop(lambda *_: False, lambda *a: a, [s]),
    "map_fn": lambda s: wf.map_fn(lambda x: x, s),
    "map_fn's dtype": lambda s: wf.map_fn(lambda x: x, wf.constant([1.0]), dtype=s),
    "scan": lambda s: wf.scan(lambda a, x: a, s),
    "group": wf.group,
    "tuple": wf.tuple,
    "stack": wf.stack,
    "convert_to_tensor": wf.convert_to_tensor,
    "gradients": lambda s: wf.gradients(s, s),
    "placeholder's shape": lambda s: wf.placeholder(wf.float32, s),
    "control_dependencies": lambda s: wf.control_dependencies(s).__enter__(),
    "Defun": lambda s: wf.Defun()(lambda: s)(),
    "py_func's types": lambda s: wf.py_func(lambda: 0, [], s),
    "Assert": lambda s: wf.Assert(True, s),
    "from_tensors": wf.data.Dataset.from_tensors,
    "Dataset.map": lambda s: wf.data.Dataset.range(3).map(lambda _: s),
    "Dataset.zip": wf.data.Dataset.zip,
    "from_generator's types": lambda s: wf.data.Dataset.from_generator(lambda: iter([]), s),
    "padded_batch": lambda s: wf.data.Dataset.range(3).padded_batch(2, s),
    "from_structure": wf.data.Iterator.from_structure,
    "global_norm": wf.global_norm,
    "custom_gradient": lambda s: wf.custom_gradient(lambda x: (s, None))(wf.constant(1.0)),
    "Saver": wf.train.Saver,
}

USES_OF_VALUES: dict[str, Callable[[Any], Any]] = {
    "feed": lambda s: _run(x := wf.placeholder(wf.float32), {x: s}),
    "constant": wf.constant,
    "Variable": wf.Variable,
    "constant_initializer": lambda s: wf.constant_initializer(s)([2]),
    "make_tensor_proto": wf.make_tensor_proto,
    "py_func": lambda s: _run(wf.py_func(lambda: s, [], wf.float32)),
    "from_generator": _generated,
    "TensorShape": wf.TensorShape,
    "as_dtype": wf.as_dtype,
    "operand": lambda s: wf.constant(1.0) + s,
    "name": lambda s: wf.constant(1.0, name=s),
    "device": lambda s: wf.device(s).__enter__(),
    "attribute": lambda s: wf.raw_ops.Squeeze(input=wf.constant(1.0), axis=s),
}


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__[1:])
def test_structures_have_an_answer_or_a_named_error(make: Callable[[Any], Any]) -> None:
    wrong = []
    with wf.Graph().as_default():
        uses = [
            *((name, use, make(wf.constant(1.0))) for name, use in USES_OF_TENSORS.items()),
            *((name, use, make(1.0)) for name, use in USES_OF_VALUES.items()),
        ]
        for name, use, structure in uses:
            try:
                use(structure)
            except errors.UnsupportedResultError:
                continue  # an InternalError as in TensorFlow, and no fault of weft's
            except errors.InternalError as error:
                wrong.append((name, error.message))
            except errors.OpError:
                continue
            except Exception as error:  # because this is what must not be
                wrong.append((name, repr(error)))
    assert not wrong


def test_the_error_says_what_is_wrong() -> None:
    with pytest.raises(errors.InvalidArgumentError, match="got a list that is deeper or"):
        wf.nest.flatten(_circle(1))


def test_structures_that_the_stack_holds_are_taken() -> None:
    fetch: Any = wf.constant(3.0)
    for _ in range(150):
        fetch = [fetch]
    assert np.ravel(wf.nest.flatten(_run(fetch))) == [3.0]
