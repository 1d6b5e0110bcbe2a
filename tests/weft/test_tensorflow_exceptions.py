"""Errors are of the classes that programs written for TensorFlow 1 catch, and of weft's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest

import weft as wf
from weft import errors


@pytest.fixture(autouse=True)
def graph() -> Iterator[wf.Graph]:
    with wf.Graph().as_default() as graph:
        yield graph


class Case(NamedTuple):
    provoke: Callable[[], Any]
    classes: tuple[type[BaseException], ...]


def session() -> wf.Session:
    wf.constant(1, name="known")
    return wf.Session()


def elsewhere() -> wf.Tensor:
    with wf.Graph().as_default():
        return wf.constant(1)


def run_function(function: Callable[[], Any]) -> Any:
    with wf.Session() as session:
        return session.run(wf.py_func(function, [], wf.float32))


def pad_at_run_time() -> Any:
    fed = wf.placeholder(wf.float32)
    batches = wf.data.Dataset.from_tensors(fed).padded_batch(1, [3])
    iterator = batches.make_initializable_iterator()
    element = iterator.get_next()
    with wf.Session() as session:
        session.run(iterator.initializer, {fed: np.zeros(5)})
        return session.run(element)


def feed_of(dtype: Any, value: Any) -> Any:
    fed = wf.placeholder(dtype, [])
    return wf.Session().run(fed, {fed: value})


def register_gradient_twice() -> None:
    for _ in range(2):
        wf.RegisterGradient("RegisteredTwiceInATest")(lambda _, grad: grad)


def csv(**attributes: Any) -> Any:
    return wf.decode_csv("1,2", [[1], [2]], **attributes)


CASES = {
    "fetch a name": Case(lambda: session().run("x:0"), (KeyError, ValueError)),
    "fetch an operation's name": Case(lambda: session().run("x"), (KeyError, ValueError)),
    "fetch another port": Case(lambda: session().run("known:1"), (KeyError, ValueError)),
    "fetch of another graph": Case(lambda: session().run(elsewhere()), (ValueError,)),
    "feed a name": Case(lambda: session().run("known:0", {"x:0": 1}), (TypeError, KeyError)),
    "feed of another graph": Case(
        lambda: session().run("known:0", {elsewhere(): 1}), (TypeError, ValueError)
    ),
    "an operation by a tensor's name": Case(
        lambda: session().graph.get_operation_by_name("x:0"), (KeyError, ValueError)
    ),
    "a tensor by name": Case(
        lambda: session().graph.get_tensor_by_name("x:0"), (KeyError, ValueError)
    ),
    "extract an unknown node": Case(
        lambda: wf.graph_util.extract_sub_graph(wf.GraphDef(), ["x"]), (KeyError, ValueError)
    ),
    "an empty graph, a name": Case(
        lambda: wf.Session().run("x:0"), (RuntimeError, KeyError, ValueError)
    ),
    "an empty graph, a tensor": Case(
        lambda: wf.Session().run(elsewhere()), (RuntimeError, ValueError)
    ),
    "a constant out of range": Case(
        lambda: wf.constant(2**40, wf.int32), (TypeError, ValueError, OverflowError)
    ),
    "a constant in no type": Case(lambda: wf.constant(2**70), (TypeError, OverflowError)),
    "a float out of range": Case(lambda: feed_of(wf.int8, 1e9), (TypeError, ValueError)),
    "a feed out of range": Case(lambda: feed_of(wf.int8, 300), (TypeError, ValueError)),
    "eval without a session": Case(lambda: wf.constant(1).eval(), (ValueError,)),
    "run without a session": Case(lambda: wf.no_op().run(), (ValueError,)),
    "padding that is too short": Case(
        pad_at_run_time, (errors.DataLossError, errors.InvalidArgumentError)
    ),
    "a gradient twice": Case(register_gradient_twice, (KeyError, errors.AlreadyExistsError)),
    "a divergence twice": Case(
        lambda: wf.distributions.RegisterKL(*[wf.distributions.Normal] * 2)(len), (ValueError,)
    ),
    "a converter of no type": Case(
        lambda: wf.register_tensor_conversion_function(3, len), (TypeError,)
    ),
    "a converter that is no function": Case(
        lambda: wf.register_tensor_conversion_function(Case, 3), (TypeError,)
    ),
    "py_func of no function": Case(
        lambda: wf.py_func("f", [1.0], wf.float32), (ValueError, TypeError)
    ),
    "py_func: an object": Case(
        lambda: run_function(lambda: {"a": 1.0}),
        (errors.InternalError, errors.InvalidArgumentError),
    ),
    "py_func: None in a list": Case(
        lambda: run_function(lambda: [None]), (errors.InternalError, errors.InvalidArgumentError)
    ),
    "py_func: a NumPy type": Case(
        lambda: run_function(lambda: np.array([], dtype=[("a", np.float32)])),
        (errors.InternalError, errors.InvalidArgumentError),
    ),
    "py_func: another type": Case(
        lambda: run_function(lambda: np.int64(1)), (errors.InvalidArgumentError,)
    ),
    "csv: defaults": Case(lambda: wf.decode_csv("1", np.array([0])), (TypeError,)),
    "csv: columns": Case(
        lambda: wf.decode_csv("1", [[0]], select_cols=np.array([0])), (TypeError,)
    ),
    "csv: delimiter": Case(lambda: csv(field_delim=[";"]), (TypeError,)),
    "csv: quotes": Case(lambda: csv(use_quote_delim=np.array([True])), (TypeError,)),
    "csv: missing value": Case(lambda: csv(na_value=np.array(["-"])), (TypeError,)),
    "an unknown target": Case(
        lambda: wf.Session("mesos://host"), (errors.NotFoundError, errors.InvalidArgumentError)
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_each_class_catches_it(name: str) -> None:
    case = CASES[name]
    with pytest.raises(errors.OpError) as caught:
        case.provoke()
    missing = [each.__name__ for each in case.classes if not isinstance(caught.value, each)]
    assert not missing, type(caught.value).__mro__
    assert caught.value.message


def test_the_classes_cross_process_borders() -> None:
    from weft_tensor.errors import (
        EmptyGraphError,
        OpError,
        PaddingError,
        UnknownFeedError,
        UnsupportedResultError,
    )

    for kind in (EmptyGraphError, PaddingError, UnknownFeedError, UnsupportedResultError):
        assert type(OpError.from_dict(kind("text").to_dict())) is kind
