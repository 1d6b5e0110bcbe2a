"""`wf.debugging`: assertions and checks."""

from __future__ import annotations

from weft_graph.ops.checks import assert_equal as assert_equal
from weft_graph.ops.checks import assert_greater as assert_greater
from weft_graph.ops.checks import assert_greater_equal as assert_greater_equal
from weft_graph.ops.checks import assert_integer as assert_integer
from weft_graph.ops.checks import assert_less as assert_less
from weft_graph.ops.checks import assert_less_equal as assert_less_equal
from weft_graph.ops.checks import assert_near as assert_near
from weft_graph.ops.checks import assert_negative as assert_negative
from weft_graph.ops.checks import assert_non_negative as assert_non_negative
from weft_graph.ops.checks import assert_non_positive as assert_non_positive
from weft_graph.ops.checks import assert_none_equal as assert_none_equal
from weft_graph.ops.checks import assert_positive as assert_positive
from weft_graph.ops.checks import assert_proper_iterable as assert_proper_iterable
from weft_graph.ops.checks import assert_rank as assert_rank
from weft_graph.ops.checks import assert_rank_at_least as assert_rank_at_least
from weft_graph.ops.checks import assert_rank_in as assert_rank_in
from weft_graph.ops.checks import assert_same_float_dtype as assert_same_float_dtype
from weft_graph.ops.checks import assert_scalar as assert_scalar
from weft_graph.ops.checks import assert_shapes as assert_shapes
from weft_graph.ops.checks import assert_type as assert_type
from weft_graph.ops.checks import is_non_decreasing as is_non_decreasing
from weft_graph.ops.checks import is_numeric_tensor as is_numeric_tensor
from weft_graph.ops.checks import is_strictly_increasing as is_strictly_increasing
from weft_graph.ops.control import Assert as Assert
from weft_graph.ops.elementary import is_finite as is_finite
from weft_graph.ops.elementary import is_inf as is_inf
from weft_graph.ops.elementary import is_nan as is_nan
from weft_graph.ops.identity import check_numerics as check_numerics
