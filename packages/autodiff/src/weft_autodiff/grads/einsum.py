"""The gradient of Einsum: one more for each operand."""

from __future__ import annotations

from collections.abc import Sequence

from weft_autodiff.grads.common import conj, sum_to_shape
from weft_autodiff.registry import RegisterGradient
from weft_graph.ir.builder import out
from weft_graph.ir.node import Node, Output
from weft_graph.ops.einsum import einsum_terms


def _einsum(terms: Sequence[str], result: str, operands: Sequence[Output]) -> Output:
    return out("Einsum", [list(operands)], {"equation": f"{','.join(terms)}->{result}"})


@RegisterGradient("Einsum")
def _einsum_grad(node: Node, grad: Output) -> list[Output | None]:
    terms, result = einsum_terms(node.attrs["equation"], len(node.inputs))
    return [_slope(at, terms, result, node.inputs, grad) for at in range(len(terms))]


def _slope(
    at: int, terms: Sequence[str], result: str, inputs: Sequence[Output], grad: Output
) -> Output:
    term, value = terms[at], inputs[at]
    others = [each for i, each in enumerate(terms) if i != at]
    values = [conj(each) for i, each in enumerate(inputs) if i != at]
    letters = list(dict.fromkeys(term.replace("...", "")))
    have = set("".join([result, *others]))
    alone = [letter for letter in letters if letter not in have]  # summed over, by this operand
    kept = "".join(letter for letter in letters if letter in have)
    dots = "..." if "..." in result or any("..." in each for each in others) else ""
    slope = _einsum([result, *others], dots + kept, [grad, *values])
    own = ("..." if "..." in term else "") + kept + "".join(alone)
    if alone or dots or own.startswith("..."):
        turned = value if own == term else _einsum([term], own, [value])
        for _ in alone:
            slope = out("ExpandDims", [slope, -1])
        slope = sum_to_shape(slope * out("OnesLike", [turned]), turned)
    return slope if own == term else _einsum([own], term, [slope])
