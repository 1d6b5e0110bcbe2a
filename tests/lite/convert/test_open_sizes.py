"""Sizes that follow from open sizes and from values, through operations that combine them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

import weft as wf
from weft_lite import Interpreter
from weft_lite.convert import Converter

MOST = 8


@pytest.fixture(autouse=True)
def graph() -> Iterator[wf.Graph]:
    with wf.Graph().as_default() as made:
        yield made


def test_attention_over_a_cache_that_grows() -> None:
    """The causal mask is a range over the cache's size, which one step makes larger."""
    cache = wf.placeholder(wf.float32, [1, 2, None, 4], name="cache")
    key = wf.placeholder(wf.float32, [1, 2, 1, 4], name="key")
    keys = wf.concat([cache, key], 2, name="keys")
    scores = wf.matmul(key, keys, transpose_b=True)
    rows, columns = wf.shape(key)[2], wf.shape(keys)[2]
    mask = wf.range(rows)[:, None] + (columns - rows) >= wf.range(columns)[None, :]
    masked = wf.where(
        wf.broadcast_to(mask, wf.shape(scores)), scores, wf.fill(wf.shape(scores), -1e9)
    )
    attended = wf.matmul(wf.nn.softmax(masked), keys, name="attended")
    random = np.random.default_rng(0)
    with wf.Session() as session:
        bounds = {"cache": [1, 2, MOST, 4]}
        converter = Converter.from_session(session, [cache, key], [attended, keys], bounds)
        runner = Interpreter(model_content=converter.convert()).get_signature_runner()
        held = np.zeros([1, 2, 0, 4], np.float32)
        for _ in range(MOST + 1):
            new = random.normal(size=[1, 2, 1, 4]).astype(np.float32)
            expected, grown = session.run([attended, keys], {cache: held, key: new})
            result = runner(cache=held, key=new)
            np.testing.assert_allclose(result["attended"], expected, 1e-5, 1e-6)
            np.testing.assert_array_equal(result["keys"], grown)
            held = result["keys"]


Combine = Callable[[Any, Any], Any]

COMBINED: dict[str, tuple[Combine, Mapping[str, Sequence[int]]]] = {
    "elementwise": (lambda part, z: wf.add(part, z), {}),
    "product": (
        lambda part, z: wf.matmul(wf.expand_dims(part, 0, "row"), wf.expand_dims(z, 1)),
        {"row": [1, MOST]},
    ),
    "select": (lambda part, z: wf.where(part > 3.0, part, z), {}),
    "concatenation": (
        lambda part, z: wf.concat([part, z], 0, name="joined"),
        {"joined": [2 * MOST]},
    ),
    "broadcast": (lambda part, z: wf.broadcast_to(wf.add(part, 1.0), wf.shape(z)), {}),
}


@pytest.mark.parametrize("name", COMBINED)
def test_a_size_that_a_value_tells_meets_an_open_size(name: str) -> None:
    """Memory is planned for the bound of the one, which need not fit the other's size of a run."""
    combine, bounds = COMBINED[name]
    x = wf.placeholder(wf.float32, [MOST], name="x")
    n = wf.placeholder(wf.int32, [], name="n")
    z = wf.placeholder(wf.float32, [None], name="z")
    y = wf.identity(combine(wf.slice(x, [0], wf.expand_dims(n, 0), name="part"), z), name="y")
    values = np.arange(MOST, dtype=np.float32)
    sample = {"x": values, "n": np.int32(MOST), "z": values}
    bounds = {"z": [MOST], "part": [MOST], **bounds}
    with wf.Session() as session:
        converter = Converter.from_session(session, [x, n, z], [y], bounds)
        runner = Interpreter(model_content=converter.convert(samples=sample)).get_signature_runner()
        for size in (3, MOST, 1, 5):
            fed = values[:size] + 1
            expected = session.run(y, {x: values, n: size, z: fed})
            result = runner(x=values, n=np.int32(size), z=fed)["y"]
            np.testing.assert_allclose(result, expected, 1e-5)
