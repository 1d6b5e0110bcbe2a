"""`slim.learning`: training steps, and a training loop."""

from __future__ import annotations

from weft_autodiff.clipping import global_norm

__all__ = [
    "add_gradients_summaries",
    "clip_gradient_norms",
    "create_train_op",
    "multiply_gradients",
    "train",
    "train_step",
]

import logging
import operator
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from weft_autodiff.clipping import clip_by_norm
from weft_autodiff.optimizers.training_util import get_global_step, get_or_create_global_step
from weft_graph.ir.collections_keys import GraphKeys
from weft_graph.ir.default_graph import (
    control_dependencies,
    get_collection,
    get_collection_ref,
    get_default_graph,
)
from weft_graph.ir.indexed_slices import IndexedSlices
from weft_graph.ops import identity
from weft_graph.variables.reference import trainable_variables
from weft_io import summary
from weft_io.training.supervisor import Supervisor
from weft_tensor import errors

_log = logging.getLogger("weft")
_USE_GLOBAL_STEP: Any = object()


def clip_gradient_norms(gradients_to_variables: Any, max_norm: float) -> list[Any]:
    """Clip each gradient separately to a maximum norm; return the pairs.

    Args:
      gradients_to_variables: pairs of gradient and variable.
      max_norm: the maximum norm.
    """
    return [
        (_apply_to_values(g, lambda v: clip_by_norm(v, max_norm)), var)
        for g, var in gradients_to_variables
    ]


def multiply_gradients(grads_and_vars: Any, gradient_multipliers: Mapping[Any, Any]) -> list[Any]:
    """Multiply gradients; return the pairs.

    Args:
      grads_and_vars: pairs of gradient and variable.
      gradient_multipliers: multipliers by variable or name of its node.
    """
    result = []
    for gradient, variable in grads_and_vars:
        factor = gradient_multipliers.get(variable, gradient_multipliers.get(variable.op.name))
        if factor is not None:
            if gradient is None:
                raise errors.InvalidArgumentError("Requested multiple of `None` gradient.")
            gradient = _apply_to_values(gradient, partial(operator.mul, factor))
        result.append((gradient, variable))
    return result


def _apply_to_values(gradient: Any, function: Callable[[Any], Any]) -> Any:
    if gradient is None:
        return None
    if isinstance(gradient, IndexedSlices):
        return IndexedSlices(function(gradient.values), gradient.indices, gradient.dense_shape)
    return function(gradient)


def add_gradients_summaries(grads_and_vars: Any) -> list[Any]:
    """Create summaries of gradients and their norms.

    Args:
      grads_and_vars: pairs of gradient and variable.
    """
    written = []
    for gradient, variable in grads_and_vars:
        if gradient is None:
            _log.info("Var %s has no gradient", variable.op.name)
            continue
        values = gradient.values if isinstance(gradient, IndexedSlices) else gradient
        written.append(summary.histogram(variable.op.name + "/gradient", values))
        written.append(summary.scalar(variable.op.name + "/gradient_norm", global_norm([values])))
    return written


def create_train_op(
    total_loss: Any,
    optimizer: Any,
    global_step: Any = _USE_GLOBAL_STEP,
    update_ops: Any = None,
    variables_to_train: Any = None,
    clip_gradient_norm: float = 0,
    summarize_gradients: bool = False,
    gate_gradients: int = 1,
    aggregation_method: Any = None,
    colocate_gradients_with_ops: bool = False,
    gradient_multipliers: Mapping[Any, Any] | None = None,
    check_numerics: bool = True,
) -> Any:
    """Create a training step that returns the loss.

    Args:
      total_loss: floating, rank 0.
      optimizer: an optimizer.
      global_step: variable that counts the steps; the graph's by default, None for none.
      update_ops: ops to run before the update; those in UPDATE_OPS by default.
      variables_to_train: variables to train; all trainable ones by default.
      clip_gradient_norm: maximum norm of each gradient, if positive.
      summarize_gradients: write summaries of gradients.
      gate_gradients, aggregation_method, colocate_gradients_with_ops: as for `compute_gradients`.
      gradient_multipliers: as for `multiply_gradients`.
      check_numerics: fail if the loss is NaN or infinite.
    """
    step = get_or_create_global_step() if global_step is _USE_GLOBAL_STEP else global_step
    updates = get_collection(GraphKeys.UPDATE_OPS) if update_ops is None else list(update_ops)
    if updates:
        with control_dependencies(updates):
            total_loss = identity.identity(total_loss, name="update_barrier")
    pairs = optimizer.compute_gradients(
        total_loss,
        trainable_variables() if variables_to_train is None else variables_to_train,
        gate_gradients=gate_gradients,
        aggregation_method=aggregation_method,
        colocate_gradients_with_ops=colocate_gradients_with_ops,
    )
    if gradient_multipliers:
        pairs = multiply_gradients(pairs, gradient_multipliers)
    if clip_gradient_norm > 0:
        pairs = clip_gradient_norms(pairs, clip_gradient_norm)
    if summarize_gradients:
        add_gradients_summaries(pairs)
    apply = optimizer.apply_gradients(pairs, global_step=step)
    with get_default_graph().name_scope("train_op"):
        if check_numerics:
            total_loss = identity.check_numerics(total_loss, "LossTensor is inf or nan")
        with control_dependencies([apply]):
            train_op = identity.identity(total_loss)
    listed = get_collection_ref(GraphKeys.TRAIN_OP)
    if train_op not in listed:
        listed.append(train_op)
    return train_op


