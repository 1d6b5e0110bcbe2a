"""`wf.math`: mathematics."""

from weft import _lazy
from weft.math import special as special
from weft_graph.metrics.classes import confusion_matrix as confusion_matrix
from weft_graph.nn.activation import zero_fraction as zero_fraction
from weft_graph.nn.approximate import approx_max_k as approx_max_k, approx_min_k as approx_min_k
from weft_graph.nn.statistics import l2_normalize as l2_normalize
from weft_graph.ops import division as _division
from weft_graph.ops.arithmetic import *
from weft_graph.ops.arithmetic import multiply_no_nan as multiply_no_nan
from weft_graph.ops.bessel import (
    bessel_i0 as bessel_i0,
    bessel_i0e as bessel_i0e,
    bessel_i1 as bessel_i1,
    bessel_i1e as bessel_i1e,
)
from weft_graph.ops.casting import angle as angle, conj as conj, imag as imag, real as real
from weft_graph.ops.checks import (
    is_non_decreasing as is_non_decreasing,
    is_strictly_increasing as is_strictly_increasing,
)
from weft_graph.ops.comparison import *
from weft_graph.ops.division import *
from weft_graph.ops.division import reciprocal_no_nan as reciprocal_no_nan
from weft_graph.ops.elementary import *
from weft_graph.ops.elementary import (
    nextafter as nextafter,
    polyval as polyval,
    xdivy as xdivy,
    xlog1py as xlog1py,
    xlogy as xlogy,
)
from weft_graph.ops.nn import (
    log_softmax as log_softmax,
    softmax as softmax,
    softplus as softplus,
    softsign as softsign,
)
from weft_graph.ops.permutation import invert_permutation as invert_permutation
from weft_graph.ops.powers import *
from weft_graph.ops.reduction import *
from weft_graph.ops.reduction import (
    cumulative_logsumexp as cumulative_logsumexp,
    reduce_euclidean_norm as reduce_euclidean_norm,
    reduce_std as reduce_std,
    reduce_variance as reduce_variance,
)
from weft_graph.ops.rounding import *
from weft_graph.ops.search import in_top_k as in_top_k, top_k as top_k
from weft_graph.ops.segments import *
from weft_graph.ops.sequence import bincount as bincount
from weft_graph.ops.special import *
from weft_graph.ops.special import (
    erfcinv as erfcinv,
    erfinv as erfinv,
    ndtri as ndtri,
)
from weft_graph.ops.trigonometry import *

divide_no_nan = _division.div_no_nan

_lazy.hint(__name__)
