"""The gradient of Einsum: another Einsum for each operand."""

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
    return [_slope(index, terms, result, node.inputs, grad) for index in range(len(terms))]


def _slope(
    index: int, terms: Sequence[str], result: str, inputs: Sequence[Output], grad: Output
) -> Output:
    term, value = terms[index], inputs[index]
    other_terms = [label for i, label in enumerate(terms) if i != index]
    values = [conj(operand) for i, operand in enumerate(inputs) if i != index]
    letters = list(dict.fromkeys(term.replace("...", "")))
    actual = set("".join([result, *other_terms]))
    summed_letters = [
        letter for letter in letters if letter not in actual
    ]  # summed over, by this operand
    present = "".join(letter for letter in letters if letter in actual)
    dots = "..." if "..." in result or any("..." in label for label in other_terms) else ""
    slope = _einsum([result, *other_terms], dots + present, [grad, *values])
    broadcast_term = ("..." if "..." in term else "") + present + "".join(summed_letters)
    if summed_letters or dots or broadcast_term.startswith("..."):
        einsum = value if broadcast_term == term else _einsum([term], broadcast_term, [value])
        for _ in summed_letters:
            slope = out("ExpandDims", [slope, -1])
        slope = sum_to_shape(slope * out("OnesLike", [einsum]), einsum)
    return slope if broadcast_term == term else _einsum([broadcast_term], term, [slope])
