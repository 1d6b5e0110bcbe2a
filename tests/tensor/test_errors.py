"""Errors: codes, both constructors, context, the second paragraph, and crossing the wire."""

from __future__ import annotations

import copy
import json

import pytest
from hypothesis import given, strategies as st

from weft_tensor import errors

CLASSES = {
    1: errors.CancelledError,
    2: errors.UnknownError,
    3: errors.InvalidArgumentError,
    4: errors.DeadlineExceededError,
    5: errors.NotFoundError,
    6: errors.AlreadyExistsError,
    7: errors.PermissionDeniedError,
    8: errors.ResourceExhaustedError,
    9: errors.FailedPreconditionError,
    10: errors.AbortedError,
    11: errors.OutOfRangeError,
    12: errors.UnimplementedError,
    13: errors.InternalError,
    14: errors.UnavailableError,
    15: errors.DataLossError,
    16: errors.UnauthenticatedError,
}


@pytest.mark.parametrize(("code", "cls"), CLASSES.items())
def test_codes(code: int, cls: type[errors.OpError]) -> None:
    assert cls.code == code
    assert cls("x").error_code == code
    assert errors.from_code(code) is cls
    assert errors.exception_type_from_error_code(code) is cls
    assert errors.error_code_from_exception_type(cls) == code
    assert getattr(errors, cls.__name__) is cls
    assert len((cls.__doc__ or "").splitlines()) > 2, "the docstring is the help page"


def test_unknown_codes() -> None:
    assert errors.from_code(99) is errors.OpError
    with pytest.raises(errors.NotFoundError, match="99"):
        errors.exception_type_from_error_code(99)


@pytest.mark.parametrize(
    ("cls", "builtin"),
    [
        (errors.InvalidArgumentError, ValueError),
        (errors.InvalidTypeError, ValueError),
        (errors.InvalidTypeError, TypeError),
        (errors.NotFoundError, KeyError),
        (errors.UnimplementedError, NotImplementedError),
    ],
)
def test_builtin_kin(cls: type[errors.OpError], builtin: type[Exception]) -> None:
    with pytest.raises(builtin) as caught:
        raise cls("what happened")
    assert str(caught.value) == "what happened"


def test_message_alone() -> None:
    error = errors.InternalError("broken")
    assert str(error) == "broken"
    assert (error.op, error.node, error.device, error.line, error.inputs) == (None,) * 4 + ((),)
    assert errors.InternalError(message="broken").message == "broken"


def test_second_paragraph_names_the_place() -> None:
    error = errors.InvalidArgumentError("inner sizes differ", op="MatMul").with_context(
        op="Other",
        node="dense/MatMul",
        device="/device:CPU:0",
        line="train.py:12 in main",
        inputs=("float32[2,3]", "float32[4,5]"),
    )
    first, second = str(error).split("\n\n")
    assert first == error.message == "inner sizes differ"
    for part in ("MatMul", "dense/MatMul", "/device:CPU:0", "train.py:12 in main", "float32[4,5]"):
        assert part in second
    assert "Other" not in second, "what is known stays"
    assert "dense/MatMul" in repr(error)


class _NodeDef:
    name, op, device = "a/b", "MatMul", "/cpu:0"


class _Operation:
    name, type = "c/d", "Add"


def test_positional_form_of_tensorflow() -> None:
    plain = errors.NotFoundError(None, None, "gone")
    assert (plain.message, plain.op, plain.node, plain.node_def) == ("gone", None, None, None)
    from_def = errors.NotFoundError(_NodeDef(), None, "gone")
    assert (from_def.op, from_def.node, from_def.device) == ("MatMul", "a/b", "/cpu:0")
    from_op = errors.OpError(None, _Operation(), "gone", 7)
    assert (from_op.op_type, from_op.node) == ("Add", "c/d")
    with pytest.raises(TypeError, match="2 arguments"):
        errors.NotFoundError("a", "b")


texts = st.none() | st.text(max_size=20)


@given(
    cls=st.sampled_from([errors.OpError, errors.InvalidTypeError, *CLASSES.values()]),
    message=st.text(),
    op=texts,
    node=texts,
    device=texts,
    line=texts,
    inputs=st.lists(st.text(max_size=9), max_size=3),
    details=st.dictionaries(st.text(max_size=5), st.integers() | st.lists(st.text(max_size=5))),
)
def test_round_trip_through_json(cls: type[errors.OpError], message: str, **fields: object) -> None:
    error = cls(message, **fields)  # type: ignore[arg-type]
    back = errors.OpError.from_dict(json.loads(json.dumps(error.to_dict())))
    assert type(back) is cls
    assert back.to_dict() == error.to_dict()
    assert str(back) == str(error)


def test_copies_keep_everything() -> None:
    error = errors.DataLossError("bad", node="n", details={"offset": 3})
    assert copy.deepcopy(error).to_dict() == error.to_dict()


def test_a_type_of_a_newer_peer_becomes_the_class_of_its_code() -> None:
    data = {"code": 15, "type": "ShardLossError", "message": "m"}
    assert type(errors.OpError.from_dict(data)) is errors.DataLossError
    stranger = errors.OpError.from_dict({"code": 77, "type": "X", "message": "m"})
    assert type(stranger) is errors.OpError
    assert stranger.details == {"code": 77}


def test_a_type_can_not_disagree_with_its_code() -> None:
    data = {"code": 15, "type": "CancelledError", "message": "m"}
    assert type(errors.OpError.from_dict(data)) is errors.DataLossError


class _Special(errors.AbortedError):
    def __init__(self, worker: int) -> None:
        super().__init__(f"worker {worker} left", details={"worker": worker})


def test_subclasses_with_constructors_of_their_own_cross_too() -> None:
    back = errors.OpError.from_dict(_Special(3).to_dict())
    assert type(back) is _Special
    assert back.details == {"worker": 3}


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"code": "3", "message": "m"},
        {"code": 3},
        {"code": 3, "message": 4},
        {"code": 3, "message": "m", "inputs": [1]},
        {"code": 3, "message": "m", "inputs": "float32"},
        {"code": 3, "message": "m", "node": 5},
        {"code": 3, "message": "m", "details": []},
        {"code": 3, "message": "m", "type": []},
    ],
)
def test_hostile_data_is_refused(data: dict[str, object]) -> None:
    with pytest.raises(errors.DataLossError, match="an error's"):
        errors.OpError.from_dict(data)


def test_a_copy_says_the_same_and_is_told_its_own_place() -> None:
    error = errors.AbortedError("gone", op="Add", details={"bytes": 1})
    error.__cause__ = OSError("below")
    try:
        raise error
    except errors.AbortedError:
        twin = error.copy()
    twin.with_context(node="a").details["bytes"] = 2
    assert type(twin) is errors.AbortedError
    assert (twin.message, twin.op, twin.args) == ("gone", "Add", error.args)
    assert (error.node, error.details) == (None, {"bytes": 1})
    assert twin.__cause__ is error.__cause__
    assert twin.__traceback__ is None
