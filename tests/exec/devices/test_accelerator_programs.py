"""Programs with loops and conditionals whose nodes are spread over a host and two accelerators.

The table is `tests/integration/control_flow`; the values are those of the host alone.
"""

from __future__ import annotations

import zlib
from functools import cache
from typing import Any

import numpy as np
import pytest
import weft_accelerator
from weft_testing.loading import load
from weft_testing.workspace import ROOT

import weft
from weft_exec.kernels.registry import find_kernel

PROGRAMS = ROOT / "tests" / "integration" / "control_flow"
PLACES = ("/device:CPU:0", "/device:ACCEL:0", "/device:ACCEL:1")


RECORDER = load(PROGRAMS / "record.py")
PACKAGE = RECORDER.load()
ROWS = {name: row for name, row in PACKAGE.TABLE.items() if not row.refused}


@cache
def expected(name: str) -> Any:
    """The values of a program on the host alone; two items compare with them."""
    row = ROWS[name]
    return PACKAGE.run(weft, row, PACKAGE.build(weft, row, min(row.order, 1)), None)


@pytest.mark.parametrize("everywhere", [False, True], ids=["spread", "there"])
@pytest.mark.parametrize("name", ROWS)
def test_a_program_on_host_and_accelerators(name: str, everywhere: bool) -> None:
    """Nodes anywhere by chance, or all that can be on one accelerator."""
    row = ROWS[name]
    weft_accelerator.plug_in(2)
    proto = weft.ConfigProto(device_count={"ACCEL": 2}, allow_soft_placement=True)
    with weft.Session(config=proto):
        pass  # registers the kernels
    built = PACKAGE.build(weft, row, min(row.order, 1))
    for node in built.graph.nodes:
        if find_kernel(node, "ACCEL") is not None:
            place = 1 if everywhere else zlib.crc32(node.name.encode()) % 3
            node.device = PLACES[place]
    found = PACKAGE.run(weft, row, built, proto)
    agree(name, found, expected(name))


def agree(place: str, got: Any, wanted: Any) -> None:
    """Compare structures of values."""
    if isinstance(wanted, dict):
        assert got.keys() == wanted.keys(), place
        for key, value in wanted.items():
            agree(f"{place}, {key}", got[key], value)
    elif isinstance(wanted, list | tuple):
        assert len(got) == len(wanted), place
        for i, value in enumerate(wanted):
            agree(f"{place}, {i}", got[i], value)
    elif np.asarray(wanted).dtype.kind in "fc":
        np.testing.assert_allclose(got, wanted, rtol=1e-6, atol=1e-9, err_msg=place)
    else:
        np.testing.assert_array_equal(got, wanted, err_msg=place)