def train_step(
    sess: Any, train_op: Any, global_step: Any, train_step_kwargs: Mapping[str, Any]
) -> tuple[Any, bool]:
    """Run one training step.

    Args:
      sess: the session.
      train_op: tensor that runs the step and returns the loss.
      global_step: variable that counts the steps.
      train_step_kwargs: "should_stop" and "should_log", bool tensors or functions of the step.
    Returns: the loss, and whether training should end.
    """
    start = time.monotonic()
    loss, step = sess.run([train_op, global_step])
    if train_step_kwargs.get("should_log", lambda _: False)(step):
        spent = time.monotonic() - start
        _log.info("global step %d: loss = %.4f (%.3f sec/step)", step, loss, spent)
    return loss, bool(train_step_kwargs.get("should_stop", lambda _: False)(step))


def train(
    train_op: Any,
    logdir: Any,
    train_step_fn: Callable[..., Any] = train_step,
    train_step_kwargs: Mapping[str, Any] | None = None,
    log_every_n_steps: int = 1,
    graph: Any = None,
    master: str = "",
    is_chief: bool = True,
    global_step: Any = None,
    number_of_steps: int | None = None,
    init_op: Any = Supervisor.USE_DEFAULT,
    init_feed_dict: Any = None,
    local_init_op: Any = Supervisor.USE_DEFAULT,
    init_fn: Callable[..., Any] | None = None,
    summary_op: Any = Supervisor.USE_DEFAULT,
    save_summaries_secs: int = 600,
    saver: Any = None,
    save_interval_secs: int = 600,
    session_config: Any = None,
) -> Any:
    """Train for a number of steps, with checkpoints and summaries.

    Args:
      train_op: result of `create_train_op`.
      logdir: the directory, or None.
      train_step_fn: a function like `train_step`.
      train_step_kwargs: its last argument.
      log_every_n_steps: number of steps between log lines of the loss.
      graph: the graph; the default one by default. master, is_chief, init_op, init_feed_dict,
        local_init_op, init_fn, summary_op, save_summaries_secs, saver, save_interval_secs: as for
        `train.Supervisor`, where the last one is called `save_model_secs`.
      global_step: variable that counts the steps; the graph's by default.
      number_of_steps: step at which training ends; without it training ends with the input.
      session_config: configuration of the session.
    Returns: the last loss.
    """
    graph = graph or get_default_graph()
    with graph.as_default():
        step = get_global_step() if global_step is None else global_step
        options: dict[str, Any] = {} if saver is None else {"saver": saver}
        supervisor = Supervisor(
            graph=graph,
            is_chief=is_chief,
            logdir=logdir,
            init_op=init_op,
            init_feed_dict=init_feed_dict,
            local_init_op=local_init_op,
            init_fn=init_fn,
            summary_op=summary_op,
            global_step=step,
            save_summaries_secs=save_summaries_secs,
            save_model_secs=save_interval_secs,
            **options,
        )
        step_args = dict(train_step_kwargs or {})
        if number_of_steps:
            step_args.setdefault("should_stop", lambda step: step >= number_of_steps)
        if log_every_n_steps > 0:
            step_args.setdefault("should_log", lambda step: step % log_every_n_steps == 0)
        loss = None
        with supervisor.managed_session(master, config=session_config) as session:
            try:
                while not supervisor.should_stop():
                    loss, stop = train_step_fn(session, train_op, step, step_args)
                    if stop:
                        break
            except errors.OutOfRangeError as error:
                _log.info("Caught OutOfRangeError. Stopping Training. %s", error)
            if logdir and is_chief:
                supervisor.saver.save(session, supervisor.save_path, global_step=step)
        return loss
