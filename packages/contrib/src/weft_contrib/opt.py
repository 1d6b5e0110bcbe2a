"""`tf.contrib.opt`: optimizers that `tf.train` lacks."""

from __future__ import annotations

__all__ = [
    "AdaMaxOptimizer",
    "AdamWOptimizer",
    "DecoupledWeightDecayExtension",
    "LARSOptimizer",
    "LazyAdamOptimizer",
    "MomentumWOptimizer",
    "MovingAverageOptimizer",
    "NadamOptimizer",
    "extend_with_decoupled_weight_decay",
]

from collections.abc import Sequence
from typing import Any

from weft_autodiff.optimizers.adam import AdamOptimizer
from weft_autodiff.optimizers.momentum import MomentumOptimizer
from weft_autodiff.optimizers.moving_averages import ExponentialMovingAverage
from weft_autodiff.optimizers.optimizer import Optimizer
from weft_autodiff.optimizers.update_rule import cast
from weft_graph.ir.builder import convert_to_tensor
from weft_graph.ir.default_graph import get_default_graph
from weft_graph.ir.indexed_slices import IndexedSlices
from weft_graph.ops import control, reduction
from weft_graph.ops.arithmetic import maximum
from weft_graph.ops.array import ones_like
from weft_graph.ops.comparison import greater
from weft_graph.ops.gather import gather
from weft_graph.ops.masks import where
from weft_graph.ops.powers import sqrt
from weft_graph.ops.search import unique
from weft_graph.variables.partitioned import checkpoint_name, group_parts
from weft_graph.variables.reference import global_variables
from weft_io.saving.saver import Saver
from weft_tensor import errors


class LazyAdamOptimizer(AdamOptimizer):
    """An Adam optimizer that leaves rows without a gradient unchanged.

    For dense gradients it is equal to `AdamOptimizer`. For sparse gradients, rows without a
    gradient and their moments do not change. The result differs from Adam's, but the time depends
    only on the number of rows with a gradient.

    Args:
      learning_rate, beta1, beta2, epsilon, use_locking, name: as for `train.AdamOptimizer`.

    Examples:
      >>> table = wf.Variable([[1.0], [1.0]])
      >>> loss = wf.reduce_sum(wf.gather(table, [1]))
      >>> update = wf.contrib.opt.LazyAdamOptimizer(0.5).minimize(loss)
      >>> with wf.Session() as session:
      ...     session.run(wf.global_variables_initializer())
      ...     session.run(update)
      ...     print(session.run(table).round(3).tolist())
      [[1.0], [0.5]]
    """

    def _apply_sparse_duplicate_indices(self, grad: IndexedSlices, var: Any) -> Any:
        return Optimizer._apply_sparse_duplicate_indices(self, grad, var)

    def _resource_apply_sparse_duplicate_indices(self, grad: Any, handle: Any, indices: Any) -> Any:
        return Optimizer._resource_apply_sparse_duplicate_indices(self, grad, handle, indices)

    def _apply_sparse(self, grad: IndexedSlices, var: Any) -> Any:
        return self._move_rows(grad.values, var, grad.indices)

    def _resource_apply_sparse(self, grad: Any, handle: Any, indices: Any) -> Any:
        return self._move_rows(grad, handle, indices)

    def _move_rows(self, grad: Any, var: Any, indices: Any) -> Any:
        dtype = var.dtype.base_dtype
        hyper, powers = self._hyper_tensors(dtype), self._extra_tensors(var)
        rate = hyper["lr"] * sqrt(1 - powers["beta2_power"]) / (1 - powers["beta1_power"])
        averages = []
        for slot, beta, value in (("m", "beta1", grad), ("v", "beta2", grad * grad)):
            slot_var = self.get_slot(var, slot)
            mean = hyper[beta] * gather(slot_var, indices) + (1 - hyper[beta]) * value
            averages.append((slot_var, mean))
        (_, m), (_, v) = averages
        step = rate * m / (sqrt(v) + hyper["epsilon"])
        updates = [
            slot_var.scatter_update(IndexedSlices(mean, indices)) for slot_var, mean in averages
        ]
        return control.group(var.scatter_sub(IndexedSlices(step, indices)), *updates)


