"""Rows of the op table, sent from other languages: the results are those of Python."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from weft_testing.cases import Case
from weft_testing.loading import CASES_FOLDER, load_family

import weft as wf
from tests.client.conftest import command, run
from tests.client.files import read_tensors, write_tensor, write_text
from weft_graph.ir.builder import create
from weft_graph.ir.op_def import OpDef
from weft_tensor import dtypes

ROWS = 300


def is_sent(case: Case) -> bool:
    """True if the inputs and outputs of a case can be sent, and repeat."""
    op_def = case.op_def
    arguments = (*op_def.inputs, *op_def.outputs)
    kinds = {attr.type for attr in op_def.attrs.values()}
    return not (
        case.prepare
        or op_def.traits.random
        or op_def.traits.stateful
        or op_def.traits.host_code
        or case.op.startswith(("_", "Test"))
        or kinds & {"func", "list(func)"}
        or any(arg.is_ref for arg in arguments)
        or any(arg.dtype in (dtypes.resource, dtypes.variant) for arg in arguments)
    )


def selected_cases() -> list[Case]:
    """One case for each op, then further ones, up to `ROWS`."""
    cases = [
        case
        for path in sorted(CASES_FOLDER.glob("*.py"))
        for case in getattr(load_family(path.stem), "CASES", ())
        if is_sent(case)
    ]
    first = {case.op: case for case in reversed(cases)}
    others = [case for case in cases if first[case.op] is not case]
    return [*first.values(), *others][:ROWS]


def own_attrs(op_def: OpDef, node: Any) -> dict[str, Any]:
    """The attributes that do not follow from the inputs."""
    inferred = {
        name for arg in op_def.inputs for name in (arg.type_attr, arg.number_attr, arg.list_attr)
    }
    return {name: node.attrs[name] for name in op_def.attrs if name not in inferred}


def write_row(file: Any, case: Case, dtype: str, node: Any) -> None:
    write_text(file, case.op)
    arrays = case.arrays(dtype)
    file.write(struct.pack("<I", len(arrays)))
    for item in arrays:
        is_list = isinstance(item, list)
        file.write(struct.pack("<II", is_list, len(item) if is_list else 1))
        for array in item if is_list else [item]:
            write_tensor(file, array)
    attrs = own_attrs(case.op_def, node)
    file.write(struct.pack("<I", len(attrs)))
    for name, value in attrs.items():
        kind = case.op_def.attrs[name].type
        write_text(file, name)
        write_text(file, kind)
        write_value(file, kind, value)
    file.write(struct.pack("<I", len(node.outputs)))


def write_value(file: Any, kind: str, value: Any) -> None:
    if kind.startswith("list("):
        file.write(struct.pack("<I", len(value)))
        for item in value:
            write_value(file, kind[5:-1], item)
    elif kind == "float":
        file.write(struct.pack("<d", value))
    elif kind == "string":
        write_text(file, value)
    elif kind == "tensor":
        write_tensor(file, value)
    elif kind == "shape":
        dims = () if value is None else [-1 if size is None else size for size in value]
        file.write(struct.pack(f"<q{len(dims)}q", -1 if value is None else len(dims), *dims))
    else:
        file.write(struct.pack("<q", value.as_datatype_enum if kind == "type" else int(value)))


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str], list[Any]]:
    """The file of the rows, and the op and the expected value of each output."""
    path = tmp_path_factory.mktemp("conformance") / "rows"
    cases = selected_cases()
    outputs: list[Any] = []
    with path.open("wb") as file, wf.Graph().as_default():
        file.write(struct.pack("<I", len(cases)))
        for case in cases:
            dtype = "float32" if "float32" in case.dtypes else case.dtypes[0]
            attrs = dict(case.attrs)
            if dtype and case.type_attr in case.op_def.attrs:
                attrs[case.type_attr] = dtypes.as_dtype(dtype)
            inputs = [
                [wf.constant(value) for value in item]
                if isinstance(item, list)
                else wf.constant(item)
                for item in case.arrays(dtype)
            ]
            node = create(case.op, inputs, attrs)
            write_row(file, case, dtype, node)
            outputs += node.outputs
        with wf.Session() as session:
            return path, [output.node.type for output in outputs], session.run(outputs)


@pytest.mark.parametrize("language", ["cpp", "js"])
def test_rows_of_the_op_table_agree(
    request: pytest.FixtureRequest,
    language: str,
    rows: tuple[Path, list[str], list[Any]],
    target: str,
    tmp_path: Path,
) -> None:
    path, ops, expected = rows
    program = command(request, language, "suite")
    printed = run(*program, "conformance", target, path, tmp_path / "results")
    assert int(printed) == ROWS
    results = read_tensors(tmp_path / "results")
    for op, value, result in zip(ops, expected, results, strict=True):
        if result.dtype.hasobject:
            np.testing.assert_array_equal(result, np.asarray(value, object), op)
        else:
            assert result.dtype == value.dtype, op
            np.testing.assert_allclose(
                result.astype(np.complex128),
                np.asarray(value).astype(np.complex128),
                rtol=1e-5,
                atol=1e-6,
                err_msg=op,
            )
