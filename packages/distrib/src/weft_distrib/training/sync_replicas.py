"""Synchronous training of replicas, whose gradients are aggregated to one update."""

from __future__ import annotations

__all__ = ["SyncReplicasOptimizer"]

import threading
from collections.abc import Iterable
from typing import Any, NamedTuple

from weft_autodiff.optimizers.optimizer import Optimizer
from weft_graph.ir.collections_keys import GraphKeys
from weft_graph.ir.default_graph import colocate_with, control_dependencies, device, name_scope
from weft_graph.ir.indexed_slices import IndexedSlices
from weft_graph.ir.node import Node, Output
from weft_graph.ops.array import fill
from weft_graph.ops.casting import cast
from weft_graph.ops.control import group, no_op
from weft_graph.ops.identity import identity
from weft_graph.variables.base import Variable
from weft_graph.variables.reference import (
    global_variables,
    report_uninitialized_variables,
)
from weft_io.coordination.queue_runner import QueueRunner
from weft_io.queues.accumulator import ConditionalAccumulator, SparseConditionalAccumulator
from weft_io.queues.queue import FIFOQueue
from weft_io.training.hook import SessionRunHook
from weft_tensor import dtypes, errors

_GRACE_SECONDS = 0.5
"""Seconds that the last update may take when training has ended."""


class _Aggregation(NamedTuple):
    """The aggregation of one variable's gradients: the accumulator and its device."""

    accumulator: ConditionalAccumulator | SparseConditionalAccumulator
    device: str


