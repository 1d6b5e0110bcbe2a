"""The code cache: which nodes share an entry, and which do not."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft as wf
from weft_compiler import generator
from weft_compiler.generator import Compiled, LlvmGenerator
from weft_compiler.lower import whole_loop
from weft_compiler.native import cache, program as native
from weft_graph.ir.builder import out
from weft_graph.ir.code_generators import RegionRequest
from weft_graph.ir.op_def import register_op
from weft_graph.ir.scalar import exp
from weft_graph.ir.traits import elementwise


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A cache of the test's own."""
    monkeypatch.setenv("WEFT_CACHE", str(tmp_path / "cache"))
    cache.directory.cache_clear()
    yield tmp_path / "cache"
    cache.directory.cache_clear()


def region(
    name: str, build: Callable[[Any, Any], Any], shape: tuple[int, ...] = (2, 3)
) -> RegionRequest:
    """Return the request for the nodes that a function makes of two placeholders."""
    with wf.Graph().as_default() as graph, wf.name_scope(name):
        x = wf.placeholder(wf.float32, [None, None], name="x")
        y = wf.placeholder(wf.float32, [None, None], name="y")
        made = build(x, y)
        outputs = made if isinstance(made, list) else [made]
        members = [node for node in graph.nodes if node.inputs]
        given = [source for node in members for source in node.inputs]
        inputs = [s for s in dict.fromkeys(given) if s.node not in members]
        shapes = [shape if source.dims is None or None in source.dims else source.dims
                  for source in inputs]  # fmt: skip
    return RegionRequest(members, inputs, outputs, shapes)


def computed(made: Compiled, *arrays: Any) -> list[Any]:
    results = [np.empty(shape, dtype.numpy) for dtype, shape in made.results]
    made(*arrays, *results)
    return results


X = np.arange(6, dtype=np.float32).reshape(2, 3)
TABLE = np.arange(1000, dtype=np.float32)


def sums(x: Any, y: Any) -> Any:
    return wf.reduce_sum(wf.exp(x - y), 1) * 2.0