class NadamOptimizer(AdamOptimizer):
    """Adam with Nesterov's momentum.

    Args:
      learning_rate, beta1, beta2, epsilon, use_locking, name: as for `train.AdamOptimizer`.
    Source: Dozat 2016, "Incorporating Nesterov momentum into Adam".

    Examples:
      >>> x = wf.Variable(1.0)
      >>> update = wf.contrib.opt.NadamOptimizer(0.1).minimize(x * x)
      >>> with wf.Session() as session:
      ...     session.run(wf.global_variables_initializer())
      ...     session.run(update)
      ...     print(round(float(session.run(x)), 4))
      0.81
    """

    def _attrs(self) -> dict[str, Any]:
        return {**super()._attrs(), "use_nesterov": True}


class AdaMaxOptimizer(AdamOptimizer):
    """Adam with the infinity norm.

        m = beta1 m + (1 - beta1) g
        v = max(beta2 v, |g|)
        x = x - learning_rate / (1 - beta1^t) m / (v + epsilon)

    For sparse gradients, only rows with a gradient change.

    Args:
      learning_rate, beta1, beta2, epsilon, use_locking, name: as for `train.AdamOptimizer`.
    Source: Kingma and Ba 2014, "Adam: a method for stochastic optimization", section 7.1.

    Examples:
      >>> x = wf.Variable(1.0)
      >>> update = wf.contrib.opt.AdaMaxOptimizer(0.1).minimize(x * x)
      >>> with wf.Session() as session:
      ...     session.run(wf.global_variables_initializer())
      ...     session.run(update)
      ...     print(round(float(session.run(x)), 4))
      0.9
    """

    def __init__(
        self,
        learning_rate: Any = 0.001,
        beta1: Any = 0.9,
        beta2: Any = 0.999,
        epsilon: Any = 1e-8,
        use_locking: bool = False,
        name: str = "AdaMax",
    ) -> None:
        super().__init__(learning_rate, beta1, beta2, epsilon, use_locking, name)

    def _get_beta_accumulators(self) -> Any:
        """Return the variable with beta1 to the power of the number of updates."""
        return self._get_non_slot_variable("beta1_power")

    def _create_slots(self, var_list: Sequence[Any]) -> None:
        first = min(var_list, key=lambda var: str(var.name))
        self._create_non_slot_variable(self._call_if_callable(self._beta1), "beta1_power", first)
        for var in var_list:
            self._zeros_slot(var, "m", self._name)
            self._zeros_slot(var, "v", self._name)

    def _prepare(self) -> None:
        super(AdamOptimizer, self)._prepare()
        self._beta1_power = convert_to_tensor(self._get_beta_accumulators())

    def _apply_dense(self, grad: Any, var: Any) -> Any:
        m, v = self.get_slot(var, "m"), self.get_slot(var, "v")
        new_m, new_v, step = self._move(grad, convert_to_tensor(m), convert_to_tensor(v), var)
        return control.group(m.assign(new_m), v.assign(new_v), var.assign_sub(step))

    def _resource_apply_dense(self, grad: Any, handle: Any) -> Any:
        return self._apply_dense(grad, handle)

    def _move(self, grad: Any, m: Any, v: Any, var: Any) -> tuple[Any, Any, Any]:
        hyper = self._hyper_tensors(var.dtype.base_dtype)
        power = cast(self._beta1_power, var.dtype.base_dtype)
        new_m = hyper["beta1"] * m + (1 - hyper["beta1"]) * grad
        new_v = maximum(hyper["beta2"] * v, abs(grad))
        return new_m, new_v, hyper["lr"] / (1 - power) * new_m / (new_v + hyper["epsilon"])

    def _apply_sparse_duplicate_indices(self, grad: IndexedSlices, var: Any) -> Any:
        return Optimizer._apply_sparse_duplicate_indices(self, grad, var)

    def _resource_apply_sparse_duplicate_indices(self, grad: Any, handle: Any, indices: Any) -> Any:
        return Optimizer._resource_apply_sparse_duplicate_indices(self, grad, handle, indices)

    def _apply_sparse(self, grad: IndexedSlices, var: Any) -> Any:
        return self._resource_apply_sparse(grad.values, var, grad.indices)

    def _resource_apply_sparse(self, grad: Any, handle: Any, indices: Any) -> Any:
        m, v = self.get_slot(handle, "m"), self.get_slot(handle, "v")
        rows = gather(m, indices), gather(v, indices)
        new_m, new_v, step = self._move(grad, *rows, handle)
        return control.group(
            m.scatter_update(IndexedSlices(new_m, indices)),
            v.scatter_update(IndexedSlices(new_v, indices)),
            handle.scatter_sub(IndexedSlices(step, indices)),
        )

    def _finish(self, update_ops: Sequence[Any], name_scope: str) -> Any:
        graph, power = get_default_graph(), self._get_beta_accumulators()
        with graph.control_dependencies(update_ops), graph.colocate_with(power.op):
            update = self._assign(power, self._beta1_power * self._beta1_t)
        return control.group(*update_ops, update, name=name_scope)


