"""Comparison of kernels and compiled code on the same graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import weft as wf
from weft_compiler import generator
from weft_exec.executor.native.loops import CompiledLoop
from weft_graph.ir.builder import create
from weft_graph.ir.code_generators import RegionRequest
from weft_graph.ir.node import Output

Build = Callable[..., Sequence[Output]]


def by_both(
    monkeypatch: pytest.MonkeyPatch, build: Build, *arrays: Any
) -> tuple[list[Any], list[Any]]:
    """Return the results of kernels and of compiled code for some feeds."""
    found = []
    for mode in ("off", "now"):
        monkeypatch.setenv("WEFT_JIT", mode)
        with wf.Graph().as_default(), wf.Session() as session:
            feeds = [wf.placeholder(array.dtype, array.shape) for array in arrays]
            fetches = list(build(*[wf.identity(feed) for feed in feeds]))
            values = dict(zip(feeds, arrays, strict=True))
            if mode == "now":
                assert session.explain(fetches, feeds).compiled
            found.append(session.run(fetches, values))
    return found[0], found[1]


def compiled_ops(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Return a set that records the ops compiled from now on; compilation failures are errors."""
    found: set[str] = set()
    generate = generator.RegionCompiler.generate

    def noted(self: Any, request: RegionRequest, *like: Any) -> Any:
        types = [node.type for node in request.members]
        try:
            made = generate(self, request, *like)
        except generator.NotGenerated as why:
            raise AssertionError(f"{types}: {why}") from why
        found.update(types)
        return made

    monkeypatch.setattr(generator.RegionCompiler, "generate", noted)
    return found


def agree(got: Sequence[Any], want: Sequence[Any], relative: float, absolute: float) -> None:
    """Raise AssertionError unless values have the same types and shapes, and are close."""
    for value, expected in zip(got, want, strict=True):
        assert value.dtype == expected.dtype and value.shape == expected.shape
        wide = np.complex128 if value.dtype.kind == "c" else np.float64
        np.testing.assert_allclose(value.astype(wide), expected.astype(wide), relative, absolute)


def outputs(op: str, inputs: Sequence[Any], **attrs: Any) -> Sequence[Output]:
    """Return the outputs of a new node."""
    return create(op, list(inputs), attrs).outputs


def loops_that_ran(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that records the name of each compiled loop when it runs."""
    found: list[str] = []
    last = CompiledLoop._last_values

    def note(self: Any, *given: Any) -> Any:
        found.append(self._loop_region.loop.frame.name)
        return last(self, *given)

    monkeypatch.setattr(CompiledLoop, "_last_values", note)
    return found
