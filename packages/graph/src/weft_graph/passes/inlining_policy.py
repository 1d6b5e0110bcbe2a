"""Inlining policy: calls are kept if recursive, marked, or of large bodies that are called often.

A kept call costs about ten microseconds per run, and passes cannot optimize across it. Inlining
costs about fifty microseconds of planning per node, once. Calls are therefore inlined unless that
would add very many nodes; then calls are kept whose bodies take much longer than the call itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from weft_graph.functions import state
from weft_graph.functions.function import Function
from weft_graph.ir.deep_stack import deeper
from weft_graph.ir.node import Node

LARGE_BODY = 200
"""Number of nodes, including called functions, below which bodies are always inlined."""

LARGE_NUM_NODES = 20_000
"""Largest number of nodes that all calls of a function may add: about a second of planning."""

Waits = Callable[[Node], bool]


class InliningPolicy:
    """Decides for each function that a step calls whether to inline it.

    Args:
      calls: the functions that nodes of the step call, once for each call.
      controls: predicate of the nodes that may have control inputs.
    """

    def __init__(self, calls: Iterable[Function], controls: Waits) -> None:
        self._controls = controls
        self._able: dict[Function, bool] = {}
        self._sizes: dict[Function, int] = {}
        self._inner: dict[Function, Counter[Function]] = {}
        self._decisions: dict[Function, bool] = {}
        direct = Counter(calls)
        for function in direct:
            self._measure_body(function)
        counts = Counter(direct)
        for function in sorted(self._sizes, key=lambda f: -self._sizes[f]):
            self._decisions[function] = is_retained = self._decide(function, counts[function])
            for inner, number in self._inner[function].items():
                counts[inner] += number * (1 if is_retained else counts[function])

    def keeps(self, function: Function) -> bool:
        """Return True if calls of a function are not inlined."""
        decision = self._decisions.get(function)
        return must_stay(function) if decision is None else decision

    def _measure_body(self, function: Function) -> None:
        """Measure the size of a function's body, and record the functions that it calls."""
        if function in self._sizes:
            return
        self._sizes[function] = len(function.nodes)
        callees = [state.callee(node) for node in function.calls()]
        inner = Counter(f for f in callees if f is not None and not f.is_recursive)
        self._inner[function] = Counter() if must_stay(function) else inner
        for callee in inner:
            deeper(self._measure_body, callee)
        self._sizes[function] += sum(self._sizes[f] * n for f, n in inner.items())

    def _decide(self, function: Function, count: int) -> bool:
        if must_stay(function):
            return True
        is_large = count * self._sizes[function] > LARGE_NUM_NODES
        preferred = function.attrs.get("_noinline") or (
            is_large and self._sizes[function] >= LARGE_BODY and count > 1
        )
        return bool(preferred) and self._can_stay(function)

    def _can_stay(self, function: Function) -> bool:
        """Return True if a call is equivalent to its inlined body.

        It is not if a node owns state that all calls would share, such as a random stream, if a
        reference is passed, or if a node may block.
        """
        able = self._able.get(function)
        if able is None:
            self._able[function] = True
            able = not any(value.dtype.is_ref for value in function.inputs)
            able = able and all(self._can_run_in_call(node) for node in function.nodes)
            self._able[function] = able
        return able

    def _can_run_in_call(self, node: Node) -> bool:
        callee = state.callee(node)
        if callee is not None:
            return deeper(self._can_stay, callee)
        if state.is_private(node):
            return True
        if state.uses_rng(node) or state.returns_handle(node):
            return False
        if state.has_effect(node) and not state.resources(node):
            return False
        return not self._controls(node)


def must_stay(function: Function) -> bool:
    """Return True if inlining would not terminate."""
    return function.is_recursive
