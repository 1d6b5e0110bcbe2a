"""Lookups in partitioned tables in exported and converted models."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft as wf

pytest.importorskip("onnx")
IDS = np.array([0, 10, 3, 7, 7], np.int32)


def table(strategy: str, count: int, use_resource: bool) -> Any:
    if strategy == "div":
        partitioner = wf.fixed_size_partitioner(count)
        return wf.get_variable("t", [11, 4], partitioner=partitioner, use_resource=use_resource)
    sizes = [len(range(i, 11, count)) for i in range(count)]
    return [
        wf.get_variable(f"t{i}", [size, 4], use_resource=use_resource)
        for i, size in enumerate(sizes)
    ]


@pytest.mark.parametrize("use_resource", [False, True])
@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("strategy", ["mod", "div"])
def test_a_lookup_in_parts_becomes_one_in_the_whole_table(
    strategy: str, count: int, use_resource: bool
) -> None:
    with wf.Graph().as_default(), wf.Session() as session:
        ids = wf.placeholder(wf.int32, [None], name="ids")
        params = table(strategy, count, use_resource)
        rows = wf.nn.embedding_lookup(params, ids, partition_strategy=strategy)
        rows = wf.identity(rows, name="rows")
        session.run(wf.global_variables_initializer())
        expected = session.run(rows, {ids: IDS})
        model = wf.onnx.export(rows, ids, session)
        content = wf.lite.Converter.from_session(session, [ids], [rows], {"ids": [5]}).convert()
    with wf.Graph().as_default(), wf.Session() as session:
        imported = wf.onnx.import_model(model)
        result = session.run(imported.outputs["rows"], {imported.inputs["ids"]: IDS})
    np.testing.assert_array_equal(result, expected)
    runner = wf.lite.Interpreter(model_content=content).get_signature_runner()
    np.testing.assert_array_equal(runner(ids=IDS)["rows"], expected)


def test_another_order_of_rows_is_no_lookup() -> None:
    with wf.Graph().as_default(), wf.Session() as session:
        ids = wf.placeholder(wf.int32, [4], name="ids")
        parts = wf.dynamic_partition(ids // 2, ids % 2, 2)
        positions = wf.dynamic_partition([3, 2, 1, 0], ids % 2, 2)
        tables = wf.constant([[0.0], [2.0]]), wf.constant([[1.0], [3.0]])
        gathered = [wf.gather(table, part) for table, part in zip(tables, parts, strict=True)]
        rows = wf.dynamic_stitch(positions, gathered)
        with pytest.raises(wf.errors.UnimplementedError, match="DynamicStitch"):
            wf.onnx.export(rows, ids, session)
