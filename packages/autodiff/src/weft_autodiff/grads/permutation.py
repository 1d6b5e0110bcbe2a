"""Gradients of ops that reorder elements."""

from __future__ import annotations

import numpy as np

from weft_autodiff.registry import RegisterGradient
from weft_graph.ir.builder import constant_of, out
from weft_graph.ir.node import Node, Output
from weft_graph.ops.shape_rules import constant_array


@RegisterGradient("Transpose")
def _transpose(op: Node, grad: Output) -> list[Output | None]:
    return [out("Transpose", [grad, _inverse(op.inputs[1])]), None]


@RegisterGradient("ConjugateTranspose")
def _conjugate_transpose(op: Node, grad: Output) -> list[Output | None]:
    return [out("ConjugateTranspose", [grad, _inverse(op.inputs[1])]), None]


def _inverse(perm: Output) -> Output:
    constant = constant_array(perm)
    if constant is not None:
        return constant_of(np.argsort(constant).astype(constant.dtype))
    return out("InvertPermutation", [perm])


@RegisterGradient("Reverse")
def _reverse(op: Node, grad: Output) -> list[Output | None]:
    return [out("Reverse", [grad, op.inputs[1]]), None]


@RegisterGradient("ReverseV2")
def _reverse_v2(op: Node, grad: Output) -> list[Output | None]:
    return [out("ReverseV2", [grad, op.inputs[1]]), None]


@RegisterGradient("ReverseSequence")
def _reverse_sequence(op: Node, grad: Output) -> list[Output | None]:
    attrs = {"seq_dim": op.attrs["seq_dim"], "batch_dim": op.attrs["batch_dim"]}
    return [out("ReverseSequence", [grad, op.inputs[1]], attrs), None]


@RegisterGradient("Roll")
def _roll(op: Node, grad: Output) -> list[Output | None]:
    _, shift, axis = op.inputs
    return [out("Roll", [grad, out("Neg", [shift]), axis]), None, None]
