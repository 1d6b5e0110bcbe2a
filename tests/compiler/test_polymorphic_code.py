"""Code for many sizes serves the sizes between verified ones, without lowering."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft as wf
from weft_compiler.generator import LlvmGenerator, LoopCompiler, RegionCompiler
from weft_compiler.lower.request_numbers import numbers_of, with_numbers
from weft_compiler.native import cache
from weft_graph.ir.code_generators import RegionRequest
from weft_graph.passes.whole_loops import Extent, LoopRequest


@pytest.fixture
def lowered(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """All requests that are lowered."""
    found: list[Any] = []
    for compiler in (RegionCompiler, LoopCompiler):
        lower = compiler.lower

        def note(self: Any, request: Any, lower: Any = lower) -> Any:
            found.append(request)
            return lower(self, request)

        monkeypatch.setattr(compiler, "lower", note)
    return found


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty cache."""
    monkeypatch.setenv("WEFT_CACHE", str(tmp_path))
    cache.directory.cache_clear()
    yield tmp_path
    cache.directory.cache_clear()


def request_of(rows: int) -> RegionRequest:
    """Return a request for a softmax over columns of any number of rows."""
    with wf.Graph().as_default() as graph:
        x = wf.placeholder(wf.float32, [None, 7])
        y = wf.nn.softmax(wf.tanh(x)) * 2.0
    nodes = [node for node in graph.get_operations() if node.inputs]
    constants = [s for n in nodes for s in n.inputs if s.node.type == "Const"]
    inputs = list(dict.fromkeys([x, *constants]))
    shapes = [(rows, 7), *[np.shape(c.node.attrs["value"]) for c in inputs[1:]]]
    return RegionRequest(nodes, inputs, [y], shapes)


def run(generated: Any, rows: int) -> np.ndarray:
    """Return the result of code for a request of so many rows."""
    x = np.random.default_rng(rows).normal(size=(rows, 7)).astype(np.float32)
    out = np.empty((rows, 7), np.float32)
    generated(x, out)
    e = np.exp(np.tanh(x) - np.tanh(x).max(1, keepdims=True))
    np.testing.assert_allclose(out, 2 * e / e.sum(1, keepdims=True), rtol=1e-5)
    return out


def test_two_sizes_make_code_for_all_between_the_verified_ones(lowered: list[Any]) -> None:
    generator, request = LlvmGenerator(), request_of(20)
    code = generator.generate(request, others=[with_numbers(request, (33, 7))])
    assert code.shares
    count = len(lowered)
    for rows in (3, 17, 20, 33, 100):
        other = with_numbers(request, (rows, 7))
        found = generator.instance(other, [code])
        assert found is not None and found.shares
        run(found, rows)
    assert len(lowered) == count
    limits = code.polymorphic.limits if code.polymorphic else (0, 0)
    assert generator.instance(with_numbers(request, (limits[1] + 1, 7)), [code]) is None
    assert generator.instance(with_numbers(request, (20, 8)), [code]) is None


@pytest.mark.parametrize("order", [(16, 64, 52, 36, 48), (64, 16, 52, 40, 36)])
def test_remainders_and_comparisons_of_a_size_are_those_of_each_size(
    monkeypatch: pytest.MonkeyPatch, order: tuple[int, ...]
) -> None:
    monkeypatch.setenv("WEFT_JIT", "now")
    with wf.Graph().as_default():
        x = wf.placeholder(wf.float32, [None, 12])
        size = wf.shape(x)[0]
        remainder = x * wf.cast(wf.floormod(size, 3), wf.float32) + wf.cast(size // 4, wf.float32)
        equal = x + wf.cast(wf.equal(size, 36), wf.float32)
        with wf.Session() as session:
            for rows in order:
                value = np.ones([rows, 12], np.float32)
                first, second = session.run([remainder, equal], {x: value})
                np.testing.assert_array_equal(first, value * (rows % 3) + rows // 4)
                np.testing.assert_array_equal(second, value + (rows == 36))


def test_code_for_all_sizes_is_found_on_the_disk(lowered: list[Any]) -> None:
    generator, request = LlvmGenerator(), request_of(20)
    generator.generate(request, others=[with_numbers(request, (33, 7))])
    count = len(lowered)
    for rows in (5, 64):
        found = LlvmGenerator().find(with_numbers(request_of(rows), (rows, 7)))
        assert found is not None and found.shares
        run(found, rows)
    assert len(lowered) == count


def test_a_damaged_entry_is_compiled_again(directory: Path, lowered: list[Any]) -> None:
    generator, request = LlvmGenerator(), request_of(20)
    generator.generate(request, others=[with_numbers(request, (33, 7))])
    key = generator.polymorphic_fingerprint(request)
    cache.keep(f"{key}.nodes", b'{"codes": [3]}')
    assert LlvmGenerator().find(request) is None
    code = generator.generate(request, others=[with_numbers(request, (33, 7))])
    run(code, 20)
    assert LlvmGenerator().find(request) is not None


def test_static_sizes_have_no_code_for_all_sizes() -> None:
    x = wf.placeholder(wf.float32, [4])
    y = wf.exp(x)
    assert LlvmGenerator().polymorphic_fingerprint(RegionRequest([y.op], [x], [y], [(4,)])) is None


def test_numbers_of_a_request_are_replaced() -> None:
    x = wf.placeholder(wf.float32, [None])
    request = RegionRequest([wf.exp(x).op], [x], [], [(4,)], {0: np.array([2, 3], np.int32)})
    numbers = numbers_of(request)
    assert numbers.numbers == (4, 2, 3)
    other = with_numbers(request, (5, 6, 7))
    assert numbers_of(other) == ((5, 6, 7), numbers.rest)
    assert other.shapes == ((5,),)


def test_numbers_of_a_loop_include_its_extents() -> None:
    whole: Any = None
    request = LoopRequest(whole, [(3,), ()], (Extent((8, 2), (9,), grows=True),), False)
    assert numbers_of(request).numbers == (3, 8, 2, 9)
    other = with_numbers(request, (4, 16, 2, 17))
    assert isinstance(other, LoopRequest)
    assert other.extents == (Extent((16, 2), (17,), grows=True),)