class SyncReplicasOptimizer(Optimizer):
    """Optimizer wrapper that aggregates the gradients of many replicas to one update.

    Each replica adds its gradients to accumulators on the devices of the variables. When enough
    gradients have arrived, a thread of the chief applies their mean and puts tokens with the number
    of the new step into a queue. Each replica takes a token before it continues. If an update needs
    fewer gradients than there are replicas, the others are backup workers: gradients for a step
    that has ended are dropped.

    Args:
      opt: the optimizer that computes the updates.
      replicas_to_aggregate: the number of gradients of an update.
      total_num_replicas: the number of replicas; by default `replicas_to_aggregate`.
      variable_averages: an ExponentialMovingAverage of the variables after each update.
      variables_to_average: the variables to average.
      use_locking: accepted for compatibility; updates are always atomic.
      name: name of the nodes.
    Raises: InvalidArgumentError: only one of `variable_averages` and `variables_to_average` is set.
    Source: "TensorFlow: a system for large-scale machine learning", section 4.4.

    Examples:
      >>> w = wf.Variable(4.0)
      >>> step = wf.train.get_or_create_global_step()
      >>> sync = wf.train.SyncReplicasOptimizer(
      ...     wf.train.GradientDescentOptimizer(0.25), replicas_to_aggregate=1)
      >>> train = sync.minimize(w * w, global_step=step)
      >>> hook = sync.make_session_run_hook(is_chief=True)
      >>> with wf.train.MonitoredTrainingSession(hooks=[hook]) as session:
      ...     session.run(train)
    """

    def __init__(
        self,
        opt: Optimizer,
        replicas_to_aggregate: int,
        total_num_replicas: int | None = None,
        variable_averages: Any = None,
        variables_to_average: Any = None,
        use_locking: bool = False,
        name: str = "sync_replicas",
    ) -> None:
        super().__init__(use_locking, name)
        if (variable_averages is None) != (variables_to_average is None):
            raise errors.InvalidArgumentError(
                "variable_averages and variables_to_average must be set together"
            )
        total = replicas_to_aggregate if total_num_replicas is None else total_num_replicas
        self._opt = opt
        self._required = replicas_to_aggregate
        self._total = total
        self._tokens_per_step = max(total, replicas_to_aggregate)
        self._averages, self._averaged = variable_averages, variables_to_average
        self._gathered: list[_Aggregation] = []
        self._global_step: Any = None
        self._local_step: Any = None
        self._tokens: FIFOQueue | None = None
        self._runner: QueueRunner | None = None
        self._local_step_init: Node | None = None
        self._chief_init: Node | None = None
        self._ready_for_local_init: Output | None = None

    # ---------------------------------------------------------------------- gradients

    def compute_gradients(self, *args: Any, **kwargs: Any) -> Any:
        """Compute gradients, like the wrapped optimizer."""
        return self._opt.compute_gradients(*args, **kwargs)

    def apply_gradients(
        self, grads_and_vars: Iterable[Any], global_step: Any = None, name: str | None = None
    ) -> Node:
        """Add the nodes that send this replica's gradients and wait for the next step.

        Args:
          grads_and_vars: the result of `compute_gradients`; pairs with None are ignored.
          global_step: an integer variable that counts the updates; required.
          name: the name of the returned node.
        Returns: a node that ends when the replica may begin its next step.
        Raises: InvalidArgumentError: `global_step` is None, or there are no gradients.
        """
        if global_step is None:
            raise errors.InvalidArgumentError("SyncReplicasOptimizer needs a global_step")
        pairs = [(grad, var) for grad, var in grads_and_vars if grad is not None]
        if not pairs:
            raise errors.InvalidArgumentError("No gradients provided for any variable.")
        self._global_step = global_step
        with name_scope(self._name):
            self._make_local_step(global_step)
            with name_scope(None):
                accumulated, means = self._gather(pairs)
                updated = self._opt.apply_gradients(means, global_step)
            self._make_tokens(global_step, updated)
            token = self._take_token(accumulated, global_step)
            self._make_inits(global_step)
        with control_dependencies([token]):
            return no_op(name=name)

    def _make_local_step(self, global_step: Any) -> None:
        # With the replica's other nodes, whatever spreads variables over parameter servers.
        accumulator_device = no_op("local_step_place").device
        with name_scope(None), device(None), device(accumulator_device):
            self._local_step = Variable(
                initial_value=0,
                trainable=False,
                collections=[GraphKeys.LOCAL_VARIABLES],
                dtype=global_step.dtype.base_dtype,
                name="sync_rep_local_step",
            )
        self._local_step_init = self._local_step.assign(
            cast(global_step, self._local_step.dtype.base_dtype)
        ).op

    def _gather(self, pairs: list[Any]) -> tuple[list[Node], list[Any]]:
        """Return nodes that add this replica's gradients, and pairs of mean and variable."""
        nodes: list[Node] = []
        means: list[Any] = []
        for grad, var in pairs:
            with colocate_with(None, ignore_existing=True), device(var.device):
                if isinstance(grad, IndexedSlices):
                    self._gather_rows(grad, var, nodes, means)
                else:
                    self._gather_dense(grad, var, nodes, means)
        return nodes, means

    def _gather_dense(self, grad: Any, var: Any, nodes: list[Node], means: list[Any]) -> None:
        accumulator = ConditionalAccumulator(
            grad.dtype, shape=var.shape, shared_name=f"{var.op.name}/grad_accum"
        )
        nodes.append(accumulator.apply_grad(grad, self._local_step))
        means.append((accumulator.take_grad(self._required), var))
        self._gathered.append(_Aggregation(accumulator, var.device))

    def _gather_rows(self, grad: Any, var: Any, nodes: list[Node], means: list[Any]) -> None:
        accumulator = SparseConditionalAccumulator(
            grad.dtype, shape=var.shape, shared_name=f"{var.op.name}/grad_accum_sparse"
        )
        nodes.append(accumulator.apply_indexed_slices_grad(grad, self._local_step))
        mean = accumulator.take_grad(self._required)
        rows = IndexedSlices(mean.values, mean.indices, mean.shape)
        means.append((rows, var))
        self._gathered.append(_Aggregation(accumulator, var.device))

    def _make_tokens(self, global_step: Any, updated: Node) -> None:
        with colocate_with(None, ignore_existing=True), device(global_step.device):
            self._tokens = FIFOQueue(
                -1,
                dtypes.int64,
                shapes=(),
                name="sync_token_q",
                shared_name=f"{self._name}_token_q",
            )
            unused = FIFOQueue(1, dtypes.int64, shapes=(), name="dummy_queue")
        with device(global_step.device), control_dependencies([updated]):
            step = self._read(global_step)
            enqueue_many = self._tokens.enqueue_many((fill([self._tokens_per_step], step),))
        if self._averages is not None:
            with control_dependencies([enqueue_many]):
                enqueue_many = self._averages.apply(self._averaged)
        # Its queue is only what the runner closes in the end; the hook ends what waits.
        ends = (errors.OutOfRangeError, errors.CancelledError)
        self._runner = QueueRunner(unused, [enqueue_many], queue_closed_exception_types=ends)

    def _read(self, global_step: Any) -> Output:
        return identity(cast(global_step.read_value(), dtypes.int64))

    def _take_token(self, nodes: list[Node], global_step: Any) -> Node:
        assert self._tokens is not None
        with control_dependencies(nodes), device(global_step.device):
            token = self._tokens.dequeue()
        step = cast(token, self._local_step.dtype.base_dtype)
        node: Node = self._local_step.assign(step).op
        return node

    def _make_inits(self, global_step: Any) -> None:
        with name_scope("init"):
            set_steps = []
            for accumulator, accumulator_device in self._gathered:
                with device(accumulator_device):
                    set_steps.append(accumulator.set_global_step(cast(global_step, dtypes.int64)))
            assert self._local_step_init is not None
            self._chief_init = group(self._local_step_init, *set_steps)
            self._ready_for_local_init = report_uninitialized_variables(global_variables())

    # ------------------------------------------------------------------------- chief

    def get_chief_queue_runner(self) -> QueueRunner:
        """Return the chief's queue runner, which applies updates and distributes tokens.

        Raises: FailedPreconditionError: `apply_gradients` has not been called.
        """
        queue_runner: QueueRunner = self._apply_value(self._runner)
        return queue_runner

    def get_init_tokens_op(self, num_tokens: int = -1) -> Node:
        """Return the chief's node that distributes the first tokens.

        Args:
          num_tokens: the number of tokens; by default the smallest number for which no replica
            waits forever.
        Raises:
          FailedPreconditionError: `apply_gradients` has not been called.
          InvalidArgumentError: with so few tokens, replicas would wait forever.
        """
        tokens = self._apply_value(self._tokens)
        needed = self._required - self._total
        if num_tokens == -1:
            num_tokens = self._required
        elif num_tokens < needed:
            raise errors.InvalidArgumentError(
                f"{self._total} replicas with replicas_to_aggregate={self._required} need at "
                f"least {needed} tokens, got {num_tokens}"
            )
        if num_tokens <= 0:
            return no_op(name="no_init_tokens")
        with device(self._global_step.device):
            step = self._read(self._global_step)
            enqueue_many: Node = tokens.enqueue_many((fill([num_tokens], step),))
        return enqueue_many

    def make_session_run_hook(self, is_chief: bool, num_tokens: int = -1) -> SessionRunHook:
        """Return a hook that initializes a replica and, on the chief, distributes tokens.

        Args:
          is_chief: True for the chief.
          num_tokens: see `get_init_tokens_op`.
        """
        return _SyncReplicasHook(self, is_chief, num_tokens)

    def _apply_value(self, value: Any) -> Any:
        if value is None:
            raise errors.FailedPreconditionError("call apply_gradients first")
        return value

    @property
    def local_step_init_op(self) -> Node:
        """The node that sets the step of a replica other than the chief."""
        node: Node = self._apply_value(self._local_step_init)
        return node

    @property
    def chief_init_op(self) -> Node:
        """The node that sets the step of the chief and of the accumulators."""
        node: Node = self._apply_value(self._chief_init)
        return node

    @property
    def ready_for_local_init_op(self) -> Output:
        """The node that returns the names of uninitialized global variables."""
        output: Output = self._apply_value(self._ready_for_local_init)
        return output

    # ------------------------------------------------------------------- delegation

    def get_slot(self, *args: Any, **kwargs: Any) -> Any:
        """See the wrapped optimizer."""
        return self._opt.get_slot(*args, **kwargs)

    def get_slot_names(self, *args: Any, **kwargs: Any) -> list[str]:
        """See the wrapped optimizer."""
        return self._opt.get_slot_names(*args, **kwargs)

    def variables(self) -> list[Any]:
        """See the wrapped optimizer."""
        return self._opt.variables()


