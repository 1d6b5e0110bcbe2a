"""Code for many sizes serves the sizes between verified ones, without lowering."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft as wf
from weft_compiler import sharing
from weft_compiler.generator import LlvmGenerator, LoopCompiler, RegionCompiler
from weft_compiler.lower.folded_values import FoldedValues, is_on_line
from weft_compiler.lower.request_numbers import numbers_of, with_numbers
from weft_compiler.native import cache
from weft_graph.ir.code_generators import RegionRequest
from weft_graph.ir.compile_pauses import CompilationAbandoned
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
    gc.collect()  # code of earlier tests that is still in memory would not be written to the cache
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
    code = generator.generate(request, other_choices=[with_numbers(request, (33, 7))])
    assert code.is_shape_polymorphic
    count = len(lowered)
    for rows in (3, 17, 20, 33, 100):
        other = with_numbers(request, (rows, 7))
        found = generator.instance(other, [code])
        assert found is not None and found.is_shape_polymorphic
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


def test_an_integer_of_a_size_is_evaluated_for_sizes_without_lowering(
    monkeypatch: pytest.MonkeyPatch, lowered: list[Any]
) -> None:
    monkeypatch.setenv("WEFT_JIT", "now")
    with wf.Graph().as_default():
        x = wf.placeholder(wf.float32, [None, 12])
        size = wf.shape(x)[0]
        linear = x * wf.cast(wf.maximum(size, 2) * 24 // 12, wf.float32)
        with wf.Session() as session:
            for rows in (20, 33):
                session.run(linear, {x: np.ones([rows, 12], np.float32)})
            count = len(lowered)
            for rows in (3, 17, 64):
                value = np.ones([rows, 12], np.float32)
                np.testing.assert_array_equal(session.run(linear, {x: value}), value * 2 * rows)
    assert len(lowered) == count


def test_folded_values_decide_which_sizes_are_served() -> None:
    with wf.Graph().as_default():
        x = wf.placeholder(wf.float32, [None, 12])
        number = wf.placeholder(wf.int32, [])
        size = wf.shape(x)[0]
        of_size, of_input = wf.floormod(size, 3), wf.floormod(number, 3)
        y = x * wf.cast(of_size, wf.float32) + wf.cast(of_input, wf.float32)
    nodes = [node for node in y.graph.get_operations() if node.inputs]
    constants = [s for n in nodes for s in n.inputs if s.node.type == "Const"]
    inputs = list(dict.fromkeys([x, number, *constants]))
    shapes = [(16, 12), (), *[np.shape(c.node.attrs["value"]) for c in inputs[2:]]]
    folded = FoldedValues(RegionRequest(nodes, inputs, [y], shapes))
    others = [size for shape in shapes[1:] for size in shape]
    values = {rows: folded.at((rows, 12, *others)) for rows in (16, 64)}
    assert list(values[16] or ()) == [1, 1.0]
    for rows, is_served in ((52, True), (36, False), (53, False), (22, True)):
        there = folded.at((rows, 12, *others))
        assert is_on_line({**values, rows: there}, rows) is is_served


def test_a_recurrent_network_is_lowered_for_two_lengths_only(
    monkeypatch: pytest.MonkeyPatch, lowered: list[Any]
) -> None:
    monkeypatch.setenv("WEFT_JIT", "now")
    draw = np.random.default_rng(0)
    values = [draw.normal(size=(4, n, 8)).astype(np.float32) for n in (20, 33, 3, 17, 48)]
    with wf.Graph().as_default():
        x = wf.placeholder(wf.float32, [4, None, 8])
        w = wf.constant(draw.normal(size=(8, 8)).astype(np.float32))

        def step(state: Any, row: Any) -> Any:
            return wf.tanh(wf.matmul(state, w) + row)

        states = wf.scan(step, wf.transpose(x, [1, 0, 2]), initializer=wf.zeros([4, 8]))
        (gradient,) = wf.gradients(wf.reduce_mean(states * states), [x])
        counts = []
        for mode in ("off", "now"):
            monkeypatch.setenv("WEFT_JIT", mode)
            with wf.Session() as session:
                results = []
                for value in values:
                    results.append(session.run(gradient, {x: value}))
                    counts.append(len(lowered))
            if mode == "off":
                expected = results
    for result, kernels in zip(results, expected, strict=True):
        np.testing.assert_allclose(result, kernels, rtol=1e-3, atol=1e-5)
    assert counts[5] > 0
    assert counts[6:] == [counts[6]] * 4


@pytest.mark.parametrize("order", [(16, 64, 52, 36, 48), (64, 16, 52, 40, 36)])
def test_remainders_of_a_size_inside_of_a_loop_are_those_of_each_size(
    monkeypatch: pytest.MonkeyPatch, order: tuple[int, ...]
) -> None:
    monkeypatch.setenv("WEFT_JIT", "now")
    with wf.Graph().as_default():
        x = wf.placeholder(wf.float32, [None, 12])

        def body(i: Any, total: Any) -> Any:
            return i + 1, total + wf.cast(wf.floormod(wf.shape(total)[0], 3), wf.float32)

        _, y = wf.while_loop(lambda i, _: i < 4, body, [wf.constant(0), x])
        with wf.Session() as session:
            for rows in order:
                value = np.ones([rows, 12], np.float32)
                np.testing.assert_array_equal(session.run(y, {x: value}), value + 4 * (rows % 3))


def test_code_for_all_sizes_is_found_on_the_disk(lowered: list[Any]) -> None:
    generator, request = LlvmGenerator(), request_of(20)
    generator.generate(request, other_choices=[with_numbers(request, (33, 7))])
    count = len(lowered)
    for rows in (5, 64):
        found = LlvmGenerator().find(with_numbers(request_of(rows), (rows, 7)))
        assert found is not None and found.is_shape_polymorphic
        run(found, rows)
    assert len(lowered) == count


def test_code_is_on_the_disk_if_the_program_ends_during_verification(
    monkeypatch: pytest.MonkeyPatch, lowered: list[Any]
) -> None:
    def ended() -> None:
        raise CompilationAbandoned

    generator, request = LlvmGenerator(), request_of(20)
    with monkeypatch.context() as patch:
        patch.setattr(sharing, "may_pause", ended)
        with pytest.raises(CompilationAbandoned):
            generator.generate(request, other_choices=[with_numbers(request, (33, 7))])
    count = len(lowered)
    found = LlvmGenerator().find(request)
    assert found is not None
    run(found, 20)
    assert len(lowered) == count


def test_a_damaged_entry_is_compiled_again(directory: Path, lowered: list[Any]) -> None:
    generator, request = LlvmGenerator(), request_of(20)
    generator.generate(request, other_choices=[with_numbers(request, (33, 7))])
    key = generator.polymorphic_fingerprint(request)
    cache.keep(f"{key}.nodes", b'{"codes": [3]}')
    assert LlvmGenerator().find(request) is None
    code = generator.generate(request, other_choices=[with_numbers(request, (33, 7))])
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
