"""Gradients of weftml-io's ops: none is differentiable, as their declarations say."""