class LARSOptimizer(MomentumOptimizer):
    """Momentum with a learning rate per variable, from the norms of the variable and its gradient.

    Args:
      learning_rate: scalar.
      momentum: scalar.
      weight_decay: scalar, the factor of the variable that is added to its gradient.
      eeta: scalar, the trust coefficient.
      epsilon: scalar, added to the divisor.
      name: name of the node that applies the updates, and of the slot ("momentum").
      skip_list: substrings of names of variables that are not scaled or decayed.
      use_nesterov: use Nesterov momentum.
    Source: You et al. 2017, "Large batch training of convolutional networks".

    Examples:
      >>> x = wf.Variable([3.0, 4.0])
      >>> optimizer = wf.contrib.opt.LARSOptimizer(1.0, momentum=0.0, weight_decay=0.0, eeta=0.1)
      >>> update = optimizer.minimize(wf.reduce_sum(x * x))
      >>> with wf.Session() as session:
      ...     session.run(wf.global_variables_initializer())
      ...     session.run(update)
      ...     print([round(float(each), 3) for each in session.run(x)])
      [2.7, 3.6]
    """

    def __init__(
        self,
        learning_rate: Any,
        momentum: Any = 0.9,
        weight_decay: float = 0.0001,
        eeta: float = 0.001,
        epsilon: float = 0.0,
        name: str = "LARSOptimizer",
        skip_list: Sequence[str] | None = None,
        use_nesterov: bool = False,
    ) -> None:
        if float(eeta) < 0 or float(epsilon) < 0:
            raise errors.InvalidArgumentError(
                f"eeta and epsilon must be at least 0, got {eeta} and {epsilon}"
            )
        super().__init__(learning_rate, momentum, False, name, use_nesterov)
        self._decay, self._eeta, self._added = weight_decay, eeta, epsilon
        self._skipped = tuple(skip_list or ())

    def _apply_dense(self, grad: Any, var: Any) -> Any:
        if any(part in var.op.name for part in self._skipped):
            return super()._apply_dense(grad, var)
        value = convert_to_tensor(var)
        rate = self._hyper_tensors(var.dtype.base_dtype)["lr"] * self._trust(grad, value)
        return self._apply_rule(var, {"grad": grad + self._decay * value, "lr": rate})

    def _resource_apply_dense(self, grad: Any, handle: Any) -> Any:
        return self._apply_dense(grad, handle)

    def _trust(self, grad: Any, value: Any) -> Any:
        """Return the trust ratio of a variable, from the norms of the variable and its gradient."""
        norm, slope = (sqrt(reduction.reduce_sum(x * x)) for x in (value, grad))
        ratio = self._eeta * norm / (slope + self._decay * norm + self._added)
        return where(greater(norm, 0.0) & greater(slope, 0.0), ratio, ones_like(ratio))


