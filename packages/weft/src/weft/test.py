"""`wf.test`: test cases and gradient checks."""

from unittest import mock as mock

from weft import _lazy
from weft_autodiff.gradient_checker import *
from weft_exec.test_case import *

_lazy.hint(__name__)
