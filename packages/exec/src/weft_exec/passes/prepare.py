"""Preparation of the graph of a step or function body for placement."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from weft_exec.config import SessionConfig
from weft_exec.devices.device import Device
from weft_exec.kernels.registry import kernels_of
from weft_exec.passes.fold import fold_constants
from weft_exec.settings import jit_environment, settings
from weft_graph.ir.jit_scope import CHECKED, COMPILED
from weft_graph.ir.node import Node, Output
from weft_graph.ir.step_graph import StepGraph
from weft_graph.passes import batch_equal, eliminate_common_subexpressions, prune, simplify
from weft_graph.passes.inline import inline_calls
from weft_graph.passes.routed_references import read_routed
from weft_tensor.dtypes import DType

Watch = Callable[[str, StepGraph], None]
"""Callback that receives the graph after each stage."""


def _ignore(*_: Any) -> None:
    pass


def prepare(
    feeds: Sequence[Output],
    outputs: Sequence[Output],
    targets: Sequence[Node],
    host: Device,
    *,
    may_wait: Callable[[Node], bool] | None = None,
    note: Callable[[Iterable[Node]], None] = _ignore,
    watch: Watch = _ignore,
    mixed_precision: DType | None = None,
) -> StepGraph:
    """Return the graph of a step after pruning, inlining and optimization.

    Args:
      feeds: the outputs that are fed and therefore not computed.
      outputs: the fetches.
      targets: the nodes to run even if their outputs are unused.
      host: the device whose kernels fold constants, and whose options enable optimizations.
      may_wait: returns True if a node may wait for something other than its inputs; by default
        always False.
      note: receives the nodes of a step in which calls were inlined, because the session's graph
        does not have them.
      watch: called with the graph after each stage.
      mixed_precision: the type of products of float32 values; None to leave them as they are.
    Raises: OpError: the graph cannot be run with these feeds, or a call does not match its
    function.
    """
    step = prune(feeds, outputs, targets)
    watch("pruned", step)
    if inline_calls(step, may_wait, lambda op: bool(kernels_of(op, host.type))):
        note(step.graph.nodes)
        watch("inlined", step)
    if read_routed(step):
        note(step.graph.nodes)
    if settings.check_numerics:
        from weft_graph.passes.numeric_checks import check_numerics

        check_numerics(step)
        note(step.graph.nodes)
        watch("checked", step)
    if mixed_precision is not None:
        from weft_graph.passes.mixed_precision import use_short_type

        use_short_type(step, mixed_precision)
        note(step.graph.nodes)
        watch("in mixed precision", step)
    if host.config.optimize:
        batch_equal(step)
        simplify(step)
        fold_constants(step, host)
        eliminate_common_subexpressions(step)
        watch("optimized", step)
    _set_compile_options(step, host.config)
    return step


def _set_compile_options(step: StepGraph, config: SessionConfig) -> None:
    """Store the session's compilation options on the nodes, for the processes that derive them."""
    attributes: dict[str, Any] = {} if config.jit is None else {COMPILED: config.jit}
    if config.jit_check:
        attributes = {COMPILED: True, **attributes, CHECKED: True}
    elif config.deterministic and not jit_environment():
        attributes = {
            COMPILED: False,
            **attributes,
        }  # results must not depend on when something was compiled
    for node in step.graph.nodes if attributes else ():
        if node.inputs:
            node.attrs = {**attributes, **node.attrs}
