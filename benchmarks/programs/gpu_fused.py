"""Compiled elementwise functions, rows and sums on a GPU: weft, PyTorch or JAX.

A step is over when the GPU has finished it; nothing is copied from there.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import timing
from timing import Step, Timer

Compute = Callable[..., Any]


def normalized(f: Any, x: Any) -> Any:
    centered = x - f.mean(x)
    h = centered * f.rsqrt(f.mean(centered * centered) + 1e-5)
    return h * f.sigmoid(h * 1.702)


FUSED: dict[str, tuple[Sequence[tuple[int, ...]], Compute]] = {
    "gpu_elementwise": ([(1 << 24,)] * 2, lambda f, x, y: f.tanh(x) * f.exp(-y * y) + x * 0.5),
    "gpu_softmax": ([(1 << 14, 1024)], lambda f, x: f.softmax(x * 2.0)),
    "gpu_softmax_long": ([(4, 1 << 22)], lambda f, x: f.softmax(x * 2.0)),
    "gpu_norm": ([(1 << 14, 1024)], normalized),
    "gpu_sum": ([(1 << 26,)], lambda f, x: f.sum(x * x)),
    "gpu_columns": ([(1 << 20, 64)], lambda f, x: f.sum(x * x)),
}
"""Shapes of float32, and what is computed of them. Sums are over the first axis, means the last."""


def with_weft(arguments: Any, arrays: Sequence[Any], compute: Compute, timer: Timer) -> None:
    wf = importlib.import_module("weft")
    f = SimpleNamespace(
        tanh=wf.tanh,
        exp=wf.exp,
        rsqrt=wf.rsqrt,
        sigmoid=wf.sigmoid,
        softmax=wf.nn.softmax,
        sum=lambda x: wf.reduce_sum(x, 0),
        mean=lambda x: wf.reduce_mean(x, -1, keepdims=True),
    )
    config = wf.ConfigProto()
    config.gpu_options.allow_growth = True
    with wf.Graph().as_default(), wf.device(arguments.device):
        result = compute(f, *[wf.Variable(array, trainable=False) for array in arrays])
        # A step that keeps nothing has nothing to compute; peers write their results to memory too.
        kept = wf.Variable(wf.zeros(result.shape), trainable=False)
        step = kept.assign(result).op
        with wf.Session(config=config) as session:
            session.run(wf.global_variables_initializer())
            finish = _finish(arguments.device)

            def run() -> None:
                session.run(step)
                finish()

            run()
            if not session.run(wf.reduce_max(wf.abs(kept))) > 0:
                raise SystemExit(f"{arguments.program} computes nothing")
            timer.time(arguments.program, run)


def _finish(device: str) -> Step:
    if "gpu" not in device:
        return lambda: None
    found: Step = importlib.import_module("cupy").cuda.Device(0).synchronize
    return found


def with_torch(arguments: Any, arrays: Sequence[Any], compute: Compute, timer: Timer) -> None:
    torch = importlib.import_module("torch")
    where = "cuda" if "gpu" in arguments.device else "cpu"
    f = SimpleNamespace(
        tanh=torch.tanh,
        exp=torch.exp,
        rsqrt=torch.rsqrt,
        sigmoid=torch.sigmoid,
        softmax=lambda x: torch.softmax(x, -1),
        sum=lambda x: torch.sum(x, 0),
        mean=lambda x: torch.mean(x, -1, keepdim=True),
    )
    given = [torch.from_numpy(array).to(where) for array in arrays]

    def whole(*given: Any) -> Any:
        return compute(f, *given)

    called = torch.compile(whole) if arguments.compile else whole

    def run() -> None:
        with torch.no_grad():
            called(*given)
        if where == "cuda":
            torch.cuda.synchronize()

    timer.time(arguments.program, run)


def with_jax(arguments: Any, arrays: Sequence[Any], compute: Compute, timer: Timer) -> None:
    jax = importlib.import_module("jax")
    f = SimpleNamespace(
        tanh=jax.numpy.tanh,
        exp=jax.numpy.exp,
        rsqrt=jax.lax.rsqrt,
        sigmoid=jax.nn.sigmoid,
        softmax=jax.nn.softmax,
        sum=lambda x: jax.numpy.sum(x, 0),
        mean=lambda x: jax.numpy.mean(x, -1, keepdims=True),
    )
    given = [jax.device_put(array) for array in arrays]
    called = jax.jit(lambda *given: compute(f, *given))
    timer.time(arguments.program, lambda: called(*given).block_until_ready())


if __name__ == "__main__":
    parser = timing.parser()
    parser.add_argument("--module", choices=["weft", "torch", "jax"], default="weft")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--device", default="/gpu:0", help="/cpu:0 to try the programs")
    parser.add_argument("--rows", type=int, default=0, help="of the arrays; 0 for the usual ones")
    asked = parser.parse_args()
    shapes, computed = FUSED[asked.program]
    shapes = [(asked.rows or shape[0], *shape[1:]) for shape in shapes]
    rng = np.random.default_rng(0)
    values = [rng.standard_normal(shape, np.float32) for shape in shapes]
    ways = {"weft": with_weft, "torch": with_torch, "jax": with_jax}
    ways[asked.module](asked, values, computed, Timer(asked.threads, asked.budget))
