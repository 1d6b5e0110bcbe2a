"""Gradients by extending the graph, and the optimizers over them."""

from __future__ import annotations

from weft_autodiff.gradients.backprop import gradients
from weft_autodiff.registry import NotDifferentiable, RegisterGradient

__all__ = ["NotDifferentiable", "RegisterGradient", "gradients"]
