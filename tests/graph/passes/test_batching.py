"""Equal products of the parts of tensors become one product of the tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft as wf
from weft_graph.passes import batch_equal, prune, simplify

COUNT = 6
Pairs = list[tuple[Any, Any]]


def parts(x: Any, y: Any) -> Pairs:
    return list(zip(wf.unstack(x), wf.unstack(y), strict=True))


def operands(dtype: Any = wf.float32, count: Any = COUNT) -> tuple[Any, Any]:
    return wf.placeholder(dtype, [count, 4, 3]), wf.placeholder(dtype, [count, 3, 5])


def types(x: Any, y: Any, fetches: list[Any]) -> tuple[int, list[str]]:
    step = prune([x, y], fetches, [])
    count = batch_equal(step)
    simplify(step)
    return count, [node.type for node in step.live_nodes() if node.type != "_Arg"]


def test_products_of_all_parts_are_one_product() -> None:
    with wf.Graph().as_default():
        x, y = operands()
        products = wf.stack([wf.matmul(a, b) for a, b in parts(x, y)])
        assert types(x, y, [products]) == (COUNT, ["BatchMatMulV2"])
        gradients = wf.gradients(wf.reduce_sum(products * products), [x, y])
        assert types(x, y, gradients)[1].count("BatchMatMulV2") == 3


def test_a_product_that_is_fetched_is_a_part() -> None:
    with wf.Graph().as_default():
        x, y = operands()
        products = [wf.matmul(a, b) for a, b in parts(x, y)]
        assert types(x, y, [*products[::2], wf.add_n(products)]) == (
            COUNT,
            ["BatchMatMulV2", "Unpack", "AddN"],
        )


DTYPES = [wf.float16, wf.bfloat16, wf.float32, wf.float64, wf.int32, wf.int64, wf.complex64]


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.name)
def test_the_numbers_are_those_of_the_products(dtype: Any) -> None:
    random = np.random.default_rng(1)
    config = wf.ConfigProto(use_per_session_threads=True)
    config.graph_options.optimizer_options.opt_level = wf.OptimizerOptions.L0
    for turned in ((False, False), (True, False), (False, True)):
        with wf.Graph().as_default():
            shapes = [(COUNT, 3, 4) if turned[0] else (COUNT, 4, 3)]
            shapes += [(COUNT, 5, 3) if turned[1] else (COUNT, 3, 5)]
            x, y = (wf.placeholder(dtype, shape) for shape in shapes)
            products = [
                wf.matmul(a, b, transpose_a=turned[0], transpose_b=turned[1])
                for a, b in parts(x, y)
            ]
            fetches = [wf.stack(products), products[2]]
            given = [random.integers(-9, 9, shape) * (1 + 1j) for shape in shapes]
            if not dtype.is_complex:
                given = [each.real for each in given]
            feeds = dict(zip((x, y), [each.astype(dtype.numpy) for each in given], strict=True))
            with wf.Session() as session, wf.Session(config=config) as plain:
                for found, wanted in zip(
                    session.run(fetches, feeds), plain.run(fetches, feeds), strict=True
                ):
                    np.testing.assert_array_equal(found, wanted)


def _with_control(x: Any, y: Any) -> list[Any]:
    pairs = parts(x, y)
    with wf.control_dependencies([wf.no_op()]):
        first = wf.matmul(*pairs[0])
    return [first, *[wf.matmul(a, b) for a, b in pairs[1:]]]


@pytest.mark.parametrize(
    "products",
    [
        lambda x, y: [wf.matmul(a, b) for a, b in parts(x, y)[1:]],
        lambda x, y: [wf.matmul(a, b) for (a, _), (_, b) in zip(parts(x, y), parts(x, y)[::-1])],  # noqa: B905
        lambda x, y: [
            wf.matmul(wf.transpose(a), b, transpose_a=True) if at else wf.matmul(a, b)
            for at, (a, b) in enumerate(parts(x, y))
        ],
        lambda x, y: [
            wf.matmul(a, b)
            for a, b in zip(wf.unstack(wf.transpose(x, [1, 0, 2]), axis=1), wf.unstack(y))  # noqa: B905
        ],
        _with_control,
    ],
    ids=["one is missing", "others meet", "not equal", "of columns", "one waits"],
)
def test_other_products_stay(products: Callable[[Any, Any], list[Any]]) -> None:
    with wf.Graph().as_default():
        x, y = operands()
        count, found = types(x, y, [wf.stack(products(x, y))])
        assert (count, "BatchMatMulV2" in found) == (0, False)


def test_large_products_and_unknown_shapes_stay() -> None:
    with wf.Graph().as_default():
        x, y = wf.placeholder(wf.float32, [4, 200, 90]), wf.placeholder(wf.float32, [4, 90, 30])
        assert types(x, y, [wf.matmul(a, b) for a, b in parts(x, y)])[0] == 0
        x = wf.placeholder(wf.float32, [4, None, 3])
        y = wf.placeholder(wf.float32, [4, 3, 5])
        assert types(x, y, [wf.matmul(a, b) for a, b in parts(x, y)])[0] == 0


def test_a_stack_of_parts_is_what_they_are_of() -> None:
    with wf.Graph().as_default():
        x, y = operands()
        rows, columns = wf.unstack(x), wf.unstack(x, axis=1)
        assert types(x, y, [wf.stack(rows) + 1.0])[1] == ["Const", "AddV2"]
        assert types(x, y, [wf.stack(columns, axis=1) + 1.0])[1] == ["Const", "AddV2"]
        for other in (wf.stack(rows[::-1]), wf.stack(rows[:-1]), wf.stack(columns), rows[0]):
            assert "Unpack" in types(x, y, [other])[1]
