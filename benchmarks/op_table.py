"""The nodes of the op benchmark: inputs of a given size, made from an op's first cases."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

from weft_testing.cases import Case, load_cases

import weft as wf
from weft_exec.kernels.registry import registered_kernels
from weft_graph.ir.builder import create, out
from weft_tensor import dtypes, errors
from weft_tensor.shape import num_elements

FEWEST = 0.4
"""Of the elements asked for: cases that cannot be scaled so far are left out."""

MATRICES = {"MatMul", "BatchMatMul", "BatchMatMulV2"}
"""Whose inner size grows with the others."""


def entries(size: int, ops: list[str]) -> Iterator[dict[str, Any]]:
    """Return for each op a description from which a child process builds the node without weft."""
    first: dict[str, list[Case]] = {}
    for family in load_cases().values():
        for case in family:
            first.setdefault(case.op, []).append(case)
    have = {op for op, _ in registered_kernels()}
    for op, cases in sorted(first.items()):
        if op in have and (not ops or op in ops):
            found = next(filter(None, (_entry(case, size) for case in cases[:4])), None)
            if found:
                yield found


def _entry(case: Case, size: int) -> dict[str, Any] | None:
    traits = case.op_def.traits
    if traits.asynchronous or traits.host_code or case.prepare or not case.inputs:
        return None
    if any(arg.is_ref or (not arg.is_list and arg.dtype in _HANDLES) for arg in case.op_def.inputs):
        return None
    dtype = "float32" if "float32" in case.dtypes else case.dtypes[0]
    base = [a for x in case.arrays(dtype) for a in (x if isinstance(x, list) else [x])]
    grouped = [len(x) if isinstance(x, list) else 0 for x in case.arrays(dtype)]
    names = [arg.name for arg in case.op_def.inputs]
    for axis, shapes in _scaled(case, base, size):
        attrs = _made(case, dtype, base, shapes, grouped)
        if attrs is not None:
            arrays = [_plain(a, s) for a, s in zip(base, shapes, strict=True)]
            for name, told in zip(names, arrays, strict=False):
                if name in _SIZES and axis is not None:
                    told["values"][axis] *= round(
                        max(map(np.prod, shapes)) / max(a.size for a in base)
                    )
            return {
                "op": case.op, "names": names, "groups": grouped, "arrays": arrays, "attrs": attrs
            }  # fmt: skip
    return None


_HANDLES = (dtypes.resource, dtypes.variant)


_SIZES = ("input_sizes", "orig_input_shape")
"""Inputs that tell the shape of what is scaled."""


def _scaled(
    case: Case, base: list[Any], size: int
) -> Iterator[tuple[int | None, list[tuple[int, ...]]]]:
    """Scale shapes to about `size` elements in the largest input; return them with the scaled axis.

    That is axis 0 or the last one: of the inputs that are as long there as the first one, of all,
    or of the first one alone. A filter so keeps its size, where a batch has another.
    """
    constant = case.is_constant()
    varied = [a for a, fixed in zip(base, constant, strict=True) if not fixed]
    largest = max((a.size for a in varied), default=0)
    if not largest:
        return
    if case.op_def.traits.elementwise:
        yield None, [a.shape if fixed else (size,) for a, fixed in zip(base, constant, strict=True)]
    factor = max(1, round(size / largest))
    if case.op in MATRICES:
        side = max(1, round(size**0.5))
        yield None, [(*a.shape[:-2], side, side) for a in base]
    first = max((a for a, fixed in zip(base, constant, strict=True) if not fixed), key=np.size)
    for axis in (0, -1):
        for chosen in ("alike", "all", "first"):
            shapes, count = [], 0
            for array, fixed in zip(base, constant, strict=True):
                sizes = list(array.shape)
                alike = chosen != "alike" or (
                    first.ndim and sizes[axis:] and sizes[axis] == first.shape[axis]
                )
                if sizes and not fixed and alike and not (chosen == "first" and count):
                    sizes[axis] *= factor
                    count += 1
                shapes.append(tuple(sizes))
            yield axis, shapes


def _made(
    case: Case, dtype: str, base: list[Any], shapes: list[tuple[int, ...]], grouped: list[int]
) -> dict[str, Any] | None:
    """Return the node's attributes, or None if the node cannot be built or is too small."""
    attrs = dict(case.attrs)
    if dtype and case.type_attr in case.op_def.attrs:
        attrs[case.type_attr] = dtypes.as_dtype(dtype)
    with wf.Graph().as_default():
        fed = iter([_feed(a, s) for a, s in zip(base, shapes, strict=True)])
        try:
            inputs = [[next(fed) for _ in range(n)] if n else next(fed) for n in grouped]
            node = create(case.op, inputs, attrs)
        except errors.OpError:
            return None
        total = sum(num_elements(o.dims) or 0 for o in [*node.inputs, *node.outputs])
        if total < FEWEST * max(np.prod(s) for s in shapes):
            return None
        return {k: _told(v) for k, v in node.attrs.items() if k in case.op_def.attrs}


def _feed(array: Any, shape: tuple[int, ...]) -> Any:
    element = dtypes.string if array.dtype.kind == "O" else dtypes.from_numpy(array.dtype)
    return out("TestInput", (), {"dtype": element, "shape": shape})


def _told(value: Any) -> Any:
    if hasattr(value, "as_numpy_dtype"):
        return {"dtype": value.name}
    if isinstance(value, tuple):
        return [_told(item) for item in value]
    return value if not isinstance(value, np.ndarray) else {"array": value.tolist()}


def _plain(array: Any, shape: tuple[int, ...]) -> dict[str, Any]:
    """Return an array as its few distinct values and its shape."""
    text = array.dtype.kind == "O"
    values = (
        [v.decode("latin1") for v in array.reshape(-1)]
        if text
        else array.astype(np.complex128 if array.dtype.kind == "c" else np.float64).reshape(-1)
    )
    name = "string" if text else dtypes.from_numpy(array.dtype).name
    if not text and array.dtype.kind == "c":
        return {"dtype": name, "shape": shape, "values": [[v.real, v.imag] for v in values]}
    return {"dtype": name, "shape": shape, "values": list(values)}