class MovingAverageOptimizer(Optimizer):
    """An optimizer that maintains moving averages of the trained variables.

    Args:
      opt: the wrapped optimizer.
      average_decay, num_updates: as for `train.ExponentialMovingAverage`.
      sequential_update: update the averages after the step.

    Examples:
      >>> x = wf.Variable(4.0)
      >>> inner = wf.train.GradientDescentOptimizer(0.25)
      >>> optimizer = wf.contrib.opt.MovingAverageOptimizer(inner, average_decay=0.5)
      >>> update = optimizer.minimize(x * x)
      >>> saver = optimizer.swapping_saver()
      >>> with wf.Session() as session:
      ...     session.run(wf.global_variables_initializer())
      ...     session.run(update)
      ...     print(session.run([x, optimizer.average(x)]))
      [np.float32(2.0), np.float32(3.0)]
    """

    def __init__(
        self,
        opt: Optimizer,
        average_decay: float = 0.9999,
        num_updates: Any = None,
        sequential_update: bool = True,
    ) -> None:
        super().__init__(False, opt.get_name())
        self._optimizer = opt
        self._averages = ExponentialMovingAverage(average_decay, num_updates)
        self._swapped: dict[Any, Any] | None = None
        self._in_order = bool(sequential_update)

    def compute_gradients(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the gradients with the inner optimizer."""
        return self._optimizer.compute_gradients(*args, **kwargs)

    def apply_gradients(
        self, grads_and_vars: Any, global_step: Any = None, name: str | None = None
    ) -> Any:
        """Apply gradients, then update the averages.

        Args:
          grads_and_vars: pairs of a gradient and its variable.
          global_step: variable that counts the updates.
          name: name of the node.
        """
        pairs = list(grads_and_vars)
        update = self._optimizer.apply_gradients(pairs, global_step, name)
        variables = [var for grad, var in pairs if grad is not None]
        with get_default_graph().control_dependencies([update] if self._in_order else []):
            moved = self._averages.apply(variables)
        self._swapped = {}
        for var in variables:
            average = self._averages.average(var)
            self._swapped |= {var: average, average: var}
        return control.group(update, moved, name="train_with_avg")

    def average(self, var: Any) -> Any:
        """Return the average of a variable."""
        return self._averages.average(var)

    def swapping_saver(
        self, var_list: Any = None, name: str = "swapping_saver", **kwargs: Any
    ) -> Saver:
        """Return a saver that saves each variable under its average's name and vice versa.

        Args:
          var_list: variables to save; all by default.
          name: name of the saver.
          **kwargs: arguments of `train.Saver`.
        Raises:
          FailedPreconditionError: neither `apply_gradients` nor `minimize` was called before.
        """
        if self._swapped is None:
            raise errors.FailedPreconditionError(
                "apply_gradients or minimize must be called before swapping_saver"
            )
        variables = global_variables() if var_list is None else var_list
        if not isinstance(variables, dict):
            variables = group_parts(variables)
        counterparts = self._swapped
        swapped = group_parts(counterparts, lambda var: checkpoint_name(counterparts[var]))
        for key, var in swapped.items():
            if key not in variables:
                raise errors.InvalidArgumentError(
                    f"var_list must have {key!r}, whose value is saved by another name: {var!r}"
                )
        return Saver({**variables, **swapped}, name=name, **kwargs)


class DecoupledWeightDecayExtension(Optimizer):
    """A mixin that adds decoupled weight decay to an optimizer; it must be the first base class.

    `weight_decay` times its value is subtracted from each variable before its update; with a sparse
    gradient, only from rows with a gradient. The decay is not scaled by the learning rate, so both
    need a schedule.

    Args:
      weight_decay: scalar, or a function that returns it.
      **kwargs: arguments of the optimizer.
    Source: Loshchilov and Hutter 2019, "Decoupled weight decay regularization".
    """

    def __init__(self, weight_decay: Any, **kwargs: Any) -> None:
        self._weight_decay = weight_decay
        self._decayed: set[Any] | None = None
        super().__init__(**kwargs)

    def minimize(
        self, loss: Any, *args: Any, decay_var_list: Sequence[Any] | None = None, **kwargs: Any
    ) -> Any:
        """Minimize the loss as the optimizer does, with decay.

        Args:
          loss: scalar.
          *args, **kwargs: arguments of the optimizer's method.
          decay_var_list: the variables that decay; all by default.
        """
        self._choose(decay_var_list)
        return super().minimize(loss, *args, **kwargs)

    def apply_gradients(
        self,
        grads_and_vars: Any,
        *args: Any,
        decay_var_list: Sequence[Any] | None = None,
        **kwargs: Any,
    ) -> Any:
        """Apply gradients as the optimizer does, with decay.

        Args:
          grads_and_vars: pairs of a gradient and its variable.
          *args, **kwargs: arguments of the optimizer's method.
          decay_var_list: the variables that decay; all by default.
        """
        self._choose(decay_var_list)
        return super().apply_gradients(grads_and_vars, *args, **kwargs)

    def _choose(self, variables: Sequence[Any] | None) -> None:
        if variables is not None:
            self._decayed = {var.op for var in variables}

    def _update(self, grad: Any, var: Any) -> Any:
        if self._decayed is not None and var.op not in self._decayed:
            return super()._update(grad, var)
        weight_decay = self._weight_decay
        rate = cast(
            convert_to_tensor(weight_decay() if callable(weight_decay) else weight_decay),
            var.dtype.base_dtype,
        )
        if isinstance(grad, IndexedSlices):
            rows, _ = unique(grad.indices)
            decay = var.scatter_sub(IndexedSlices(rate * gather(var, rows), rows))
        else:
            decay = var.assign_sub(rate * convert_to_tensor(var))
        with get_default_graph().control_dependencies([decay]):
            return super()._update(grad, var)


def extend_with_decoupled_weight_decay(base_optimizer: type) -> type:
    """Return a subclass of an optimizer with decoupled weight decay.

    The first argument of its constructor is `weight_decay`.

    Args:
      base_optimizer: a subclass of `train.Optimizer`.
    Returns: a subclass of `DecoupledWeightDecayExtension` and of it.
    Examples:
      >>> Decaying = wf.contrib.opt.extend_with_decoupled_weight_decay(
      ...     wf.train.GradientDescentOptimizer
      ... )
      >>> x = wf.Variable(2.0)
      >>> update = Decaying(weight_decay=0.5, learning_rate=0.25).minimize(2.0 * x)
      >>> with wf.Session() as session:
      ...     session.run(wf.global_variables_initializer())
      ...     session.run(update)
      ...     print(session.run(x))
      0.5

    Args:
      base_optimizer: a subclass of `train.Optimizer`.
    Returns: a subclass of `DecoupledWeightDecayExtension` and of it.

    Examples:
      >>> Decaying = wf.contrib.opt.extend_with_decoupled_weight_decay(
      ...     wf.train.GradientDescentOptimizer
      ... )
      >>> x = wf.Variable(2.0)
      >>> update = Decaying(weight_decay=0.5, learning_rate=0.25).minimize(2.0 * x)
      >>> with wf.Session() as session:
      ...     session.run(wf.global_variables_initializer())
      ...     session.run(update)
      ...     print(session.run(x))
      0.5
    """

    class WithWeightDecay(DecoupledWeightDecayExtension, base_optimizer):  # type: ignore[misc]
        __doc__ = f"`{base_optimizer.__name__}` with decoupled weight decay."

    return WithWeightDecay


class MomentumWOptimizer(DecoupledWeightDecayExtension, MomentumOptimizer):
    """`train.MomentumOptimizer` with decoupled weight decay.

    Args:
      weight_decay: scalar, or a function that returns it.
      learning_rate, momentum, use_locking, name, use_nesterov: as for `train.MomentumOptimizer`.

    Examples:
      >>> x = wf.Variable(2.0)
      >>> update = wf.contrib.opt.MomentumWOptimizer(0.5, 0.25, 0.9).minimize(2.0 * x)
      >>> with wf.Session() as session:
      ...     session.run(wf.global_variables_initializer())
      ...     session.run(update)
      ...     print(session.run(x))
      0.5
    """

    def __init__(
        self,
        weight_decay: Any,
        learning_rate: Any,
        momentum: Any,
        use_locking: bool = False,
        name: str = "MomentumW",
        use_nesterov: bool = False,
    ) -> None:
        super().__init__(
            weight_decay,
            learning_rate=learning_rate,
            momentum=momentum,
            use_locking=use_locking,
            name=name,
            use_nesterov=use_nesterov,
        )


class AdamWOptimizer(DecoupledWeightDecayExtension, AdamOptimizer):
    """`train.AdamOptimizer` with decoupled weight decay.

    Args:
      weight_decay: scalar, or a function that returns it.
      learning_rate, beta1, beta2, epsilon, use_locking, name: as for `train.AdamOptimizer`.

    Examples:
      >>> x = wf.Variable(2.0)
      >>> update = wf.contrib.opt.AdamWOptimizer(0.5, 0.25).minimize(2.0 * x)
      >>> with wf.Session() as session:
      ...     session.run(wf.global_variables_initializer())
      ...     session.run(update)
      ...     print(round(float(session.run(x)), 4))
      0.75
    """

    def __init__(
        self,
        weight_decay: Any,
        learning_rate: Any = 0.001,
        beta1: Any = 0.9,
        beta2: Any = 0.999,
        epsilon: Any = 1e-8,
        use_locking: bool = False,
        name: str = "AdamW",
    ) -> None:
        super().__init__(
            weight_decay,
            learning_rate=learning_rate,
            beta1=beta1,
            beta2=beta2,
            epsilon=epsilon,
            use_locking=use_locking,
            name=name,
        )
