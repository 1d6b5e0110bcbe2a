"""Update rules: values against plain NumPy, in place, blockwise, by rows, and atomically."""

from __future__ import annotations

import signal
from typing import Any

import numpy as np
import pytest
from weft_testing.cases import TOLERANCE
from weft_testing.evaluate import HostDevice
from weft_testing.interrupts import interrupt_in_rounds, relay_to_sigint
from weft_testing.loading import load_family
from weft_testing.update_rules import HYPER, REFERENCES, State, first_state

from weft_exec.kernels import training
from weft_exec.kernels.registry import find_kernel
from weft_exec.resources.resources import ResourceHandle, VariableState
from weft_graph.ir.builder import create, out
from weft_graph.ir.graph import Graph
from weft_graph.ops.state import variable_op_v2
from weft_graph.ops.training import RULES, UpdateRule, op_type
from weft_tensor import dtypes, errors

ROWS = [
    pytest.param(case, dtype, id=f"{case.name}-{dtype}")
    for case in load_family("training").UPDATE_CASES
    for dtype in case.dtypes
]


def build(rule: UpdateRule, sparse: bool, resource: bool, dtype: str, **attrs: Any) -> Any:
    """The kernel of one form, over inputs of unknown shape."""
    element = dtypes.as_dtype(dtype)
    with Graph().as_default():
        special = {"indices": dtypes.int32, "global_step": dtypes.int64}
        inputs = [
            out("VarHandleOp", (), {"dtype": element, "shape": None})
            if resource
            else variable_op_v2(None, element)
            for _ in rule.states
        ]
        for name in rule.arguments(sparse):
            inputs.append(
                out("TestInput", (), {"dtype": special.get(name, element), "shape": None})
            )
        node = create(op_type(rule.name, sparse, resource), inputs, attrs)
    entry = find_kernel(node, "CPU")
    assert entry is not None
    return entry.make(node, HostDevice())


class Problem:
    """Variables in the state of a reference, and the kernel that updates them."""

    def __init__(
        self,
        rule: str,
        sparse: bool,
        resource: bool,
        dtype: str,
        shape: tuple[int, ...],
        **attrs: Any,
    ) -> None:
        self.rule = RULES[rule]
        self.sparse, self.resource = sparse, resource
        self.element = dtypes.as_dtype(dtype)
        self.run = build(self.rule, sparse, resource, dtype, **attrs)
        self.wanted = first_state(self.rule.states, shape)
        self.hyper: dict[str, Any] = HYPER[rule] | attrs
        self.states: dict[str, VariableState] = {}
        for name in self.rule.states:
            state = VariableState(name, self.element, shape)
            state.assign(np.asarray(self.wanted[name]).astype(self.element.numpy))
            self.states[name] = state

    def apply(self, grad: Any, indices: Any = None) -> Any:
        """Run the kernel once."""
        given: dict[str, Any] = {
            key: self.element.numpy.type(value)
            for key, value in self.hyper.items()
            if not isinstance(value, bool)
        }
        if "global_step" in given:
            given["global_step"] = np.int64(self.hyper["global_step"])
        typed = np.asarray(grad).astype(self.element.numpy)
        given |= {"grad": typed, "delta": typed, "indices": indices}
        states: list[Any] = list(self.states.values())
        if self.resource:
            states = [ResourceHandle("", "", s.name, s) for s in states]
        with np.errstate(all="ignore"):
            result = self.run(*states, *(given[key] for key in self.rule.arguments(self.sparse)))
        assert result is (None if self.resource else self.states["var"])
        return result

    def expect(self, grad: Any) -> None:
        """Run the reference once."""
        REFERENCES[self.rule.name](self.wanted, grad, self.hyper)

    def expect_rows(self, grad: Any, indices: Any) -> None:
        """Run the reference on one row after the other."""
        for row, index in zip(grad, indices, strict=True):
            part: State = {name: array[index] for name, array in self.wanted.items()}
            REFERENCES[self.rule.name](part, row, self.hyper)

    def check(self, scale: float = 1.0) -> None:
        relative, absolute = TOLERANCE[self.element.name]
        for name, state in self.states.items():
            got = np.asarray(state.read())
            assert got.dtype == self.element.numpy
            np.testing.assert_allclose(
                got.astype(np.float64),
                self.wanted[name],
                rtol=relative * scale,
                atol=absolute * scale,
                err_msg=name,
            )


