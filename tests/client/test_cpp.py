"""The C++ front end: training, the op table, functions, and wrappers that are current."""

from __future__ import annotations

import io
import re
import runpy
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from weft_testing.cases import Case
from weft_testing.loading import CASES_FOLDER, load, load_family
from weft_testing.tasks import jobs, servers
from weft_testing.workspace import ROOT

import weft as wf
from tests.client.conftest import run
from weft_distrib.commands import ops as ops_command
from weft_graph.ir.builder import create
from weft_graph.ir.op_def import OpDef, lookup_op, registered_ops
from weft_tensor import dtypes

ROWS = 300
STRING = dtypes.string.as_datatype_enum


# ------------------------------------------------------------------------ files of programs


def write_tensor(file: Any, array: Any) -> None:
    array = np.asarray(array)
    is_text = array.dtype.hasobject
    dtype = STRING if is_text else dtypes.from_numpy(array.dtype).as_datatype_enum
    file.write(struct.pack(f"<II{array.ndim}q", dtype, array.ndim, *array.shape))
    if not is_text:
        file.write(np.ascontiguousarray(array).tobytes())
        return
    file.write(struct.pack("<I", array.size))
    for item in array.ravel():
        write_text(file, item)


def write_text(file: Any, text: str | bytes) -> None:
    data = text.encode() if isinstance(text, str) else text
    file.write(struct.pack("<I", len(data)) + data)


def read_tensors(path: Path) -> Iterator[np.ndarray]:
    file = io.BytesIO(path.read_bytes())
    while header := file.read(8):
        dtype, rank = struct.unpack("<II", header)
        shape = struct.unpack(f"<{rank}q", file.read(8 * rank))
        if dtype == STRING:
            (count,) = struct.unpack("<I", file.read(4))
            items = np.empty(count, object)
            for i in range(count):
                items[i] = file.read(*struct.unpack("<I", file.read(4)))
            yield items.reshape(shape)
        else:
            numpy = dtypes.as_dtype(dtype).numpy
            data = file.read(int(np.prod(shape, dtype=int)) * numpy.itemsize)
            yield np.frombuffer(data, numpy).reshape(shape)


# --------------------------------------------------------------------------------- training


def test_digits_are_learned_by_two_tasks(build: Path, tmp_path: Path) -> None:
    training, held_out = load(ROOT / "examples" / "digits" / "digits.py").load()
    with (tmp_path / "digits").open("wb") as file:
        for array in (*training, *held_out):
            write_tensor(file, array)
    with servers(jobs(ps=1, worker=1)) as (_, worker):
        target = worker.value_target
        said = run(build / "suite", "train", target, tmp_path / "digits", tmp_path)
    trained, forgotten, restored = map(float, said.split())
    assert trained >= 0.98 and forgotten < 0.5 and restored == trained
    (filters,) = read_tensors(tmp_path / "filters")
    with wf.Graph().as_default(), wf.Session() as session:
        drawn = wf.raw_ops.TruncatedNormal(shape=[3, 3, 1, 32], dtype=wf.float32, seed=1, seed2=7)
        np.testing.assert_array_equal(filters, session.run(drawn * np.float32(0.3)))
    names = [name for name, _ in wf.train.list_variables(str(tmp_path / "model"))]
    assert names == ["filters", "hidden_bias", "hidden_weights", "more_filters", "weights"]


# ------------------------------------------------------------------------------ conformance


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


def test_rows_of_the_op_table_agree(build: Path, target: str, tmp_path: Path) -> None:
    cases = selected_cases()
    outputs: list[Any] = []
    with (tmp_path / "rows").open("wb") as file, wf.Graph().as_default():
        file.write(struct.pack("<I", len(cases)))
        for case in cases:
            dtype = "float32" if "float32" in case.dtypes else case.dtypes[0]
            attrs = dict(case.attrs)
            if dtype and case.type_attr in case.op_def.attrs:
                attrs[case.type_attr] = dtypes.as_dtype(dtype)
            inputs = [
                [wf.constant(each) for each in item]
                if isinstance(item, list)
                else wf.constant(item)
                for item in case.arrays(dtype)
            ]
            node = create(case.op, inputs, attrs)
            write_row(file, case, dtype, node)
            outputs += node.outputs
        with wf.Session() as session:
            expected = session.run(outputs)
    said = run(build / "suite", "conformance", target, tmp_path / "rows", tmp_path / "results")
    assert int(said) == len(cases) == ROWS
    results = read_tensors(tmp_path / "results")
    for output, value, result in zip(outputs, expected, results, strict=True):
        if result.dtype.hasobject:
            np.testing.assert_array_equal(result, np.asarray(value, object), output.node.type)
        else:
            assert result.dtype == value.dtype, output.node.type
            np.testing.assert_allclose(
                result.astype(np.complex128),
                np.asarray(value).astype(np.complex128),
                rtol=1e-5,
                atol=1e-6,
                err_msg=output.node.type,
            )


# -------------------------------------------------------------------------------- functions


def test_items_of_another_graph_are_refused(build: Path, target: str) -> None:
    *refused, value = run(build / "suite", "graphs", target).splitlines()
    assert len(refused) == 7
    for line in refused:
        assert re.match(r"INVALID_ARGUMENT: 'x(:0)?' belongs to another graph", line), line
    assert value == "50"


def test_functions_are_shared_with_python(build: Path, target: str, tmp_path: Path) -> None:
    with wf.Graph().as_default() as graph:

        @wf.Defun(wf.float32, wf.float32, func_name="Decay")
        def decay(x: Any, rate: Any) -> Any:
            return x * wf.exp(-rate * x)

        decay.add_to_graph(graph)
        (tmp_path / "theirs").write_bytes(graph.as_graph_def().SerializeToString())
    said = run(build / "suite", "functions", target, tmp_path / "theirs", tmp_path / "own")
    twice, is_trained, chosen = said.split()
    once = 2 * np.exp(-6.0)
    assert float(twice) == pytest.approx(once * np.exp(-3 * once), rel=1e-4)
    assert (is_trained, chosen) == ("1", "384")
    with wf.Graph().as_default(), wf.Session() as session:
        definition = wf.GraphDef.FromString((tmp_path / "own").read_bytes())
        wf.import_graph_def(definition, name="")
        length, unit = session.run(wf.call_function("Normalize", [[3.0, 4.0]]))
        assert length == 5.0 and unit.tolist() == [0.6, 0.8]


# ---------------------------------------------------------------------------------- wrappers


def generator() -> dict[str, Any]:
    scripts = ROOT / "packages" / "client" / "scripts"
    sys.path.insert(0, str(scripts))
    try:
        return runpy.run_path(str(scripts / "generate.py"))
    finally:
        sys.path.remove(str(scripts))


def test_the_wrappers_are_current() -> None:
    described = [ops_command.describe(lookup_op(name)) for name in registered_ops()]
    module = generator()
    files = module["generated"]({"format": ops_command.FORMAT, "ops": described})
    assert module["stale"](files) == [], "run packages/client/scripts/generate.py"


def test_another_format_is_refused() -> None:
    with pytest.raises(ValueError, match="format 1, got 2"):
        generator()["generated"]({"format": 2, "ops": []})
