"""Kernels of the update rules of optimizers.

An update changes a variable and its slots in place, under their locks. Dense updates process the
arrays in blocks that stay in the processor's cache. So the dozen elementwise passes of a rule such
as Adam's read the memory only once, and need a scratch of two blocks. Sparse updates apply the same
rule to the gathered rows and scatter them back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import is_, itemgetter
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from weft_exec.kernels.common import new_array
from weft_exec.kernels.registry import ARRAY_DEVICE, KernelFactory, KernelFunction, kernel
from weft_exec.resources.resources import VariableState, state_of
from weft_graph.ir.interrupts import defer_interrupts
from weft_graph.ops.training import UpdateRule, op_type, op_types
from weft_tensor import errors

if TYPE_CHECKING:
    from weft_exec.devices.device import Device
    from weft_graph.ir.node import Node

Array = Any
"""A flat array of the device's module, with the variable's element type."""

Step = Callable[..., None]
"""`step(xp, scratch, *states, grad)`: updates one block; all arrays have the same size."""

BLOCK: Final = 32768
"""Elements of a block: five float32 arrays and the scratch fit in one megabyte."""


class Hyperparameters:
    """The scalar inputs of a rule by name, and its attributes.

    Scalars have the variable's element type, so that arithmetic with them preserves it.
    """

    __slots__ = ("_values", "attrs", "one", "xp")

    def __init__(
        self, values: Mapping[str, Any], attrs: Mapping[str, Any], one: Any, xp: Any
    ) -> None:
        self._values = values
        self.attrs = attrs
        self.one = one
        self.xp = xp

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def fixed(self, *numbers: Any) -> Iterator[Any]:
        """Return the same parameters in the form that NumPy processes fastest."""
        dtype = self.one.dtype
        return (np.array(number, dtype) if self.xp is np else number for number in numbers)


# -------------------------------------------------------------------------------- rules


def _gradient_descent(h: Hyperparameters) -> Step:
    (alpha,) = h.fixed(h["alpha"])

    def step(xp: Any, scratch: Array, var: Array, grad: Array) -> None:
        t = scratch[0]
        xp.multiply(grad, alpha, out=t)
        xp.subtract(var, t, out=var)

    return step


def _shrink(xp: Any, t: Array, value: Array, amount: Any) -> None:
    """Write sign(value) * max(|value| - by, 0) into `t`, which may be `value`."""
    signs = xp.sign(value)
    xp.absolute(value, out=t)
    xp.subtract(t, amount, out=t)
    xp.maximum(t, t.dtype.type(0), out=t)
    xp.multiply(t, signs, out=t)


def _proximal_gradient_descent(h: Hyperparameters) -> Step:
    alpha, l1 = h["alpha"], h["l1"]
    threshold, divisor = alpha * l1, h.one + alpha * h["l2"]

    def step(xp: Any, scratch: Array, var: Array, grad: Array) -> None:
        t = scratch[0]
        xp.multiply(grad, alpha, out=t)
        xp.subtract(var, t, out=t)
        if l1 > 0:
            _shrink(xp, t, t, threshold)
        xp.divide(t, divisor, out=var)

    return step


def _momentum(h: Hyperparameters) -> Step:
    rate, momentum = h.fixed(h["lr"], h["momentum"])
    nesterov = h.attrs["use_nesterov"]

    def step(xp: Any, scratch: Array, var: Array, accum: Array, grad: Array) -> None:
        t = scratch[0]
        xp.multiply(accum, momentum, out=accum)
        xp.add(accum, grad, out=accum)
        if nesterov:
            xp.multiply(accum, momentum, out=t)
            xp.add(t, grad, out=t)
            xp.multiply(t, rate, out=t)
        else:
            xp.multiply(accum, rate, out=t)
        xp.subtract(var, t, out=var)

    return step


def _adagrad(h: Hyperparameters) -> Step:
    return _adagrad_with(h, None)


def _adagrad_v2(h: Hyperparameters) -> Step:
    return _adagrad_with(h, h["epsilon"])


def _adagrad_with(h: Hyperparameters, epsilon: Any) -> Step:
    rate, update_slots = h["lr"], h.attrs["update_slots"]

    def step(xp: Any, scratch: Array, var: Array, accum: Array, grad: Array) -> None:
        t, u = scratch
        if update_slots:
            xp.multiply(grad, grad, out=t)
            xp.add(accum, t, out=accum)
        xp.sqrt(accum, out=t)
        if epsilon is not None:
            xp.add(t, epsilon, out=t)
        xp.multiply(grad, rate, out=u)
        xp.divide(u, t, out=u)
        xp.subtract(var, u, out=var)

    return step


def _proximal_adagrad(h: Hyperparameters) -> Step:
    rate, l1, l2 = h["lr"], h["l1"], h["l2"]

    def step(xp: Any, scratch: Array, var: Array, accum: Array, grad: Array) -> None:
        t, u = scratch
        xp.multiply(grad, grad, out=t)
        xp.add(accum, t, out=accum)
        xp.sqrt(accum, out=u)
        xp.divide(rate, u, out=u)
        xp.multiply(grad, u, out=t)
        xp.subtract(var, t, out=var)
        if l1 > 0:
            xp.multiply(u, l1, out=t)
            _shrink(xp, var, var, t)
        xp.multiply(u, l2, out=u)
        xp.add(u, h.one, out=u)
        xp.divide(var, u, out=var)

    return step


def _adagrad_da(h: Hyperparameters) -> Step:
    rate, l1, count = h["lr"], h["l1"], h["global_step"]
    threshold, strength = l1 * count, h["l2"] * count * rate

    def step(
        xp: Any, scratch: Array, var: Array, total: Array, squares: Array, grad: Array
    ) -> None:
        t, u = scratch
        xp.add(total, grad, out=total)
        xp.multiply(grad, grad, out=t)
        xp.add(squares, t, out=squares)
        if l1 > 0:
            _shrink(xp, t, total, threshold)
        else:
            xp.copyto(t, total)
        xp.multiply(t, -rate, out=t)
        xp.sqrt(squares, out=u)
        xp.add(u, strength, out=u)
        xp.divide(t, u, out=var)

    return step


def _adadelta(h: Hyperparameters) -> Step:
    rate, rho, epsilon = h["lr"], h["rho"], h["epsilon"]
    remaining = h.one - rho

    def step(
        xp: Any, scratch: Array, var: Array, accum: Array, updates: Array, grad: Array
    ) -> None:
        t, u = scratch
        _decay_square(xp, t, accum, grad, rho, remaining)
        xp.add(accum, epsilon, out=t)
        xp.sqrt(t, out=t)
        xp.add(updates, epsilon, out=u)
        xp.sqrt(u, out=u)
        xp.divide(u, t, out=u)
        xp.multiply(u, grad, out=u)
        xp.multiply(u, rate, out=t)
        xp.subtract(var, t, out=var)
        _decay_square(xp, t, updates, u, rho, remaining)

    return step


def _decay_square(xp: Any, t: Array, mean: Array, value: Array, rho: Any, remaining: Any) -> None:
    xp.multiply(value, value, out=t)
    xp.multiply(t, remaining, out=t)
    xp.multiply(mean, rho, out=mean)
    xp.add(mean, t, out=mean)


def _approach(xp: Any, t: Array, mean: Array, remaining: Any) -> None:
    """Update the moving average in place: mean += remaining * (t - mean). Overwrites `t`."""
    xp.subtract(t, mean, out=t)
    xp.multiply(t, remaining, out=t)
    xp.add(mean, t, out=mean)


def _ftrl(h: Hyperparameters) -> Step:
    return _ftrl_with(h, None)


def _ftrl_v2(h: Hyperparameters) -> Step:
    return _ftrl_with(h, h["l2_shrinkage"] + h["l2_shrinkage"])


def _ftrl_with(h: Hyperparameters, shrinkage: Any) -> Step:
    rate, l1, power = h["lr"], h["l1"], -h["lr_power"]
    twice_l2 = h["l2"] + h["l2"]
    is_root = float(power) == 0.5
    zero = h.one - h.one

    def raised(xp: Any, value: Array, out: Array) -> None:
        if is_root:
            xp.sqrt(value, out=out)
        else:
            xp.power(value, power, out=out)

    def step(xp: Any, scratch: Array, var: Array, accum: Array, linear: Array, grad: Array) -> None:
        t, u = scratch
        raised(xp, accum, u)
        xp.multiply(grad, grad, out=t)
        xp.add(accum, t, out=accum)
        raised(xp, accum, t)
        xp.subtract(t, u, out=u)
        xp.divide(u, rate, out=u)
        xp.multiply(u, var, out=u)
        xp.add(linear, grad, out=linear)
        xp.subtract(linear, u, out=linear)
        if shrinkage is not None:
            xp.multiply(var, shrinkage, out=u)
            xp.add(linear, u, out=linear)
        xp.divide(t, rate, out=t)
        xp.add(t, twice_l2, out=t)
        xp.sign(linear, out=u)
        xp.multiply(u, l1, out=u)
        xp.subtract(u, linear, out=u)
        xp.divide(u, t, out=var)
        # Chosen, not computed: where nothing has accumulated yet, the quotient is 0 / 0.
        xp.copyto(var, zero, where=~(xp.absolute(linear) > l1))

    return step


def _adam(h: Hyperparameters) -> Step:
    rest1, rest2 = h.one - h["beta1"], h.one - h["beta2"]
    root = h.xp.sqrt(h.one - h["beta2_power"])
    rate = h["lr"] * root / (h.one - h["beta1_power"])
    nesterov, lookahead = h.attrs["use_nesterov"], rest1 * rate
    beta1, epsilon, rest1, rest2, rate, lookahead = h.fixed(
        h["beta1"], h["epsilon"], rest1, rest2, rate, lookahead
    )

    # For the many small variables of most programs, name lookups and keywords dominate the time.
    add, subtract, multiply, divide = h.xp.add, h.xp.subtract, h.xp.multiply, h.xp.divide
    sqrt = h.xp.sqrt

    def step(xp: Any, scratch: Array, var: Array, m: Array, v: Array, grad: Array) -> None:
        t, u = scratch
        subtract(grad, m, t)
        multiply(t, rest1, t)
        add(m, t, m)
        multiply(grad, grad, t)
        subtract(t, v, t)
        multiply(t, rest2, t)
        add(v, t, v)
        sqrt(v, t)
        add(t, epsilon, t)
        if nesterov:
            multiply(m, beta1, u)
            divide(u, t, u)
            multiply(u, rate, u)
            subtract(var, u, var)
            multiply(grad, lookahead, u)
        else:
            multiply(m, rate, u)
        divide(u, t, u)
        subtract(var, u, var)

    return step


def _rmsprop(h: Hyperparameters) -> Step:
    remaining, epsilon = h.one - h["rho"], h["epsilon"]
    move = _move_by_momentum(h)

    def step(xp: Any, scratch: Array, var: Array, ms: Array, mom: Array, grad: Array) -> None:
        t, u = scratch
        xp.multiply(grad, grad, out=t)
        _approach(xp, t, ms, remaining)
        xp.add(ms, epsilon, out=t)
        move(xp, t, u, var, mom, grad)

    return step


def _centered_rmsprop(h: Hyperparameters) -> Step:
    remaining, epsilon = h.one - h["rho"], h["epsilon"]
    move = _move_by_momentum(h)

    def step(
        xp: Any, scratch: Array, var: Array, mg: Array, ms: Array, mom: Array, grad: Array
    ) -> None:
        t, u = scratch
        xp.multiply(grad, grad, out=t)
        _approach(xp, t, ms, remaining)
        xp.subtract(grad, mg, out=t)
        xp.multiply(t, remaining, out=t)
        xp.add(mg, t, out=mg)
        xp.multiply(mg, mg, out=t)
        xp.subtract(ms, t, out=t)
        xp.add(t, epsilon, out=t)
        move(xp, t, u, var, mom, grad)

    return step


def _move_by_momentum(h: Hyperparameters) -> Callable[..., None]:
    rate, momentum = h["lr"], h["momentum"]

    def move(xp: Any, t: Array, u: Array, var: Array, mom: Array, grad: Array) -> None:
        xp.sqrt(t, out=t)
        xp.multiply(grad, rate, out=u)
        xp.divide(u, t, out=u)
        xp.multiply(mom, momentum, out=mom)
        xp.add(mom, u, out=mom)
        xp.subtract(var, mom, out=var)

    return move


_STEPS: Final[Mapping[str, Callable[[Hyperparameters], Step]]] = {
    "GradientDescent": _gradient_descent,
    "ProximalGradientDescent": _proximal_gradient_descent,
    "Momentum": _momentum,
    "Adagrad": _adagrad,
    "AdagradV2": _adagrad_v2,
    "ProximalAdagrad": _proximal_adagrad,
    "AdagradDA": _adagrad_da,
    "Adadelta": _adadelta,
    "Ftrl": _ftrl,
    "FtrlV2": _ftrl_v2,
    "Adam": _adam,
    "RMSProp": _rmsprop,
    "CenteredRMSProp": _centered_rmsprop,
}

# ------------------------------------------------------------------------------- driving


def _dense(arrays: tuple[Array, ...], grad: Array, step: Step, device: Device, names: Any) -> None:
    """Apply `step` to complete arrays, block by block."""
    check_shapes(arrays, names)
    var = arrays[0]
    if grad.shape != var.shape:
        raise errors.InvalidArgumentError(
            f"requires {names[-1]} to have the shape of var, "
            f"got var {list(var.shape)} and {names[-1]} {list(grad.shape)}"
        )
    ndim = var.ndim and var.size <= BLOCK
    if not ndim and all(array.flags.c_contiguous for array in arrays):
        _apply_in_blocks([array.reshape(-1) for array in arrays], grad.reshape(-1), step, device)
    else:
        step(device.xp, _scratch(device, var.shape, var.dtype), *arrays, grad)


def _scratch(device: Device, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    allocate = new_array if device.xp is np else _new_on_device
    return allocate(device, (2, *shape), dtype)


def _new_on_device(device: Device, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    return device.empty(shape, dtype)


def _apply_in_blocks(arrays: list[Array], grad: Array, step: Step, device: Device) -> None:
    xp, size = device.xp, grad.size
    block = BLOCK if xp is np else size
    scratch = _scratch(device, (min(block, size),), arrays[0].dtype)
    if size <= block:
        step(xp, scratch, *arrays, grad)
        return
    with defer_interrupts():  # a variable has all of an update, or nothing
        for start in range(0, size, block):
            stop = min(start + block, size)
            parts = [array[start:stop] for array in arrays]
            step(xp, scratch[:, : stop - start], *parts, grad[start:stop])


def _sparse(
    arrays: tuple[Array, ...], grad: Array, indices: Array, step: Step, device: Device, names: Any
) -> None:
    """Apply `step` to the rows at `indices`, once for each occurrence and in order."""
    check_shapes(arrays, names)
    var = arrays[0]
    if not var.shape or grad.shape != (*indices.shape, *var.shape[1:]) or indices.ndim != 1:
        raise errors.InvalidArgumentError(
            "requires grad to have one row of var per index, "
            f"got var {list(var.shape)}, grad {list(grad.shape)}, indices {list(indices.shape)}"
        )
    if not grad.size:
        return
    _check_indices(indices, var.shape[0])
    for positions in _rounds(device.xp, indices):
        index = indices if positions is None else indices[positions]
        values = grad if positions is None else grad[positions]
        rows = [array[index] for array in arrays]
        _apply_in_blocks([row.reshape(-1) for row in rows], values.reshape(-1), step, device)
        for array, row in zip(arrays, rows, strict=True):
            array[index] = row


def check_shapes(arrays: Sequence[Any], names: Sequence[str]) -> None:
    """Raise InvalidArgumentError unless all arrays have the shape of the first."""
    shape = arrays[0].shape
    for name, array in zip(names, arrays, strict=False):
        if array.shape != shape:
            raise errors.InvalidArgumentError(
                f"requires {name} to have the shape of {names[0]}, "
                f"got {list(arrays[0].shape)} and {list(array.shape)}"
            )


def _check_indices(indices: Array, rows: int) -> None:
    if indices.min() >= 0 and indices.max() < rows:
        return
    bad_index = int(((indices < 0) | (indices >= rows)).argmax())
    raise errors.InvalidArgumentError(
        f"requires indices in [0, {rows}), got {indices[bad_index]} at position {bad_index}"
    )


def _rounds(xp: Any, indices: Array) -> Iterator[Array | None]:
    """Yield rounds of positions without repeated indices; None if one round has all positions."""
    rows = indices.tolist()
    if len(set(rows)) == len(rows):
        yield None
        return
    rounds: list[list[int]] = []
    counts: dict[int, int] = {}
    for position, index in enumerate(rows):
        count = counts.get(index, 0)
        counts[index] = count + 1
        if count == len(rounds):
            rounds.append([])
        rounds[count].append(position)
    for positions in rounds:
        yield xp.array(positions)


class _StepCache:
    """Creates the step of a rule from its scalar inputs, and caches the last one.

    All updates of an optimizer in a step receive the same scalar objects.
    """

    def __init__(self, rule: UpdateRule, names: Sequence[str], node: Node, xp: Any) -> None:
        self._make = _STEPS[rule.name]
        self._names = names
        self._attrs = node.attrs
        self._unit = node.attrs["T"].numpy.type(1)
        self._xp = xp
        self._last: tuple[tuple[Any, ...], Step] | None = None

    def __call__(self, scalars: tuple[Any, ...]) -> Step:
        last = self._last
        if last is not None and all(map(is_, scalars, last[0])):
            return last[1]
        named = zip(self._names, scalars, strict=True)
        values = {name: _scalar(name, value, self._unit) for name, value in named}
        step = self._make(Hyperparameters(values, self._attrs, self._unit, self._xp))
        self._last = (scalars, step)
        return step


def _factory(rule: UpdateRule, sparse: bool, resource: bool) -> KernelFactory:
    count = len(rule.states)
    arguments = rule.arguments(sparse)
    is_grad = next(name for name in arguments if name in ("grad", "delta"))
    names = (*rule.states, is_grad)
    of_scalars = [index for index, name in enumerate(arguments) if name not in (is_grad, "indices")]
    scalar_names = [arguments[index] for index in of_scalars]
    of_grad = count + arguments.index(is_grad)
    of_indices = count + arguments.index("indices") if sparse else 0
    scalars_of = itemgetter(slice(0, 0), *[count + index for index in of_scalars])
    cache: dict[tuple[Any, ...], _StepCache] = {}

    def make(node: Node, device: Device) -> KernelFunction:
        key = (device.xp, node.attrs["T"], *[node.attrs[attr] for attr in rule.attrs])
        steps = cache.get(key)
        if steps is None:
            steps = cache[key] = _StepCache(rule, scalar_names, node, device.xp)

        def run(*inputs: Any) -> Any:
            states = inputs[:count]
            for value in states:
                if type(value) is not VariableState:
                    states = tuple([state_of(state) for state in states])
                    break
            grad = inputs[of_grad]
            step = steps(scalars_of(inputs)[1:])

            def work(*arrays: Array) -> None:
                if sparse:
                    _sparse(arrays, grad, inputs[of_indices], step, device, names)
                else:
                    _dense(arrays, grad, step, device, names)

            if count == 1:
                states[0].update(work)
            else:
                VariableState.update_all(states, work)
            return None if resource else states[0]

        return run

    return make


def check_scalar(name: str, value: Any) -> None:
    """Raise InvalidArgumentError unless a value is a scalar."""
    if value.shape:
        raise errors.InvalidArgumentError(
            f"requires {name} to be a scalar, got shape {list(value.shape)}"
        )


def _scalar(name: str, value: Any, one: Any) -> Any:
    check_scalar(name, value)
    return value[()] if value.dtype == one.dtype else one.dtype.type(int(value))


_REAL = ("float16", "bfloat16", "float32", "float64")
_LINEAR = ("GradientDescent", "Momentum")


def _register() -> None:
    for rule, sparse, resource in op_types():
        types = (*_REAL, "complex64", "complex128") if rule.name in _LINEAR else _REAL
        register = kernel(
            op_type(rule.name, sparse, resource),
            device=ARRAY_DEVICE,
            dtypes={"T": types},
        )
        register(_factory(rule, sparse, resource))


_register()