@pytest.mark.parametrize(("case", "dtype"), ROWS)
def test_values(case: Any, dtype: str) -> None:
    rule = case.rule.name
    problem = Problem(rule, case.sparse, case.resource, dtype, (5, 3), **case.attrs)
    rng = np.random.default_rng(1)
    for _ in range(3):
        if case.sparse:
            indices = np.array([4, 0, 2], np.int32)
            grad = rng.standard_normal((3, 3))
            problem.apply(grad, indices)
            problem.expect_rows(grad, indices)
        else:
            grad = rng.standard_normal((5, 3))
            problem.apply(grad)
            problem.expect(grad)
    problem.check(scale=8)


@pytest.mark.parametrize("rule", list(RULES))
@pytest.mark.parametrize("shape", [(), (1,), (training.BLOCK * 2 + 7,), (3, training.BLOCK)])
def test_any_size(rule: str, shape: tuple[int, ...]) -> None:
    problem = Problem(rule, False, False, "float64", shape)
    grad = np.random.default_rng(1).standard_normal(shape)
    problem.apply(grad)
    problem.expect(grad)
    problem.check()


@pytest.mark.parametrize("rule", [name for name, rule in RULES.items() if rule.sparse])
def test_equal_indices_act_one_after_the_other(rule: str) -> None:
    problem = Problem(rule, True, False, "float64", (4, 2))
    indices = np.array([1, 3, 1, 1, 0, 3], np.int32)
    grad = np.random.default_rng(1).standard_normal((6, 2))
    problem.apply(grad, indices)
    problem.expect_rows(grad, indices)
    problem.check()


@pytest.mark.parametrize("rule", ["ProximalGradientDescent", "ProximalAdagrad", "AdagradDA"])
def test_without_l1(rule: str) -> None:
    problem = Problem(rule, False, False, "float64", (7,))
    problem.hyper["l1"] = 0.0
    grad = np.random.default_rng(1).standard_normal(7)
    problem.apply(grad)
    problem.expect(grad)
    problem.check()


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("rule", ["GradientDescent", "Momentum"])
def test_complex(rule: str, dtype: str) -> None:
    problem = Problem(rule, False, False, dtype, (4,))
    rng = np.random.default_rng(1)
    grad = rng.standard_normal(4) + 1j * rng.standard_normal(4)
    problem.wanted = {name: array.astype(complex) for name, array in problem.wanted.items()}
    problem.apply(grad)
    problem.expect(grad)
    for name, state in problem.states.items():
        np.testing.assert_allclose(state.read(), problem.wanted[name], rtol=1e-5)


def test_ftrl_leaves_untouched_weights_at_zero() -> None:
    problem = Problem("Ftrl", False, False, "float32", (3,))
    problem.hyper |= {"l1": 0.0, "l2": 0.0}
    for name in ("accum", "linear"):
        problem.states[name].assign(np.zeros(3, np.float32))
    problem.apply(np.zeros(3))
    np.testing.assert_array_equal(problem.states["var"].read(), np.zeros(3))


@pytest.mark.parametrize("rule", ["GradientDescent", "Adam"])
def test_in_place_unless_a_snapshot_is_alive(rule: str) -> None:
    problem = Problem(rule, False, False, "float32", (100,))
    before = {name: state._value.ctypes.data for name, state in problem.states.items()}
    problem.apply(np.ones(100))
    assert before == {name: state._value.ctypes.data for name, state in problem.states.items()}
    snapshot = problem.states["var"].read()
    kept = snapshot.copy()
    problem.apply(np.ones(100))
    np.testing.assert_array_equal(snapshot, kept)
    assert not np.array_equal(problem.states["var"].read(), kept)


def test_non_contiguous_gradient() -> None:
    problem = Problem("Adam", False, False, "float64", (3, 4))
    grad = np.random.default_rng(1).standard_normal((4, 3)).T
    problem.apply(grad)
    problem.expect(grad)
    problem.check()


