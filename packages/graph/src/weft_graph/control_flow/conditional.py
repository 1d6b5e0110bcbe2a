"""Conditionals: `cond`, `case` and `switch_case`."""

from __future__ import annotations

__all__ = ["case", "cond", "switch_case"]

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from weft_graph.control_flow.context import CondContext, Conditional, current_context
from weft_graph.control_flow.structure import Rebuild, check_arrays, flatten, unpack_single
from weft_graph.ir import nest
from weft_graph.ir.builder import convert_to_tensor
from weft_graph.ir.default_graph import graph_for
from weft_graph.ir.graph import Graph
from weft_graph.ir.node import Node, Output
from weft_graph.ops import (
    casting,
    comparison,
    control,
    control_flow as primitives,
    identity,
    reduction,
)
from weft_tensor import dtypes, errors
from weft_tensor.shape import format_dims

Branch = Callable[[], Any]


def cond(
    pred: Any,
    true_fn: Branch | None = None,
    false_fn: Branch | None = None,
    strict: bool = False,
    name: str | None = None,
    fn1: Branch | None = None,
    fn2: Branch | None = None,
) -> Any:
    """Run `true_fn` if `pred` is true, else `false_fn`, and return its result.

    Only nodes created inside the selected function are conditional; nodes created outside always
    run.

    Args:
      pred: bool, rank 0.
      true_fn, false_fn: functions without arguments that return equal structures of tensors, with
        equal element types; a returned node is run and becomes a bool tensor.
      strict: return a list of one item unchanged, instead of the item.
      fn1, fn2: deprecated names of `true_fn` and `false_fn`.
    Returns: the structure, with new tensors.
    Raises:
      InvalidTypeError: `pred` is a Python bool, a function is missing or not callable, or the
        element types differ.
      InvalidArgumentError: the structures differ, or a function returns None.
    Source: paper, section 4.4.

    Examples:
      >>> x = wf.placeholder(wf.float32, [])
      >>> y = wf.cond(x > 0.0, lambda: 2.0 * x, lambda: -x)
      >>> session = wf.Session()
      >>> session.run(y, {x: 3.0}), session.run(y, {x: -3.0})
      (np.float32(6.0), np.float32(3.0))
    """
    on_true, otherwise = _functions(true_fn, false_fn, fn1, fn2)
    if isinstance(pred, bool):
        raise errors.InvalidTypeError("cond requires pred to be a tensor, got a Python bool")
    condition = convert_to_tensor(pred, dtypes.bool_)
    graph = condition.graph
    with graph.as_default(), graph.name_scope(name or "cond") as scope:
        conditional = open_conditional(graph, condition, scope)
        lower_branch, upper_branch = conditional.branches
        upper, rebuild = _run_branch(upper_branch, on_true, strict)
        lower, _ = _run_branch(lower_branch, otherwise, strict)
        _check_structures(conditional, lower, upper)
        packed = rebuild(merge_results(conditional))
    return packed if strict else unpack_single(packed)


def _functions(
    true_fn: Branch | None, false_fn: Branch | None, fn1: Branch | None, fn2: Branch | None
) -> tuple[Branch, Branch]:
    if (true_fn is not None and fn1 is not None) or (false_fn is not None and fn2 is not None):
        raise errors.InvalidTypeError(
            "cond: pass true_fn or its old name fn1, not both; likewise false_fn and fn2"
        )
    on_true = fn1 if true_fn is None else true_fn
    otherwise = fn2 if false_fn is None else false_fn
    for function, argument in ((on_true, "true_fn"), (otherwise, "false_fn")):
        if not callable(function):
            raise errors.InvalidTypeError(
                f"cond requires {argument} to be callable, got {function!r}"
            )
    assert on_true is not None and otherwise is not None
    return on_true, otherwise


# -------------------------------------------------------------------------------- building


def open_conditional(graph: Graph, pred: Output, scope: str) -> Conditional:
    """Return a conditional with two empty branches, in the current context."""
    outer = current_context(graph)
    sides = primitives.switch(pred, pred, name="Switch")
    conditional = Conditional(identity.identity(pred, name="pred_id"))
    graph.prevent_feeding(conditional.pred)
    for side, label in ((False, "switch_f"), (True, "switch_t")):
        pivot = identity.identity(sides[side], name=label)
        for output in (sides[side], pivot):
            graph.prevent_feeding(output)
        branch = CondContext(graph, graph.unique_name("cond_text"), outer, conditional, side)
        branch.pivot = pivot.node
        pivot.node.context = branch
    return conditional


