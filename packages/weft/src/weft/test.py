"""`wf.test`: test cases and gradient checks."""

import typing as _typing
from unittest import mock as mock

from weft_autodiff.gradient_checker import *
from weft_exec.test_case import *
from weft_exec.test_helpers import *

if _typing.TYPE_CHECKING:
    from weft_distrib.launch.in_process import *
else:
    from weft import _lazy

    __getattr__, __dir__ = _lazy.attach(__name__, "weft_distrib.launch.in_process")