def test_non_contiguous_variable() -> None:
    problem = Problem("Momentum", False, False, "float64", (3, 4))
    problem.states["var"].replace(np.asfortranarray)
    grad = np.random.default_rng(1).standard_normal((3, 4))
    problem.apply(grad)
    problem.expect(grad)
    problem.check()


@pytest.mark.parametrize("index", [-1, 4])
def test_index_out_of_range_changes_nothing(index: int) -> None:
    problem = Problem("Adagrad", True, False, "float64", (4, 2))
    with pytest.raises(errors.InvalidArgumentError, match=rf"\[0, 4\), got {index} at position 1"):
        problem.apply(np.ones((2, 2)), np.array([0, index], np.int32))
    problem.check()


def test_no_indices() -> None:
    problem = Problem("Adagrad", True, False, "float64", (4, 2))
    problem.apply(np.ones((0, 2)), np.array([], np.int32))
    problem.check()


def test_gradient_of_another_shape() -> None:
    problem = Problem("Adam", False, False, "float64", (4, 2))
    with pytest.raises(errors.InvalidArgumentError, match="shape of var"):
        problem.apply(np.ones((2, 4)))
    with pytest.raises(errors.InvalidArgumentError, match="one row of var per index"):
        Problem("Adagrad", True, False, "float64", (4, 2)).apply(
            np.ones((2, 3)), np.array([0, 1], np.int32)
        )
    problem.check()


def test_uninitialized_variable() -> None:
    problem = Problem("Adam", False, False, "float64", (4, 2))
    problem.states["v"] = VariableState("v", dtypes.float64, (4, 2))
    with pytest.raises(errors.FailedPreconditionError, match="uninitialized value v"):
        problem.apply(np.ones((4, 2)))
    problem.states.pop("v")
    problem.check()


def test_concurrent_updates_in_both_orders_finish() -> None:
    import threading

    first = Problem("Momentum", False, False, "float64", (50,))
    second = Problem("Momentum", False, False, "float64", (50,))
    second.states = {"var": first.states["accum"], "accum": first.states["var"]}

    def many(problem: Problem) -> None:
        states = list(problem.states.values())
        for _ in range(300):
            problem.run(*states, np.float64(0.1), np.ones(50), np.float64(0.5))

    threads = [threading.Thread(target=many, args=[p], daemon=True) for p in (first, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()


def test_static_shapes() -> None:
    with Graph().as_default():
        var = out("VariableV2", (), {"dtype": dtypes.float32, "shape": (4, 2)})
        slot = out("VariableV2", (), {"dtype": dtypes.float32, "shape": (4, 3)})
        handle = out("VarHandleOp", (), {"dtype": dtypes.float32, "shape": (4, 2)})
        grad = np.zeros((4, 2), np.float32)
        assert create("ApplyGradientDescent", [var, 0.1, grad]).outputs[0].dims == (4, 2)
        assert create("ResourceApplyGradientDescent", [handle, 0.1, grad]).outputs == ()
        for op, inputs, match in [
            ("ApplyGradientDescent", [var, [0.1], grad], "alpha to be a scalar"),
            ("ApplyGradientDescent", [var, 0.1, grad.T], r"delta .* shape \[4,2\], got \[2,4\]"),
            ("ResourceApplyGradientDescent", [handle, 0.1, grad.T], r"got \[2,4\]"),
            ("ApplyMomentum", [var, slot, 0.1, grad, 0.9], r"accum .* \[4,2\], got \[4,3\]"),
            ("SparseApplyMomentum", [var, var, 0.1, grad, [0, 1], 0.9], r"one row .* \[2,2\]"),
        ]:
            with pytest.raises(errors.InvalidArgumentError, match=match):
                create(op, inputs)


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="requires timers that send signals")
def test_ctrl_c_leaves_no_update_half_done() -> None:
    problem = Problem("GradientDescent", False, False, "float32", (40 * training.BLOCK,))
    problem.states["var"].assign(np.zeros(40 * training.BLOCK, np.float32))
    grad = np.ones(40 * training.BLOCK, np.float32)
    rounds = interrupt_in_rounds(
        lambda: problem.apply(grad), lambda index: 1e-4 * (1 + index % 20), 100, relay_to_sigint
    )
    for _ in rounds:
        assert len(np.unique(problem.states["var"].read())) == 1