def branch_results(branch: CondContext, values: Sequence[Output]) -> None:
    """Set the results of a branch, which must be open; the values may be from outside."""
    branch.results = tuple([identity.identity(value) for value in values])


def merge_results(conditional: Conditional) -> list[Output]:
    """Merge the results of a conditional's branches; each must have the same number."""
    pairs = zip(*[branch.results for branch in conditional.branches], strict=True)
    return [primitives.merge(pair, name="Merge").output for pair in pairs]


def _run_branch(branch: CondContext, function: Branch, strict: bool) -> tuple[Any, Rebuild]:
    with branch.open():
        result = function()
        if result is None:
            argument = "true_fn" if branch.taken else "false_fn"
            raise errors.InvalidArgumentError(
                f"cond requires {argument} to return a value, got None; return a tensor, "
                "or the node to run"
            )
        if not strict:
            result = unpack_single(result)
        result = nest.map_structure(lambda leaf: _value_of(leaf, branch), result)
        values, rebuild = flatten(result)
        branch_results(branch, values)
    return result, rebuild


def _value_of(leaf: Any, branch: CondContext) -> Any:
    """Return a leaf; a node becomes a bool tensor that depends on it."""
    if leaf is None:
        raise errors.InvalidArgumentError("cond requires tensors or nodes, got None in a structure")
    if isinstance(leaf, Node):
        assert branch.pivot is not None
        return control.with_dependencies([leaf], branch.pivot.outputs[0])
    return leaf


def _check_structures(conditional: Conditional, otherwise: Any, on_true: Any) -> None:
    try:
        nest.assert_same_structure(on_true, otherwise)
    except (ValueError, TypeError) as cause:
        kind = isinstance(cause, TypeError)
        raise (errors.InvalidTypeError if kind else errors.InvalidArgumentError)(
            f"true_fn and false_fn of cond must return equal structures: {cause}"
        ) from cause
    check_arrays(on_true, otherwise, "true_fn and false_fn of cond")
    lower, upper = [branch.results for branch in conditional.branches]
    if len(lower) != len(upper):
        raise errors.InvalidArgumentError(
            "true_fn and false_fn of cond must return the same kinds of values, got "
            f"{on_true!r} and {otherwise!r}"
        )
    for true_value, false_value in zip(upper, lower, strict=True):
        if true_value.dtype is not false_value.dtype:
            raise errors.InvalidTypeError(
                "true_fn and false_fn of cond must return the same element types, got "
                f"{true_value.dtype.name}{format_dims(true_value.dims)} and "
                f"{false_value.dtype.name}{format_dims(false_value.dims)}"
            )


# ------------------------------------------------------------------------------------ case


def case(
    pred_fn_pairs: Any,
    default: Branch | None = None,
    exclusive: bool = False,
    strict: bool = False,
    name: str = "case",
) -> Any:
    """Run the function of the first true predicate, else `default`, and return its result.

    Args:
      pred_fn_pairs: list of (bool of rank 0, function), or a dictionary of these.
      default: function to run if no predicate is true; without it, that is an error at run time.
      exclusive: raise an error at run time if more than one predicate is true.
    Returns: as `cond`.
    Raises:
      InvalidTypeError: the pairs or the functions have a wrong type.
      InvalidArgumentError: there are no pairs, or the structures differ.

    Examples:
      >>> x = wf.constant(5)
      >>> small, large = wf.constant("small"), wf.constant("large")
      >>> size = wf.case([(x < 3, lambda: small)], default=lambda: large)
      >>> wf.Session().run(size)
      b'large'
    """
    pairs = _pairs(pred_fn_pairs)
    if default is not None and not callable(default):
        raise errors.InvalidTypeError(f"case requires default to be callable, got {default!r}")
    graph = graph_for(pairs[0][0])
    with graph.as_default(), graph.name_scope(name):
        preds = [pred for pred, _ in pairs]
        controls = []
        if exclusive:
            controls.append(_assert_at_most_one(preds, name))
        if default is None:
            controls.append(_assert_any(preds, name))
        with graph.control_dependencies(controls):
            return _chain(pairs, default, strict)


def _pairs(named: Any) -> list[tuple[Output, Branch]]:
    items = list(named.items()) if isinstance(named, Mapping) else named
    if not isinstance(items, list | tuple):
        raise errors.InvalidTypeError(
            f"case requires pred_fn_pairs to be a list or a dictionary, got {named!r}"
        )
    if not items:
        raise errors.InvalidArgumentError("case requires at least one pair, got none")
    pairs = []
    for item in items:
        if not isinstance(item, tuple) or len(item) != 2:
            raise errors.InvalidTypeError(
                f"case requires pairs (predicate, function), got {item!r}"
            )
        pred, function = item
        if not isinstance(pred, Output) or pred.dtype.base_dtype is not dtypes.bool_:
            raise errors.InvalidTypeError(f"case requires predicates to be bool, got {pred!r}")
        if not callable(function):
            raise errors.InvalidTypeError(f"case requires callables, got {function!r}")
        pairs.append((pred, function))
    return pairs


