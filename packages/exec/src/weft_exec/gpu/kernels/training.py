"""GPU kernels of dense updates of optimizers: one launch each, over a variable and its slots.

Updates of complex types and sparse updates use the array module, with a launch for each step of a
formula.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from weft_exec.gpu.element_types import REAL
from weft_exec.gpu.generated import Source
from weft_exec.kernels import training
from weft_exec.kernels.registry import KernelFactory, KernelFunction, kernel
from weft_exec.resources.resources import VariableState, state_of
from weft_graph.ops.training import UpdateRule, op_type, op_types

if TYPE_CHECKING:
    from weft_exec.devices.device import Device
    from weft_graph.ir.node import Node

_SOURCE: Final = Source("update", T=REAL)
_NAMES: Final = {
    "GradientDescent": "gradient_descent",
    "ProximalGradientDescent": "proximal_gradient_descent",
    "Momentum": "momentum",
    "Adagrad": "adagrad",
    "AdagradV2": "adagrad_v2",
    "ProximalAdagrad": "proximal_adagrad",
    "AdagradDA": "adagrad_da",
    "Adadelta": "adadelta",
    "Ftrl": "ftrl",
    "FtrlV2": "ftrl_v2",
    "Adam": "adam",
    "RMSProp": "rmsprop",
    "CenteredRMSProp": "centered_rmsprop",
}


def _factory(rule: UpdateRule, resource: bool) -> KernelFactory:
    """Return the kernel factory of an update rule, which launches one kernel."""
    count = len(rule.states)
    of_grad = next(name for name in rule.dense if name in ("grad", "delta"))
    names = (*rule.states, of_grad)

    def make(node: Node, device: Device) -> KernelFunction:
        xp, name = device.xp, _NAMES[rule.name]
        program = _SOURCE.program(xp, T=node.attrs["T"].numpy)
        flags = [bool(node.attrs[attr]) for attr in rule.attrs]

        def run(*inputs: Any) -> Any:
            states = tuple([state_of(value) for value in inputs[:count]])
            numbers = dict(zip(rule.dense, inputs[count:], strict=True))
            gradient = numbers.pop(of_grad)
            grad = xp.ascontiguousarray(gradient).reshape(gradient.shape)

            def work(*arrays: Any) -> None:
                training.check_shapes((*arrays, grad), names)
                for number in numbers.items():
                    training.check_scalar(*number)
                program.launch_elements(name, grad.size, *arrays, grad, *numbers.values(), *flags)

            if count == 1:
                states[0].update(work)
            else:
                VariableState.update_all(states, work)
            return None if resource else states[0]

        return run

    return make


for _rule, _is_sparse, _resource in op_types():
    if not _is_sparse:
        _op = op_type(_rule.name, _is_sparse, _resource)
        kernel(_op, device="GPU", dtypes={"T": REAL})(_factory(_rule, _resource))
