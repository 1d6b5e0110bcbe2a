"""Modified Bessel functions, scaled by exponentials, over arrays of float32 or float64.

The coefficients are Chebyshev fits that were computed with 50 digits. Up to 8 they fit the
function, in x / 8; beyond 8 they fit sqrt(x) times the function, in 8 / x.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft_exec.kernels.common import Array
from weft_exec.kernels.special import apply_in_blocks, chebyshev
from weft_tensor.expansions import I0E_LARGE, I0E_SMALL, I1E_LARGE, I1E_SMALL


def _scaled(x: Array, small: Sequence[float], large: Sequence[float]) -> Any:
    """Evaluate a fit: of the function for |x| up to 8, of sqrt(|x|) times it beyond."""
    size = np.abs(x)
    near = chebyshev(small, np.minimum(size, 8) / 8, 16 if x.dtype == np.float32 else len(small))
    if not (size > 8).any():
        return near
    index = np.maximum(size, 8)
    far = chebyshev(large, 8 / index, 9 if x.dtype == np.float32 else len(large)) / np.sqrt(index)
    return np.where(size > 8, far, near)


@apply_in_blocks
def i0e(x: Array) -> Any:
    """Compute exp(-|x|) times the modified Bessel function of order 0."""
    return _scaled(x, I0E_SMALL, I0E_LARGE)


@apply_in_blocks
def i1e(x: Array) -> Any:
    """Compute exp(-|x|) times the modified Bessel function of order 1, which is odd."""
    value = _scaled(x, I1E_SMALL, I1E_LARGE)
    return np.where(np.abs(x) > 8, np.copysign(value, x), np.clip(x, -8, 8) * value)
