"""A guard that stops before an update with NaN or infinity, and names the node that made it."""

from __future__ import annotations

__all__ = ["NonFiniteError", "NumericsGuard"]

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from weft_exec.settings import settings
from weft_graph.ir.default_graph import control_dependencies, name_scope
from weft_graph.ir.indexed_slices import IndexedSlices
from weft_graph.ir.node import Node, Output
from weft_graph.ops.identity import check_numerics
from weft_graph.variables.base import Variable
from weft_io.checkpoint.statistics import statistics
from weft_io.porting.tables import format_table
from weft_tensor import dtypes, errors


class ValueStatistics(NamedTuple):
    """Statistics of a value.

    Attributes:
      name: name of the tensor.
      shape: its shape.
      minimum, maximum, mean: statistics of the finite elements; NaN if there are none.
      num_nan, num_infinite: counts of elements.
    """

    name: str
    shape: tuple[int, ...]
    minimum: float
    maximum: float
    mean: float
    num_nan: int
    num_infinite: int


class NonFiniteError(errors.InvalidArgumentError):
    """A step computed NaN or infinity. No variable was updated by it.

    `NumericsGuard.run` raises it, so programs do not create it.

    Args:
      node: the node that made NaN or infinity from finite inputs.
      step: value of the global step, or None.
      inputs, outputs: statistics of the node's floating-point values.

    Attributes:
      input_statistics, output_statistics: statistics of the floating-point inputs and outputs of
        the node that made it.
      step: the value of the global step; None if the guard has none.

    Examples:
      >>> issubclass(wf.porting.NonFiniteError, wf.errors.InvalidArgumentError)
      True
    """

    def __init__(
        self,
        node: Node,
        step: int | None,
        inputs: Sequence[ValueStatistics],
        outputs: Sequence[ValueStatistics],
    ) -> None:
        step_text = "" if step is None else f" in step {step}"
        super().__init__(
            f"{node.type} {node.name!r} made NaN or infinity{step_text} from finite inputs; "
            f"no variable "
            f"was updated\n{_table(inputs, outputs)}",
            op=node.type,
            node=node.name,
            device=node.device or None,
            line=node.line or None,
        )
        self.input_statistics = inputs
        self.output_statistics = outputs
        self.step = step