def _chain(pairs: Sequence[tuple[Output, Branch]], default: Branch | None, strict: bool) -> Any:
    """Return nested conditionals, the first pair outermost; the last pair replaces a default."""
    (pred, function), later_pairs = pairs[0], pairs[1:]
    if not later_pairs:
        if default is None:
            if strict:
                return function()
            return nest.map_structure(_group_if_node, unpack_single(function()))
        return cond(pred, function, default, strict=strict)
    return cond(pred, function, lambda: _chain(later_pairs, default, strict), strict=strict)


def _group_if_node(leaf: Any) -> Any:
    return control.group(leaf) if isinstance(leaf, Node) else leaf


def _assert_at_most_one(preds: Sequence[Output], name: str) -> Node:
    count = reduction.reduce_sum(casting.cast(_vector(preds), dtypes.int32))
    return control.Assert(
        comparison.less_equal(count, 1),
        [
            f"{name}: more than one predicate is true, but exclusive=True; predicates",
            _vector(preds),
        ],
        summarize=len(preds),
    )


def _assert_any(preds: Sequence[Output], name: str) -> Node:
    return control.Assert(
        reduction.reduce_any(_vector(preds)),
        [f"{name}: no predicate is true, and there is no default; predicates", _vector(preds)],
        summarize=len(preds),
    )


def _vector(preds: Sequence[Output]) -> Output:
    return convert_to_tensor(list(preds))


def switch_case(
    branch_index: Any, branch_fns: Any, default: Branch | None = None, name: str | None = None
) -> Any:
    """Run the function with the index `branch_index` and return its result.

    Args:
      branch_index: int32, rank 0.
      branch_fns: list of functions, a dictionary from ints to functions, or a list of such pairs;
        the ints are 0 to n - 1.
      default: for an index out of range; the last function by default.
    Returns: as `cond` with `strict`.
    Raises: InvalidTypeError, InvalidArgumentError: the functions or their indices are invalid.

    Examples:
      >>> index = wf.placeholder(wf.int32, [])
      >>> value = wf.switch_case(index, [lambda: wf.constant(10), lambda: wf.constant(20)])
      >>> wf.Session().run(value, {index: 1})
      np.int32(20)
    """
    functions = _sort_branches(branch_fns)
    index = convert_to_tensor(branch_index, dtypes.int32)
    graph = index.graph
    with graph.as_default(), graph.name_scope(name or "switch_case"):
        last = functions[-1] if default is None else default
        numbered = functions[:-1] if default is None else functions
        if not numbered:
            return nest.map_structure(_group_if_node, last())
        in_range = comparison.logical_and(
            comparison.greater_equal(index, 0), comparison.less(index, len(numbered))
        )
        return cond(in_range, lambda: _bisect(index, numbered, 0), last, strict=True)


def _sort_branches(branch_fns: Any) -> list[Branch]:
    items = list(branch_fns.items()) if isinstance(branch_fns, Mapping) else branch_fns
    if not isinstance(items, list | tuple) or not items:
        raise errors.InvalidTypeError(
            f"switch_case requires a list or a dictionary of functions, got {branch_fns!r}"
        )
    pairs = [item if isinstance(item, tuple) else (i, item) for i, item in enumerate(items)]
    for key, function in pairs:
        if not isinstance(key, int) or not callable(function):
            raise errors.InvalidTypeError(
                f"switch_case requires functions numbered by ints, got ({key!r}, {function!r})"
            )
    pairs.sort(key=lambda pair: pair[0])
    if [key for key, _ in pairs] != list(range(len(pairs))):
        raise errors.InvalidArgumentError(
            f"switch_case requires the numbers 0 to {len(pairs) - 1}, "
            f"got {[key for key, _ in pairs]}"
        )
    return [function for _, function in pairs]


def _bisect(index: Output, functions: Sequence[Branch], first: int) -> Any:
    """Return a balanced tree of conditionals over functions numbered from `first`."""
    if len(functions) == 1:
        return functions[0]()
    half = len(functions) // 2
    return cond(
        comparison.less(index, first + half),
        lambda: _bisect(index, functions[:half], first),
        lambda: _bisect(index, functions[half:], first + half),
        strict=True,
    )
