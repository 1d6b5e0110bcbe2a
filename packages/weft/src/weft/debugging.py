"""`wf.debugging`: assertions and checks."""

from weft import _lazy
from weft_exec.settings import (
    disable_check_numerics as disable_check_numerics,
    enable_check_numerics as enable_check_numerics,
    get_log_device_placement as get_log_device_placement,
    set_log_device_placement as set_log_device_placement,
)
from weft_graph.ops import identity as _identity
from weft_graph.ops.checks import *
from weft_graph.ops.control import Assert as Assert
from weft_graph.ops.elementary import is_finite as is_finite, is_inf as is_inf, is_nan as is_nan
from weft_graph.ops.identity import check_numerics as check_numerics
from weft_graph.ops.shape_checks import assert_shapes as assert_shapes

assert_all_finite = _identity.verify_tensor_all_finite

_lazy.hint(__name__)
