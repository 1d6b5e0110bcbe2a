"""`wf.errors`: error classes and codes."""

from __future__ import annotations

from weft_tensor.errors import ABORTED as ABORTED
from weft_tensor.errors import ALREADY_EXISTS as ALREADY_EXISTS
from weft_tensor.errors import AbortedError as AbortedError
from weft_tensor.errors import AlreadyExistsError as AlreadyExistsError
from weft_tensor.errors import CANCELLED as CANCELLED
from weft_tensor.errors import CancelledError as CancelledError
from weft_tensor.errors import DATA_LOSS as DATA_LOSS
from weft_tensor.errors import DEADLINE_EXCEEDED as DEADLINE_EXCEEDED
from weft_tensor.errors import DataLossError as DataLossError
from weft_tensor.errors import DeadlineExceededError as DeadlineExceededError
from weft_tensor.errors import FAILED_PRECONDITION as FAILED_PRECONDITION
from weft_tensor.errors import FailedPreconditionError as FailedPreconditionError
from weft_tensor.errors import INTERNAL as INTERNAL
from weft_tensor.errors import INVALID_ARGUMENT as INVALID_ARGUMENT
from weft_tensor.errors import InternalError as InternalError
from weft_tensor.errors import InvalidArgumentError as InvalidArgumentError
from weft_tensor.errors import NOT_FOUND as NOT_FOUND
from weft_tensor.errors import NotFoundError as NotFoundError
from weft_tensor.errors import OK as OK
from weft_tensor.errors import OUT_OF_RANGE as OUT_OF_RANGE
from weft_tensor.errors import OpError as OpError
from weft_tensor.errors import OutOfRangeError as OutOfRangeError
from weft_tensor.errors import PERMISSION_DENIED as PERMISSION_DENIED
from weft_tensor.errors import PermissionDeniedError as PermissionDeniedError
from weft_tensor.errors import RESOURCE_EXHAUSTED as RESOURCE_EXHAUSTED
from weft_tensor.errors import ResourceExhaustedError as ResourceExhaustedError
from weft_tensor.errors import UNAUTHENTICATED as UNAUTHENTICATED
from weft_tensor.errors import UNAVAILABLE as UNAVAILABLE
from weft_tensor.errors import UNIMPLEMENTED as UNIMPLEMENTED
from weft_tensor.errors import UNKNOWN as UNKNOWN
from weft_tensor.errors import UnauthenticatedError as UnauthenticatedError
from weft_tensor.errors import UnavailableError as UnavailableError
from weft_tensor.errors import UnimplementedError as UnimplementedError
from weft_tensor.errors import UnknownError as UnknownError
from weft_tensor.errors import error_code_from_exception_type as error_code_from_exception_type
from weft_tensor.errors import exception_type_from_error_code as exception_type_from_error_code
