"""Errors of the operating system become ours, one way."""

from __future__ import annotations

import errno

import pytest

from weft_tensor import errors
from weft_tensor.os_errors import convert_os_errors, error_class

MEANINGS = {
    "EACCES": errors.PermissionDeniedError,
    "EAGAIN": errors.UnavailableError,
    "EBUSY": errors.FailedPreconditionError,
    "ECANCELED": errors.CancelledError,
    "ECONNREFUSED": errors.UnavailableError,
    "ECONNRESET": errors.UnavailableError,
    "EDQUOT": errors.ResourceExhaustedError,
    "EEXIST": errors.AlreadyExistsError,
    "EFBIG": errors.ResourceExhaustedError,
    "EHOSTUNREACH": errors.UnavailableError,
    "EINTR": errors.UnavailableError,
    "EINVAL": errors.InvalidArgumentError,
    "EIO": errors.DataLossError,
    "EISDIR": errors.FailedPreconditionError,
    "ELOOP": errors.InvalidArgumentError,
    "EMFILE": errors.ResourceExhaustedError,
    "ENAMETOOLONG": errors.InvalidArgumentError,
    "ENETUNREACH": errors.UnavailableError,
    "ENOENT": errors.NotFoundError,
    "ENOMEM": errors.ResourceExhaustedError,
    "ENOSPC": errors.ResourceExhaustedError,
    "ENOTDIR": errors.FailedPreconditionError,
    "ENOTEMPTY": errors.FailedPreconditionError,
    "EPERM": errors.PermissionDeniedError,
    "EPIPE": errors.UnavailableError,
    "EROFS": errors.PermissionDeniedError,
    "ESTALE": errors.AbortedError,
    "ETIMEDOUT": errors.DeadlineExceededError,
    "EXDEV": errors.UnimplementedError,
    "EMULTIHOP": errors.UnknownError,
}


@pytest.mark.parametrize("name", [name for name in MEANINGS if hasattr(errno, name)])
def test_what_each_number_means(name: str) -> None:
    found = error_class(OSError(getattr(errno, name), "refused"))
    assert found is MEANINGS[name]


def test_a_number_means_the_same_as_the_class_that_python_has_for_it() -> None:
    """A store may raise the class itself, so the table contains it."""
    checked = 0
    for number in errno.errorcode:
        kind = type(OSError(number, ""))
        if error_class(kind("no number")) is not errors.UnknownError:
            assert error_class(OSError(number, "")) is error_class(kind("no number")), number
            checked += 1
    assert checked > 10


def test_every_number_has_a_class_that_a_program_can_catch() -> None:
    for number in errno.errorcode:
        with pytest.raises(errors.OpError), convert_os_errors("reading", "a"):
            raise OSError(number, "refused")


@pytest.mark.parametrize("error", [OSError("what"), OSError(0, "what"), OSError(99999, "what")])
def test_others_are_unknown(error: OSError) -> None:
    assert error_class(error) is errors.UnknownError


def test_the_message_names_the_file() -> None:
    with pytest.raises(errors.NotFoundError) as raised, convert_os_errors("reading", "a/b"):
        raise FileNotFoundError(errno.ENOENT, "No such file", "a/b")
    assert raised.value.message == "reading a/b failed: No such file"
    assert raised.value.details == {"file": "a/b"}
    assert isinstance(raised.value.__cause__, FileNotFoundError)


def test_the_message_names_another_file_that_it_was_about() -> None:
    with pytest.raises(errors.ResourceExhaustedError) as raised, convert_os_errors("saving", "m"):
        raise OSError(errno.ENOSPC, "No space left", b"m.data")
    assert raised.value.message == "saving m failed: No space left (m.data)"


def test_the_message_of_a_store_without_numbers() -> None:
    with pytest.raises(errors.UnavailableError) as raised, convert_os_errors("reading", "s3://a"):
        raise ConnectionError("no route")
    assert raised.value.message == "reading s3://a failed: ConnectionError: no route"


def test_other_errors_pass() -> None:
    with pytest.raises(ValueError, match="mine"), convert_os_errors("reading", "a"):
        raise ValueError("mine")