def test_names_alone_decide_nothing(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = LlvmGenerator().generate(region("a", sums))
    want = computed(first, X, X + 1)
    del first
    gc.collect()
    monkeypatch.setattr(generator, "lower", None)
    found = LlvmGenerator().find(region("another", sums))
    assert found is not None and (computed(found, X, X + 1)[0] == want[0]).all()
    assert (want[0] == 2 * np.exp(np.float32(-1)) * 3).all() or np.allclose(want[0], 6 / np.e)


def test_what_decides_code_decides_where_it_is(place: Path) -> None:
    several: list[Any] = [
        region("a", sums),
        region("a", sums, (2, 4)),
        region("a", lambda x, y: wf.reduce_sum(wf.exp(x - x * y), 1) * 2.0),
        region("a", lambda x, y: wf.reduce_sum(wf.exp(x - y), 0) * 2.0),
        region("a", lambda x, y: wf.reduce_sum(wf.exp(x - y), 1, keepdims=True) * 2.0),
        region("a", lambda x, y: wf.reduce_sum(wf.exp(x - y), 1) * 3.0),
        region("a", lambda x, y: wf.reduce_max(wf.exp(x - y), 1) * 2.0),
        region("a", lambda x, y: wf.reduce_sum(wf.exp(x - y) + x * y, 1) * 2.0),
        region("a", lambda x, y: [sums(x, y), wf.exp(x)]),
        region("a", lambda x, y: [wf.exp(x), sums(x, y)]),
        region("a", lambda x, y: wf.gather(wf.constant(TABLE), wf.cast(x, wf.int32)) + y),
        region("a", lambda x, y: wf.gather(wf.constant(TABLE + 1), wf.cast(x, wf.int32)) + y),
    ]
    for at, each in enumerate(several):
        assert LlvmGenerator().find(each) is None
        LlvmGenerator().generate(each)
        assert len(list(place.glob("*.nodes"))) == at + 1
        assert LlvmGenerator().find(each) is not None


def test_constants_are_those_of_the_graph(place: Path) -> None:
    def build(x: Any, y: Any) -> Any:
        return wf.gather(wf.constant(TABLE), wf.cast(x, wf.int32)) + y

    LlvmGenerator().generate(region("a", build))
    gc.collect()
    (entry,) = place.glob("*.nodes")
    assert entry.stat().st_size < TABLE.nbytes
    found = LlvmGenerator().find(region("b", build))
    assert found is not None and (computed(found, X, X)[0] == TABLE[X.astype(int)] + X).all()


def test_an_entry_that_does_not_hold_is_no_entry(place: Path) -> None:
    each = region("a", sums)
    LlvmGenerator().generate(each)
    gc.collect()
    (entry,) = place.glob("*.nodes")
    content = entry.read_bytes()
    entry.write_bytes(content[:-1] + b" ")
    assert LlvmGenerator().find(each) is None  # a byte is wrong
    written = json.loads(content[content.index(b'{"host"') :])  # after its checksum
    cache.keep(entry.name, json.dumps(written | {"host": ["another"]}).encode())
    assert LlvmGenerator().find(each) is None  # code for another processor
    entry.write_bytes(content)
    assert LlvmGenerator().find(each) is not None
    gc.collect()
    (place / written["code"]["file"]).unlink()
    assert LlvmGenerator().find(each) is None  # the code is gone
    assert np.allclose(computed(LlvmGenerator().generate(each), X, X)[0], 6)
    assert LlvmGenerator().find(each) is not None


@pytest.mark.parametrize("junk", [b"", b"junk", b"[]", b'{"host": 1}'])
def test_what_somebody_else_wrote_is_made_anew(place: Path, junk: bytes) -> None:
    """The checksum is valid, but the content is not."""
    each = region("a", sums)
    LlvmGenerator().generate(each)
    for file in list(place.iterdir()):
        gc.collect()
        content = file.read_bytes()
        cache.keep(file.name, junk)
        assert np.allclose(computed(LlvmGenerator().generate(each), X, X)[0], 6)
        assert file.read_bytes() == content
        gc.collect()
        assert LlvmGenerator().find(each) is not None


def test_parts_of_an_entry_may_be_wrong(place: Path) -> None:
    each = region("a", sums)
    LlvmGenerator().generate(each)
    gc.collect()
    (entry,) = place.glob("*.nodes")
    content = entry.read_bytes()
    written = json.loads(content[content.index(b'{"host"') :])
    for name, value in written.items():
        if name in ("host", "name", "size", "statements", "updated", "messages"):
            continue
        wrong = {**written, name: {"a": value} if isinstance(value, list) else [1, 2]}
        cache.keep(entry.name, json.dumps(wrong).encode())
        assert LlvmGenerator().find(each) is None
        assert not entry.exists()


def test_without_a_disk_nodes_are_lowered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_CACHE", "off")
    cache.directory.cache_clear()
    kept = LlvmGenerator().generate(region("a", sums))
    monkeypatch.setattr(generator, "lower", None)
    found = LlvmGenerator().generate(region("b", sums))
    assert found.program.code is kept.program.code
    assert np.allclose(computed(found, X, X)[0], 6)


def test_what_others_declare_is_lowered_each_time(place: Path) -> None:
    """The cache could not detect that their definitions have changed."""
    register_op(
        "TestKeptOfAStranger",
        inputs=("x: float32",),
        outputs=("y: float32",),
        shape=lambda node: [node.inputs[0].dims],
        traits=elementwise(lambda x: exp(x) * 2.0),
        doc="Twice exp(x).",
    )

    def build(x: Any, y: Any) -> Any:
        return out("TestKeptOfAStranger", [x]) + y

    made = LlvmGenerator().generate(region("a", build))
    assert np.allclose(computed(made, X, X)[0], 2 * np.exp(X) + X)
    assert not list(place.glob("*.nodes")) and LlvmGenerator().find(region("a", build)) is None


WEIGHTS = np.random.default_rng(0).normal(size=(64, 300)).astype(np.float32)


def layer(x: Any, y: Any) -> Any:
    """The weights are packed during lowering, so they are constants of the program."""
    return wf.nn.relu(wf.matmul(x, wf.constant(WEIGHTS)) + 1.0)


def test_large_constants_of_a_program_are_on_the_disk(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = np.random.default_rng(1).normal(size=(5, 64)).astype(np.float32)
    lower = generator.lower
    made = LlvmGenerator().generate(region("a", layer, (5, 64)))
    (want,) = computed(made, x)
    del made
    gc.collect()
    (entry,) = place.glob("*.nodes")
    (file,) = place.glob("*.constant")
    assert entry.stat().st_size < WEIGHTS.nbytes <= file.stat().st_size
    monkeypatch.setattr(generator, "lower", None)
    found = LlvmGenerator().find(region("b", layer, (5, 64)))
    assert found is not None and (computed(found, x)[0] == want).all()
    del found
    gc.collect()
    content = file.read_bytes()
    for wrong in (content[:-1] + b"x", None):
        if wrong is None:
            file.unlink()
        else:
            file.write_bytes(wrong)
        assert LlvmGenerator().find(region("b", layer, (5, 64))) is None
        monkeypatch.setattr(generator, "lower", lower)
        again = LlvmGenerator().generate(region("b", layer, (5, 64)))
        assert (computed(again, x)[0] == want).all() and file.read_bytes() == content
        monkeypatch.setattr(generator, "lower", None)
    cache.keep(file.name, content[100:1000])  # its checksum is right, and its size is not
    assert LlvmGenerator().find(region("b", layer, (5, 64))) is None


def test_sizes_share_code_that_was_on_the_disk(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A size that was never met has the code of those that were, in another process too."""
    sizes = [region("a", sums, (n, 3)) for n in (2, 3)]
    first = LlvmGenerator().generate(sizes[0])
    assert LlvmGenerator().generate(sizes[1], like=[first]).is_shape_polymorphic
    del first
    gc.collect()
    compiled: list[str] = []
    monkeypatch.setattr(native, "object_code", lambda text, *_: compiled.append(text))
    found = LlvmGenerator().find(sizes[1])
    assert found is not None and found.is_shape_polymorphic
    made = LlvmGenerator().generate(region("b", sums, (7, 3)), like=[found])
    x = np.arange(21, dtype=np.float32).reshape(7, 3)
    assert made.is_shape_polymorphic and not compiled
    np.testing.assert_allclose(computed(made, x, x / 2)[0], 2 * np.exp(x / 2).sum(1), rtol=1e-6)


Turns = Callable[[Any, Any], Any]


def looped(turn: Turns, times: int = 5, start: float = 0.5) -> Any:
    x = wf.constant(np.full(4, start, np.float32))
    scale = wf.placeholder(wf.float32, [4], name="scale")
    final = wf.while_loop(lambda i, _: i < times, lambda i, a: (i + 1, turn(a, scale)), [0, x])
    return scale, final[1]


def branched(a: Any, scale: Any) -> Any:
    return wf.cond(a[0] < 2.0, lambda: a * scale, lambda: a - scale)


def nested(a: Any, scale: Any) -> Any:
    return wf.while_loop(lambda j, _: j < 2, lambda j, b: (j + 1, b * scale), [0, a])[1]


LOOPS: dict[str, Any] = {
    "plain": (lambda a, scale: wf.sin(a) * scale,),
    "another op": (lambda a, scale: wf.cos(a) * scale,),
    "a constant inside": (lambda a, scale: wf.sin(a) * scale + 1.0,),
    "another constant inside": (lambda a, scale: wf.sin(a) * scale + 2.0,),
    "operands in turn": (lambda a, scale: a - scale,),
    "operands in another": (lambda a, scale: scale - a,),
    "more turns": (lambda a, scale: wf.sin(a) * scale, 6),
    "another start": (lambda a, scale: wf.sin(a) * scale, 5, 0.25),
    "branch": (branched,),
    "the other way": (lambda a, s: wf.cond(a[0] < 2.0, lambda: a - s, lambda: a * s),),
    "inner": (nested,),
}


def test_loops_are_on_the_disk(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop is stored once for all names; different loops have separate code."""
    monkeypatch.setenv("WEFT_JIT", "now")
    scale = np.array([1.5, 0.5, -1.0, 3.0], np.float32)
    lowered: list[Any] = []
    lower = whole_loop.lower_loop
    monkeypatch.setattr(
        whole_loop, "lower_loop", lambda *given: lowered.append(given) or lower(*given)
    )
    results: list[list[Any]] = []
    for said, scope in (("off", "a"), ("now", "b"), ("now", "c")):
        monkeypatch.setenv("WEFT_JIT", said)
        results.append([])
        for what in LOOPS.values():
            with wf.Graph().as_default(), wf.name_scope(scope), wf.Session() as session:
                fed, final = looped(*what)
                results[-1].append(session.run(final, {fed: scale}))
        gc.collect()
        assert len(lowered) == (0 if said == "off" else len(LOOPS))
    np.testing.assert_allclose(results[1], results[0], rtol=1e-5)
    np.testing.assert_array_equal(results[2], results[1])