class NumericsGuard:
    """Wraps an optimizer so that a step with NaN or infinity fails before it updates variables.

    Only the loss and the gradients are checked, in the loops that compute them, so a guard can stay
    on. If a check fails, `run` repeats the computation from the same variables and inputs, with a
    check of each node, and raises an error that names the first node that made NaN or infinity.
    Values from queues and datasets are kept for this purpose. Random numbers are drawn again.

    Args:
      optimizer: the optimizer.

    Examples:
      >>> x = wf.placeholder(wf.float32, [])
      >>> w = wf.Variable(1.0)
      >>> guard = wf.porting.NumericsGuard(wf.train.GradientDescentOptimizer(0.1))
      >>> train = guard.minimize(w * wf.log(x, name="logarithm"))
      >>> session = wf.Session()
      >>> session.run(wf.global_variables_initializer())
      >>> guard.run(session, train, {x: 2.0})
      >>> guard.run(session, train, {x: -1.0})
      Traceback (most recent call last):
      ...
      weft_io.porting.nonfinite.NonFiniteError: Log 'logarithm' made NaN or infinity...
    """

    def __init__(self, optimizer: Any) -> None:
        self._optimizer = optimizer
        self._stages: list[list[Output]] = []  # the loss, then the gradients
        self._stored_inputs: dict[Output, Any] = {}
        self._global_step: Any = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._optimizer, name)

    def compute_gradients(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the gradients as the optimizer does."""
        return self._optimizer.compute_gradients(*args, **kwargs)

    def minimize(
        self, loss: Any, global_step: Any = None, name: str | None = None, **kwargs: Any
    ) -> Node:
        """Return a node that computes, checks and applies the gradients.

        Args:
          loss, global_step, name: as for `Optimizer.minimize`.
          **kwargs: further arguments of `Optimizer.compute_gradients`.
        """
        pairs = self._optimizer.compute_gradients(loss, **kwargs)
        return self._add_guard(loss, pairs, global_step, name)

    def apply_gradients(
        self,
        grads_and_vars: Iterable[tuple[Any, Any]],
        global_step: Any = None,
        name: str | None = None,
    ) -> Node:
        """Return a node that checks all gradients and then applies them.

        Args:
          grads_and_vars, global_step, name: as for `Optimizer.apply_gradients`.
        """
        return self._add_guard(None, list(grads_and_vars), global_step, name)

    def _add_guard(
        self,
        loss: Output | None,
        pairs: Sequence[tuple[Any, Any]],
        global_step: Any,
        name: str | None,
    ) -> Node:
        self._global_step = global_step
        dense = [_dense(grad) for grad, _ in pairs]
        gradients = [grad for grad in dense if grad is not None]
        self._stages = [gradients] if loss is None else [[loss], gradients]
        with name_scope("numerics_guard"):
            with control_dependencies(self._keep_inputs()):
                checked = [
                    None if grad is None else check_numerics(grad, f"the gradient of {var.name}")
                    for grad, (_, var) in zip(dense, pairs, strict=True)
                ]
                checks = [value for value in checked if value is not None]
                if loss is not None:
                    checks.append(check_numerics(loss, "the loss"))
            with control_dependencies(checks):
                guarded = [
                    (_replace(grad, value), var)
                    for (grad, var), value in zip(pairs, checked, strict=True)
                ]
                node: Node = self._optimizer.apply_gradients(guarded, global_step, name)
        return node

    def run(self, session: Any, fetches: Any, feed_dict: Mapping[Any, Any] | None = None) -> Any:
        """Run a step; if it computes NaN or infinity, find the node that made it.

        Args:
          session: a session, or a MonitoredSession.
          fetches, feed_dict: as for `Session.run`.
        Raises: NonFiniteError: the loss or a gradient is not finite.
        """
        try:
            return session.run(fetches, feed_dict)
        except errors.InvalidArgumentError as error:
            if isinstance(error, NonFiniteError) or "Tensor had" not in error.message:
                raise
            raw = session.raw_session() if hasattr(session, "raw_session") else session
            raise self.explain(raw, feed_dict) from error

    def explain(self, session: Any, feed_dict: Mapping[Any, Any] | None = None) -> errors.OpError:
        """Return an error that names the node that makes NaN or infinity for these inputs.

        Args:
          session: the session, with the variables as the failed step read them.
          feed_dict: as for the failed step.
        """
        feeds = dict(feed_dict or {})
        for source, variable in self._stored_inputs.items():
            feeds[source] = session.run(variable.value())
        saved_setting, settings.check_numerics = settings.check_numerics, True
        try:
            for stage in self._stages:
                session.run(stage, feeds)
        except errors.InvalidArgumentError as error:
            checked_node = _find_checked_node(session.graph, error)
            if checked_node is None:
                return error
        else:
            return errors.InvalidArgumentError(
                "the loss or a gradient had NaN or infinity, but not when it was computed again: "
                "it depends on random numbers or on state that changed since"
            )
        finally:
            settings.check_numerics = saved_setting
        inputs = [value for value in checked_node.inputs if value.dtype.is_floating]
        outputs = [value for value in checked_node.outputs if value.dtype.is_floating]
        values = session.run([*inputs, *outputs], feeds)
        rows = [
            _statistics(tensor.name, value)
            for tensor, value in zip((*inputs, *outputs), values, strict=True)
        ]
        step = None if self._global_step is None else int(session.run(self._global_step))
        return NonFiniteError(checked_node, step, rows[: len(inputs)], rows[len(inputs) :])

    def _keep_inputs(self) -> list[Node]:
        """Return nodes that store the values that the gradients read from queues and datasets."""
        nodes = []
        for source in _external_inputs([output for stage in self._stages for output in stage]):
            variable = Variable(
                np.zeros((), source.dtype.as_numpy_dtype),
                trainable=False,
                collections=["local_variables"],
                validate_shape=False,
                dtype=source.dtype,
                name="input",
            )
            self._stored_inputs[source] = variable
            nodes.append(variable.assign(source, use_locking=False).op)
        return nodes


def _dense(grad: Any) -> Output | None:
    values = grad.values if isinstance(grad, IndexedSlices) else grad
    return values if isinstance(values, Output) else None


def _replace(grad: Any, value: Output | None) -> Any:
    if isinstance(grad, IndexedSlices) and value is not None:
        return IndexedSlices(value, grad.indices, grad.dense_shape)
    return value


def _external_inputs(outputs: Sequence[Output]) -> list[Output]:
    """Return the outputs of nodes that a repetition would compute again: of queues and datasets."""
    visited: set[Node] = set()
    result: dict[Output, None] = {}
    pending = [(output.node, output) for output in outputs]
    while pending:
        node, output = pending.pop()
        if node.traits.asynchronous or node.traits.host_code:
            result[output] = None
        elif node not in visited:
            visited.add(node)
            pending += [(source.node, source) for source in node.inputs]
    return list(result)


def _find_checked_node(graph: Any, error: errors.OpError) -> Node | None:
    name, _, _ = (error.node or "").rpartition("/numerics")
    node: Node | None = graph.find_node(name)
    return node


def _statistics(name: str, value: Any) -> ValueStatistics:
    array = np.asarray(value)
    numbers = statistics(array, dtypes.as_dtype(array.dtype))
    nan = int(np.isnan(array).sum())
    minimum, maximum, mean = (
        float("nan") if number is None else float(number)
        for number in (numbers.least, numbers.most, numbers.mean)
    )
    return ValueStatistics(name, array.shape, minimum, maximum, mean, nan, numbers.not_finite - nan)


def _table(inputs: Sequence[ValueStatistics], outputs: Sequence[ValueStatistics]) -> str:
    rows = [
        (
            kind, value.name, str(list(value.shape)), f"{value.minimum:.4g}",
            f"{value.maximum:.4g}", f"{value.mean:.4g}", str(value.num_nan),
            str(value.num_infinite),
        )
        for kind, values in (("input", inputs), ("output", outputs))
        for value in values
    ]  # fmt: skip
    return format_table(("", "tensor", "shape", "min", "max", "mean", "NaN", "Inf"), rows)
