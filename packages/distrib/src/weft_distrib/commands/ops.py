"""`weft ops`: print the declarations of all installed ops, as text or for code generators."""

from __future__ import annotations

import argparse
import dataclasses
import enum
import inspect
import json
import math
import re
import sys
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Final

import numpy as np

from weft_graph.ir.op_def import declaring_module, lookup_op, registered_ops
from weft_graph.ir.op_signature import REQUIRED, ArgDef, AttrDef, OpDef
from weft_graph.ir.traits import Traits
from weft_tensor import dtypes, errors
from weft_tensor.dtypes import DType

FORMAT: Final = 1
"""Version of the JSON format, which grows when the meaning of a field changes."""

_FUNCTIONS: Final = frozenset({"scalar", "batch", "cost", "scratch", "cost_attrs"})
"""Traits that are left out: functions, and descriptions of functions."""


def add(parser: argparse.ArgumentParser) -> None:
    """List the declarations of ops, each with its family in brackets."""
    parser.add_argument(
        "pattern", nargs="*", help='names or patterns such as "MatMul" or "*Grad" (default: all)'
    )
    parser.add_argument(
        "--json",
        action="store_true",
        help="print inputs, outputs, attributes, defaults, documentation and traits as JSON",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the declarations of the selected ops."""
    names = _select_ops(arguments.pattern)
    if arguments.json:
        described = {"format": FORMAT, "ops": [describe(lookup_op(name)) for name in names]}
        json.dump(described, sys.stdout, indent=1, sort_keys=True)
        sys.stdout.write("\n")
        return 0
    for name in names:
        op_def = lookup_op(name)
        sys.stdout.write(f"{_signature(op_def)}  [{_family(name)}]\n")
        if op_def.doc:
            sys.stdout.write(f"    {op_def.doc}\n")
    return 0


def _select_ops(patterns: Sequence[str]) -> list[str]:
    names = registered_ops()
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise errors.NotFoundError(f"no installed package declares an op named {pattern!r}")
    return [
        name
        for name in names
        if not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)
    ]


# ------------------------------------------------------------------------------- JSON


def describe(op_def: OpDef) -> dict[str, Any]:
    """Return the declaration of an op as JSON.

    Returns: `name`; `package` and `family` of the module that declares it; `doc`; `inputs`,
      `outputs` and `attrs` in order; and the `traits` that differ from their defaults.
    """
    inferred = _inferred_attrs(op_def.inputs)
    return {
        "name": op_def.name,
        "package": declaring_module(op_def.name).partition(".")[0],
        "family": _family(op_def.name),
        "doc": op_def.doc or _function_doc(op_def.name),
        "inputs": [_argument(argument) for argument in op_def.inputs],
        "outputs": [_argument(argument) for argument in op_def.outputs],
        "attrs": [_attribute(attr, name in inferred) for name, attr in op_def.attrs.items()],
        "traits": _traits(op_def.traits),
    }


def _family(op: str) -> str:
    return declaring_module(op).rpartition(".")[2]


def _function_doc(op: str) -> str:
    """Return the first line of the docstring of an op's public function, or ""."""
    module = sys.modules.get(declaring_module(op))
    name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", op.removesuffix("V2")).lower()
    function = getattr(module, name, None)
    return (inspect.getdoc(function) or "").partition("\n")[0] if callable(function) else ""


def _argument(argument: ArgDef) -> dict[str, Any]:
    fields = {
        "name": argument.name,
        "type": None if argument.dtype is None else argument.dtype.name,
        "type_attr": argument.type_attr,
        "number_attr": argument.number_attr,
        "list_attr": argument.list_attr,
        "is_ref": argument.is_ref or None,
    }
    return {key: value for key, value in fields.items() if value is not None}


def _inferred_attrs(inputs: Sequence[ArgDef]) -> set[str]:
    """Return the attributes whose values follow from the inputs of a node."""
    names = {name for a in inputs for name in (a.type_attr, a.number_attr, a.list_attr)}
    names.discard(None)
    return {str(name) for name in names}


def _attribute(attr: AttrDef, inferred: bool) -> dict[str, Any]:
    fields: dict[str, Any] = {"name": attr.name, "type": attr.type}
    if attr.allowed is not None:
        fields["allowed"] = sorted(map(_name_of, attr.allowed))
    if attr.minimum is not None:
        fields["minimum"] = attr.minimum
    if attr.default is not REQUIRED:
        fields["default"] = _value(attr.default, attr.type)
    if inferred:
        fields["inferred"] = True
    return fields


def _name_of(value: Any) -> str:
    return value.name if isinstance(value, DType) else str(value)


def _value(value: Any, kind: str) -> Any:
    """Convert the default of an attribute to JSON: shapes are lists, an unknown rank is null."""
    if kind.startswith("list("):
        return [_value(item, kind[5:-1]) for item in value]
    if kind == "type":
        return _name_of(value)
    if kind == "shape":
        return None if value is None else [-1 if size is None else size for size in value]
    if kind == "tensor":
        array = np.asarray(value)
        dtype = dtypes.as_dtype(array.dtype).name
        return {"type": dtype, "shape": list(array.shape), "values": array.ravel().tolist()}
    if kind == "func":
        return getattr(value, "name", "")
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def _traits(traits: Traits) -> dict[str, Any]:
    """Return the traits that differ from their defaults."""
    described = {}
    for field in dataclasses.fields(traits):
        value = getattr(traits, field.name)
        if field.name not in _FUNCTIONS and value != field.default and value:
            described[field.name] = _trait(value)
    if traits.scalar is not None:
        described["scalar"] = True
    return described


def _trait(value: Any) -> Any:
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(key): _trait(item) for key, item in value.items()}
    if isinstance(value, set | frozenset):
        return sorted(map(_trait, value))
    if isinstance(value, tuple | list):
        return [_trait(item) for item in value]
    return value if isinstance(value, bool | int | float | str) else str(value)


# ------------------------------------------------------------------------------- text


def _signature(op_def: OpDef) -> str:
    inputs = [f"{a.name}: {_type_name(a)}" for a in op_def.inputs]
    outputs = ", ".join(f"{a.name}: {_type_name(a)}" for a in op_def.outputs)
    inferred = _inferred_attrs(op_def.inputs)
    for name, attr in op_def.attrs.items():
        if name not in inferred:
            default = "" if attr.default is REQUIRED else f" = {_value(attr.default, attr.type)}"
            inputs.append(f"{name}: {attr.type}{default}")
    return f"{op_def.name}({', '.join(inputs)})" + (f" -> {outputs}" if outputs else "")


def _type_name(argument: ArgDef) -> str:
    name = argument.list_attr or argument.type_attr
    if argument.dtype is not None:
        name = argument.dtype.name
    name = f"Ref({name})" if argument.is_ref else str(name)
    return f"{argument.number_attr} * {name}" if argument.number_attr else name