class _SyncReplicasHook(SessionRunHook):
    """Hook that initializes a replica.

    On the chief it also starts the thread that distributes tokens.
    """

    def __init__(self, optimizer: SyncReplicasOptimizer, is_chief: bool, num_tokens: int) -> None:
        self._optimizer = optimizer
        self._is_chief = is_chief
        self._num_tokens = num_tokens

    def begin(self) -> None:
        optimizer = self._optimizer
        self._ready = optimizer.ready_for_local_init_op
        if self._is_chief:
            self._init = optimizer.chief_init_op
            self._first_tokens = optimizer.get_init_tokens_op(self._num_tokens)
            self._runner = optimizer.get_chief_queue_runner()
        else:
            self._init = optimizer.local_step_init_op

    def after_create_session(self, session: Any, coord: Any) -> None:
        missing = session.run(self._ready)
        if len(missing):
            raise errors.FailedPreconditionError(
                "the model is not initialized, so no replica can start: uninitialized variables "
                f"{missing.tolist()}"
            )
        session.run(self._init)
        if self._is_chief:
            threads = self._runner.create_threads(session, coord=coord, daemon=True, start=True)
            threading.Thread(target=_end, args=(session, coord, threads), daemon=True).start()
            session.run(self._first_tokens)


def _end(session: Any, coord: Any, threads: list[threading.Thread]) -> None:
    """At the end of training, end the threads that wait for gradients that will not arrive."""
    coord.wait_for_stop()
    for thread in threads:
        thread.join(_GRACE_SECONDS)
    if any(thread.is_alive() for thread in threads):
        session.close()
