"""The combined request of a program and its hooks for one step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from weft_graph import proto
from weft_graph.ir.graph import Graph
from weft_io.training.hook import SessionRunArgs, SessionRunContext, SessionRunHook
from weft_tensor import errors

_LARGER_WINS = (
    "trace_level",
    "timeout_in_ms",
    "inter_op_thread_pool",
    "output_partition_graphs",
    "report_tensor_allocations_upon_oom",
)


class StepRequest(NamedTuple):
    """The fetches, feeds and options of one step.

    Attributes:
      fetches: the program's fetches, then those of each hook that has any.
      positions: the index in `fetches` of each hook's fetches; None for a hook without fetches.
      feed_dict: all feeds.
      options: the merged options; None if there are none.
    """

    fetches: list[Any]
    positions: list[int | None]
    feed_dict: Mapping[Any, Any] | None
    options: Any

    def results_of(self, position: int | None, values: Sequence[Any]) -> Any:
        """Return a hook's part of the results of a step."""
        return None if position is None else values[position]


def collect_requests(
    hooks: Iterable[SessionRunHook],
    context: SessionRunContext,
    graph: Graph,
    options: Any,
) -> StepRequest:
    """Collect the additions of all hooks to a step, in order.

    Args:
      context: context of the step, with the program's request.
      graph: the session's graph.
      options: the program's RunOptions or None; not modified.
    Raises:
      FailedPreconditionError: a tensor is fed twice.
      InvalidTypeError: a hook did not return a SessionRunArgs.
    """
    fetches, positions = [context.original_args.fetches], []
    feeds = _Feeds(graph)
    for hook in hooks:
        requested = _validate(hook, hook.before_run(context))
        positions.append(None if requested.fetches is None else len(fetches))
        if requested.fetches is not None:
            fetches.append(requested.fetches)
        if requested.feed_dict:
            feeds.add(requested.feed_dict, "Same tensor is fed by two hooks.")
        if requested.options is not None:
            options = merge_options(options, requested.options)
    feed_dict = context.original_args.feed_dict
    if not feeds.values:
        return StepRequest(fetches, positions, feed_dict, options)
    if feed_dict:
        feeds.add(feed_dict, "Same tensor is fed by a SessionRunHook and user.")
    return StepRequest(fetches, positions, feeds.values, options)


def _validate(hook: SessionRunHook, requested: Any) -> SessionRunArgs:
    if requested is None:
        return SessionRunArgs(None)
    if not isinstance(requested, SessionRunArgs):
        raise errors.InvalidTypeError(
            f"before_run of {type(hook).__name__} must return a SessionRunArgs or None, "
            f"got {requested!r}"
        )
    return requested


class _Feeds:
    """Feeds merged from several dictionaries; each tensor is allowed only once."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._tensors: set[Any] = set()
        self.values: dict[Any, Any] = {}

    def add(self, feeds: Mapping[Any, Any], message: str) -> None:
        tensors = {self._tensor(key) for key in feeds}
        common = self._tensors & tensors
        if common:
            names = sorted(str(getattr(tensor, "name", tensor)) for tensor in common)
            raise errors.FailedPreconditionError(f"{message} Conflict(s): {', '.join(names)}")
        self._tensors |= tensors
        self.values.update(feeds)

    def _tensor(self, key: Any) -> Any:
        return self._graph.as_graph_element(key) if isinstance(key, str) else key


def merge_options(options: Any, extra_options: Any) -> Any:
    """Merge two RunOptions: the larger value of each field, and all debug watches."""
    result = proto.RunOptions()
    if options is not None:
        result.CopyFrom(options)
    for field in _LARGER_WINS:
        setattr(result, field, max(getattr(result, field), getattr(extra_options, field)))
    watches = extra_options.debug_options.debug_tensor_watch_opts
    if watches:
        result.debug_options.debug_tensor_watch_opts.extend(watches)
    return result
