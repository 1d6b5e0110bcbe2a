"""`wf.test`: test cases and gradient checks."""

from __future__ import annotations

from weft_autodiff.gradient_checker import compute_gradient as compute_gradient
from weft_autodiff.gradient_checker import compute_gradient_error as compute_gradient_error
from weft_exec.test_case import TestCase as TestCase
from weft_exec.test_case import get_temp_dir as get_temp_dir
from weft_exec.test_case import gpu_device_name as gpu_device_name
from weft_exec.test_case import is_built_with_cuda as is_built_with_cuda
from weft_exec.test_case import is_gpu_available as is_gpu_available
from weft_exec.test_case import main as main
