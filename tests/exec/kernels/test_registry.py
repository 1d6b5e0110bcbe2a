"""Kernel registrations: they are complete and immutable."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from typing import Any

import pytest

from weft_exec.devices.device import register_device
from weft_exec.kernels.registry import (
    ALL,
    ANY_DEVICE,
    ARRAY_DEVICE,
    Kernel,
    find_kernel,
    kernel,
    kernels_of,
    register_derivation,
    registered_kernels,
    require_kernel,
)
from weft_graph.ir.builder import out
from weft_graph.ir.graph import Graph
from weft_graph.ir.op_def import lookup_op, register_op
from weft_graph.ir.traits import WAITS, elementwise
from weft_tensor import dtypes, errors

KERNELS: list[Kernel] = [
    entry for op, where in registered_kernels() if where != "*" for entry in kernels_of(op, where)
]


def test_a_registration_names_arguments_and_attributes_of_its_op() -> None:
    wrong = []
    for entry in KERNELS:
        op_def = lookup_op(entry.op)
        inputs = {arg.name for arg in op_def.inputs}
        types = {name for name, attr in op_def.attrs.items() if attr.type.endswith("type")}
        if not (set(entry.host) <= inputs or entry.host == ALL) or not entry.dtypes.keys() <= types:
            wrong.append(entry)
    assert not wrong


def test_registrations_cannot_be_changed() -> None:
    entry = kernels_of("Reshape", "GPU")[0]
    with pytest.raises(dataclasses.FrozenInstanceError):
        entry.host = ()  # type: ignore[misc]
    with pytest.raises(TypeError):
        entry.dtypes["T"] = frozenset()  # type: ignore[index]


def test_a_device_type_has_the_kernels_over_the_array_module_for_its_element_types() -> None:
    cpu, gpu = kernels_of("Reshape", "CPU")[0], kernels_of("Reshape", "GPU")[0]
    assert cpu.factory is gpu.factory and gpu.host == ("shape",)
    assert not cpu.dtypes and dtypes.string not in gpu.dtypes["T"]
    assert not find_kernel(_node("ZerosLike", dtypes.string), "GPU")
    with pytest.raises(errors.UnimplementedError, match="no kernel of ZerosLike for GPU, here"):
        require_kernel(_node("ZerosLike", dtypes.string), "GPU", ", here")


def _node(op: str, dtype: dtypes.DType) -> Any:
    with Graph().as_default():
        value = out("Placeholder", (), {"dtype": dtype, "shape": (2,)})
        return out(op, [value]).node


def _none(resources: Any, config: Any, task: Any) -> list[Any]:
    return []


def test_kernels_of_a_type_come_before_those_that_it_shares() -> None:
    register_op("TestShared", ("x: T",), ("y: T",), {"T": "{float32, float64, string}"})
    register_device("TESTED", _none, array_module="numpy", element_types=["float32", "float64"])
    register_device("PLAIN", _none)
    kernel("TestShared", device=ARRAY_DEVICE, heavy=True)(lambda node, device: "array")
    assert [entry.heavy for entry in kernels_of("TestShared", "TESTED")] == [False]
    kernel("TestShared", device="TESTED", dtypes={"T": ["float64"]})(lambda node, device: "own")
    made = [
        require_kernel(_node("TestShared", dtype), "TESTED").factory(None, None)  # type: ignore
        for dtype in (dtypes.float32, dtypes.float64)
    ]
    assert made == ["array", "own"]
    assert kernels_of("TestShared", "PLAIN") == ()
    assert kernels_of("TestShared", "CPU")[0].heavy
    with pytest.raises(errors.AlreadyExistsError, match="TestShared for TESTED is already"):
        kernel("TestShared", device="TESTED")(lambda node, device: "again")


def test_a_derived_kernel_gives_way_to_one_that_is_registered_later() -> None:
    traits = elementwise(lambda x: x + 1)
    register_op("TestLater", ("x: float32",), ("y: float32",), traits=traits)
    derived = kernels_of("TestLater", "CPU")[0]
    kernel("TestLater")(lambda node, device: "written by hand")
    written = kernels_of("TestLater", "CPU")
    assert [entry.factory is derived.factory for entry in written] == [False]
    with pytest.raises(errors.AlreadyExistsError, match="TestLater"):
        kernel("TestLater")(lambda node, device: "twice")


def test_a_device_type_derives_kernels_by_one_rule() -> None:
    with pytest.raises(errors.AlreadyExistsError, match="CPU already have a derivation rule"):
        register_derivation("CPU", lambda op, definition: None)


def test_kernels_of_an_op_that_waits_are_asynchronous() -> None:
    register_op("TestWaits", ("x: float32",), ("y: float32",), traits=WAITS)
    register_op("TestStays", ("x: float32",), ("y: float32",))
    kernel("TestWaits", "TestStays")(lambda node, device: "plain")
    kernel("TestWaits", device=ANY_DEVICE)(lambda node, device: "any")
    kernel("TestStays", device="STREAMED", asynchronous=True)(lambda node, device: "on a stream")
    assert kernels_of("TestWaits", "CPU")[0].asynchronous
    assert kernels_of("TestWaits", ANY_DEVICE)[0].asynchronous
    assert not kernels_of("TestStays", "CPU")[0].asynchronous
    assert kernels_of("TestStays", "STREAMED")[0].asynchronous


_FOUND = """
import importlib, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
from weft_exec.kernels.registry import kernels_of, registered_kernels
for op, where in registered_kernels():
    for entry in kernels_of(op, where) if where in ("CPU", "GPU") else ():
        types = {key: sorted(t.name for t in entry.dtypes[key]) for key in sorted(entry.dtypes)}
        print(op, where, entry.factory.__module__, types, entry.host)
"""


def test_the_order_of_imports_makes_no_difference() -> None:
    orders: list[tuple[str, ...]] = [
        (),
        ("weft_exec.gpu.kernels.training", "weft_exec.gpu.kernels.nn"),
        ("weft_exec.gpu.kernels.conv", "weft_exec.kernels.slicing"),
    ]
    found = [
        sorted(
            subprocess.run(
                [sys.executable, "-c", _FOUND, *order], capture_output=True, text=True, check=True
            ).stdout.splitlines()
        )
        for order in orders
    ]
    assert len(found[0]) > 900
    assert found[1] == found[0] and found[2] == found[0]
