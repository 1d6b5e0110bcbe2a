"""Optimizers, one module per family."""

from __future__ import annotations

from weft_autodiff.optimizers.adadelta import AdadeltaOptimizer
from weft_autodiff.optimizers.adagrad import (
    AdagradDAOptimizer,
    AdagradOptimizer,
    ProximalAdagradOptimizer,
)
from weft_autodiff.optimizers.adam import AdamOptimizer
from weft_autodiff.optimizers.ftrl import FtrlOptimizer
from weft_autodiff.optimizers.gradient_descent import (
    GradientDescentOptimizer,
    ProximalGradientDescentOptimizer,
)
from weft_autodiff.optimizers.momentum import MomentumOptimizer
from weft_autodiff.optimizers.optimizer import Optimizer
from weft_autodiff.optimizers.rmsprop import RMSPropOptimizer

__all__ = [
    "AdadeltaOptimizer",
    "AdagradDAOptimizer",
    "AdagradOptimizer",
    "AdamOptimizer",
    "FtrlOptimizer",
    "GradientDescentOptimizer",
    "MomentumOptimizer",
    "Optimizer",
    "ProximalAdagradOptimizer",
    "ProximalGradientDescentOptimizer",
    "RMSPropOptimizer",
]
