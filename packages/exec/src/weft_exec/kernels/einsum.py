"""The kernel of Einsum, which NumPy splits into matrix products."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from weft_exec.kernels.common import as_exact, widen_value
from weft_exec.kernels.registry import KernelFunction, kernel
from weft_graph.ops.einsum import einsum_dims, einsum_terms

if TYPE_CHECKING:
    from weft_exec.devices.device import Device
    from weft_graph.ir.node import Node


@kernel("Einsum", heavy=True, alias=True)  # "a->a" gives what it gets
def _einsum(node: Node, device: Device) -> KernelFunction:
    dtype, equation = node.outputs[0].dtype.numpy, node.attrs["equation"]
    terms, result = einsum_terms(equation, len(node.inputs))
    letters = result.replace("...", "")
    distinct = "".join(dict.fromkeys(letters))
    if len(distinct) < len(letters) and "..." in result:
        distinct = f"...{distinct}"
    expected = result if len(distinct) == len(letters) else distinct
    plain = f"{','.join(terms)}->{expected}"

    def run(*inputs: Any) -> Any:
        dims = einsum_dims(equation, [x.shape for x in inputs])  # where NumPy would broadcast
        matches = np.einsum(plain, *[widen_value(x) for x in inputs], optimize=len(inputs) > 1)
        if expected is not result:
            output = np.zeros([size or 0 for size in dims or ()], matches.dtype)
            np.einsum(f"{result}->{expected}", output)[...] = matches
            matches = output
        return as_exact(matches, dtype, device)

    return run
