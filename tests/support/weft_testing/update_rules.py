"""The update rules of optimizers in plain NumPy, as references."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
State = dict[str, Array]
Reference = Callable[[State, Array, dict[str, Any]], None]
"""A function `reference(state, grad, hyper)` that changes the arrays of `state` in place."""


def _shrink(value: Any, by: Any) -> Any:
    return np.sign(value) * np.maximum(np.abs(value) - by, 0)


def gradient_descent(s: State, g: Array, h: dict[str, Any]) -> None:
    s["var"] -= h["alpha"] * g


def proximal_gradient_descent(s: State, g: Array, h: dict[str, Any]) -> None:
    a = h["alpha"]
    s["var"][...] = _shrink(s["var"] - a * g, a * h["l1"]) / (1 + a * h["l2"])


def momentum(s: State, g: Array, h: dict[str, Any]) -> None:
    s["accum"] *= h["momentum"]
    s["accum"] += g
    step = g + h["momentum"] * s["accum"] if h.get("use_nesterov") else s["accum"]
    s["var"] -= h["lr"] * step


def adagrad(s: State, g: Array, h: dict[str, Any]) -> None:
    if h.get("update_slots", True):
        s["accum"] += g * g
    s["var"] -= h["lr"] * g / (np.sqrt(s["accum"]) + h.get("epsilon", 0))


def proximal_adagrad(s: State, g: Array, h: dict[str, Any]) -> None:
    s["accum"] += g * g
    rate = h["lr"] / np.sqrt(s["accum"])
    s["var"][...] = _shrink(s["var"] - rate * g, rate * h["l1"]) / (1 + rate * h["l2"])


def adagrad_da(s: State, g: Array, h: dict[str, Any]) -> None:
    total, squares = s["gradient_accumulator"], s["gradient_squared_accumulator"]
    total += g
    squares += g * g
    step = h["global_step"]
    below = h["l2"] * step * h["lr"] + np.sqrt(squares)
    s["var"][...] = -h["lr"] * _shrink(total, h["l1"] * step) / below


def adadelta(s: State, g: Array, h: dict[str, Any]) -> None:
    rho, epsilon = h["rho"], h["epsilon"]
    s["accum"][...] = rho * s["accum"] + (1 - rho) * g * g
    update = np.sqrt(s["accum_update"] + epsilon) / np.sqrt(s["accum"] + epsilon) * g
    s["accum_update"][...] = rho * s["accum_update"] + (1 - rho) * update**2
    s["var"] -= h["lr"] * update


def ftrl(s: State, g: Array, h: dict[str, Any]) -> None:
    power = -h["lr_power"]
    new = s["accum"] + g * g
    shrunk = g + 2 * h.get("l2_shrinkage", 0) * s["var"]
    s["linear"] += shrunk - (new**power - s["accum"] ** power) / h["lr"] * s["var"]
    s["accum"][...] = new
    below = new**power / h["lr"] + 2 * h["l2"]
    s["var"][...] = -_shrink(s["linear"], h["l1"]) / below


def adam(s: State, g: Array, h: dict[str, Any]) -> None:
    b1, b2 = h["beta1"], h["beta2"]
    rate = h["lr"] * np.sqrt(1 - h["beta2_power"]) / (1 - h["beta1_power"])
    s["m"][...] = b1 * s["m"] + (1 - b1) * g
    s["v"][...] = b2 * s["v"] + (1 - b2) * g * g
    m = b1 * s["m"] + (1 - b1) * g if h.get("use_nesterov") else s["m"]
    s["var"] -= rate * m / (np.sqrt(s["v"]) + h["epsilon"])


def rmsprop(s: State, g: Array, h: dict[str, Any]) -> None:
    rho = h["rho"]
    s["ms"][...] = rho * s["ms"] + (1 - rho) * g * g
    mean: Any = 0
    if "mg" in s:
        s["mg"][...] = rho * s["mg"] + (1 - rho) * g
        mean = s["mg"] ** 2
    root = np.sqrt(s["ms"] - mean + h["epsilon"])
    s["mom"][...] = h["momentum"] * s["mom"] + h["lr"] * g / root
    s["var"] -= s["mom"]


REFERENCES: dict[str, Reference] = {
    "GradientDescent": gradient_descent,
    "ProximalGradientDescent": proximal_gradient_descent,
    "Momentum": momentum,
    "Adagrad": adagrad,
    "AdagradV2": adagrad,
    "ProximalAdagrad": proximal_adagrad,
    "AdagradDA": adagrad_da,
    "Adadelta": adadelta,
    "Ftrl": ftrl,
    "FtrlV2": ftrl,
    "Adam": adam,
    "RMSProp": rmsprop,
    "CenteredRMSProp": rmsprop,
}
"""The references by name of the rule."""

HYPER: dict[str, dict[str, Any]] = {
    "GradientDescent": {"alpha": 0.1},
    "ProximalGradientDescent": {"alpha": 0.1, "l1": 0.02, "l2": 0.3},
    "Momentum": {"lr": 0.1, "momentum": 0.9},
    "Adagrad": {"lr": 0.3},
    "AdagradV2": {"lr": 0.3, "epsilon": 0.01},
    "ProximalAdagrad": {"lr": 0.3, "l1": 0.02, "l2": 0.3},
    "AdagradDA": {"lr": 0.3, "l1": 0.02, "l2": 0.3, "global_step": 3},
    "Adadelta": {"lr": 0.5, "rho": 0.9, "epsilon": 0.001},
    "Ftrl": {"lr": 0.5, "l1": 0.1, "l2": 0.3, "lr_power": -0.5},
    "FtrlV2": {"lr": 0.5, "l1": 0.1, "l2": 0.3, "l2_shrinkage": 0.05, "lr_power": -0.4},
    "Adam": {
        "beta1_power": 0.9,
        "beta2_power": 0.99,
        "lr": 0.1,
        "beta1": 0.9,
        "beta2": 0.99,
        "epsilon": 0.001,
    },
    "RMSProp": {"lr": 0.1, "rho": 0.9, "momentum": 0.5, "epsilon": 0.01},
    "CenteredRMSProp": {"lr": 0.1, "rho": 0.9, "momentum": 0.5, "epsilon": 0.01},
}
"""Sample hyperparameters by the name of the rule."""


def first_state(slots: tuple[str, ...], shape: tuple[int, ...], seed: int = 0) -> State:
    """Return initial values: normal for the variable, positive for its slots."""
    rng = np.random.default_rng(seed)
    state = {slot: rng.uniform(0.5, 1.5, shape) for slot in slots}
    state["var"] = rng.standard_normal(shape)
    if "mg" in state:
        state["mg"] *= 0.1
    return state
