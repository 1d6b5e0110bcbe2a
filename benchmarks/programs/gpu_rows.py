"""Training steps on a GPU, in weft or PyTorch; one table describes the networks for both.

Weft keeps images as (N, H, W, C), PyTorch as (N, C, H, W), each as its users do. A step is over
when the GPU has finished it.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import timing
from timing import Step, Timer

# ("conv", outputs, kernel, stride, padding), ("pool", kernel, stride, padding), ("mean",),
# ("inception", 1×1, (3×3 reduced, 3×3), (5×5 reduced, 5×5), pooled), ("dense", outputs)
Layer = tuple[Any, ...]

CLASSES = 1000


def conv3(outputs: int) -> Layer:
    return ("conv", outputs, 3, 1, 1)


HALF: Layer = ("pool", 2, 2, 0)
POOL3: Layer = ("pool", 3, 2, 0)
POOL3_SAME: Layer = ("pool", 3, 2, 1)

ALEXNET = [
    ("conv", 64, 11, 4, 2), POOL3, ("conv", 192, 5, 1, 2), POOL3, conv3(384), conv3(256),
    conv3(256), POOL3, ("dense", 4096), ("dense", 4096), ("dense", CLASSES),
]  # fmt: skip
OVERFEAT = [
    ("conv", 96, 11, 4, 0), HALF, ("conv", 256, 5, 1, 0), HALF, conv3(512), conv3(1024),
    conv3(1024), HALF, ("dense", 3072), ("dense", 4096), ("dense", CLASSES),
]  # fmt: skip
VGG_A = [
    conv3(64), HALF, conv3(128), HALF, conv3(256), conv3(256), HALF, conv3(512), conv3(512), HALF,
    conv3(512), conv3(512), HALF, ("dense", 4096), ("dense", 4096), ("dense", CLASSES),
]  # fmt: skip
GOOGLENET = [
    ("conv", 64, 7, 2, 3), POOL3_SAME, ("conv", 64, 1, 1, 0), conv3(192), POOL3_SAME,
    ("inception", 64, (96, 128), (16, 32), 32),
    ("inception", 128, (128, 192), (32, 96), 64), POOL3_SAME,
    ("inception", 192, (96, 208), (16, 48), 64),
    ("inception", 160, (112, 224), (24, 64), 64),
    ("inception", 128, (128, 256), (24, 64), 64),
    ("inception", 112, (144, 288), (32, 64), 64),
    ("inception", 256, (160, 320), (32, 128), 128), POOL3_SAME,
    ("inception", 256, (160, 320), (32, 128), 128),
    ("inception", 384, (192, 384), (48, 128), 128), ("mean",), ("dense", CLASSES),
]  # fmt: skip

NETWORKS = {
    "gpu_alexnet": (ALEXNET, 128, 224),
    "gpu_overfeat": (OVERFEAT, 128, 231),
    "gpu_vgg_a": (VGG_A, 64, 224),
    "gpu_googlenet": (GOOGLENET, 128, 224),
}
OF_THE_CPU = {"gpu_mlp": "mlp", "gpu_cnn": "cnn", "gpu_lstm": "lstm"}
"""Programs that are the same as on the CPU."""
COMPILED = {
    "gpu_layer_norm": "layer_norm_gelu",
    "gpu_adamw": "adamw_10M",
    "gpu_cross_entropy": "cross_entropy",
    "gpu_block_128": "block_128",
    "gpu_block_1024": "block_1024",
    "gpu_gru": "gru_100",
    "gpu_decode": "decode_token",
}
"""Programs of `networks_v1.py` that a compiler gains by; what they take is on the GPU already."""


class FinishedTimer(Timer):
    """Times steps until the device has finished them, under the program's name for the row."""

    def __init__(self, arguments: Any, finish: Step) -> None:
        super().__init__(arguments.threads, arguments.budget)
        name = arguments.program
        self._row = name if name in COMPILED else f"{name}_train"
        self._finish = finish

    def time(self, row: str, step: Step) -> None:
        if row.endswith("_infer"):
            return

        def finished() -> None:
            step()
            self._finish()

        super().time(self._row, finished)


# ----------------------------------------------------------------------------------- weft


class Weft:
    """The networks as graphs of weft."""

    def __init__(self, wf: Any, device: str) -> None:
        self.wf, self.device = wf, device
        self.rng = np.random.RandomState(0)

    def session(self, *_: Any) -> Any:
        config = self.wf.ConfigProto(allow_soft_placement=True)
        config.gpu_options.allow_growth = True
        return self.wf.Session(config=config)

    def variable(self, *shape: int) -> Any:
        scale = np.sqrt(2.0 / np.prod(shape[:-1]))
        return self.wf.Variable((self.rng.randn(*shape) * scale).astype(np.float32))

    def conv(self, h: Any, outputs: int, kernel: int, stride: int, padding: int) -> Any:
        wf, sides = self.wf, [[0, 0], [padding] * 2, [padding] * 2, [0, 0]]
        w = self.variable(kernel, kernel, int(h.shape[-1]), outputs)
        b = wf.Variable(wf.zeros([outputs]))
        return wf.nn.relu(wf.nn.bias_add(wf.nn.conv2d(h, w, stride, sides), b))

    def pool(self, h: Any, kernel: int, stride: int, padding: int) -> Any:
        return self.wf.nn.max_pool(h, kernel, stride, "SAME" if padding else "VALID")

    def mean(self, h: Any) -> Any:
        return self.wf.reduce_mean(h, [1, 2])

    def inception(
        self, h: Any, one: int, three: tuple[int, int], five: tuple[int, int], pooled: int
    ) -> Any:
        branches = [
            self.conv(h, one, 1, 1, 0),
            self.conv(self.conv(h, three[0], 1, 1, 0), three[1], 3, 1, 1),
            self.conv(self.conv(h, five[0], 1, 1, 0), five[1], 5, 1, 2),
            self.conv(self.pool(h, 3, 1, 1), pooled, 1, 1, 0),
        ]
        return self.wf.concat(branches, 3)

    def dense(self, h: Any, outputs: int) -> Any:
        wf = self.wf
        flat = wf.layers.flatten(h)
        sums = wf.matmul(flat, self.variable(int(flat.shape[1]), outputs))
        sums = wf.nn.bias_add(sums, wf.Variable(wf.zeros([outputs])))
        return sums if outputs == CLASSES else wf.nn.relu(sums)

    def train(self, timer: Timer, layers: list[Layer], batch: int, side: int) -> None:
        wf = self.wf
        with wf.device(self.device):
            values = self.rng.rand(batch, side, side, 3).astype(np.float32)
            images = wf.Variable(values, trainable=False)
            labels = wf.constant(self.rng.randint(0, CLASSES, batch))
            h = images
            for kind, *sizes in layers:
                h = getattr(self, kind)(h, *sizes)
            losses = wf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=h)
            optimizer = wf.train.GradientDescentOptimizer(1e-3)
            step = optimizer.minimize(wf.reduce_mean(losses))
        with self.session() as session:
            session.run(wf.global_variables_initializer())
            timer.time("network", lambda: session.run(step))


def with_weft(arguments: Any) -> None:
    import v1

    wf = importlib.import_module("weft")
    networks = Weft(wf, arguments.device)
    v1.use(wf)
    v1.session = networks.session  # type: ignore[assignment]
    timer = FinishedTimer(arguments, _finish_of_cupy(arguments.device))
    with wf.Graph().as_default(), wf.device(arguments.device):
        if arguments.program in COMPILED:
            _in_place(networks).PROGRAMS[COMPILED[arguments.program]](timer)
        elif arguments.program in OF_THE_CPU:
            v1.PROGRAMS[OF_THE_CPU[arguments.program]](timer)
        else:
            layers, batch, side = NETWORKS[arguments.program]
            networks.train(timer, layers, arguments.batch or batch, side)


def _in_place(weft: Weft) -> Any:
    """Return the module of networks with inputs and results that stay on the device.

    Integers are fed as on the CPU: they are few, and a program has them on the host.
    """
    wf, module = weft.wf, importlib.import_module("networks_v1")
    module.use(wf)

    def kept(value: Any) -> Any:
        if value.dtype.kind == "i":
            return wf.constant(value)
        return wf.identity(wf.Variable(value, trainable=False))

    def stored(result: Any) -> Any:
        if isinstance(result, wf.Operation):
            return result
        if not result.dtype.is_floating:
            return result.op
        return wf.Variable(wf.zeros(result.shape), trainable=False).assign(result).op

    def run(timer: Timer, _: str, fetches: Any, feeds: dict[Any, Any] | None = None) -> None:
        step = wf.group(*map(stored, fetches if isinstance(fetches, list) else [fetches]))
        fed = {x: value for x, value in (feeds or {}).items() if x.op.type == "Placeholder"}
        with weft.session() as session:
            session.run(wf.global_variables_initializer())
            call = session.make_callable(step, feed_list=list(fed))
            values = list(fed.values())
            for _ in range(10):  # until all of it is compiled and captured
                call(*values)
            timer.time("", lambda: call(*values))

    vars(module).update(placeholder_of=kept, run=run)
    return module


def _finish_of_cupy(device: str) -> Step:
    if "gpu" not in device:
        return lambda: None
    cupy = importlib.import_module("cupy")
    return lambda: cupy.cuda.Device(0).synchronize()


# -------------------------------------------------------------------------------- PyTorch


class Torch:
    """The networks as modules of PyTorch."""

    def __init__(self, torch: Any) -> None:
        self.torch, self.nn = torch, torch.nn

    def conv(self, inputs: int, outputs: int, kernel: int, stride: int, padding: int) -> Any:
        nn = self.nn
        return nn.Sequential(nn.Conv2d(inputs, outputs, kernel, stride, padding), nn.ReLU())

    def inception(
        self, inputs: int, one: int, three: tuple[int, int], five: tuple[int, int], pooled: int
    ) -> Any:
        nn, conv, cat = self.nn, self.conv, self.torch.cat
        branches = nn.ModuleList(
            [
                conv(inputs, one, 1, 1, 0),
                nn.Sequential(conv(inputs, three[0], 1, 1, 0), conv(three[0], three[1], 3, 1, 1)),
                nn.Sequential(conv(inputs, five[0], 1, 1, 0), conv(five[0], five[1], 5, 1, 2)),
                nn.Sequential(nn.MaxPool2d(3, 1, 1), conv(inputs, pooled, 1, 1, 0)),
            ]
        )

        class Inception(nn.Module):  # type: ignore[misc, name-defined]
            def __init__(self) -> None:
                super().__init__()
                self.branches = branches

            def forward(self, h: Any) -> Any:
                return cat([branch(h) for branch in self.branches], 1)

        return Inception()

    def network(self, layers: list[Layer]) -> Any:
        nn, inputs, made = self.nn, 3, []
        for kind, *sizes in layers:
            if kind == "conv":
                made.append(self.conv(inputs, *sizes))
                inputs = sizes[0]
            elif kind == "inception":
                made.append(self.inception(inputs, *sizes))
                inputs = sizes[0] + sizes[1][1] + sizes[2][1] + sizes[3]
            elif kind == "pool":
                made.append(nn.MaxPool2d(*sizes))
            elif kind == "mean":
                made.append(nn.AdaptiveAvgPool2d(1))
            else:
                made += [nn.Flatten(), nn.LazyLinear(sizes[0])]
                made += [] if sizes[0] == CLASSES else [nn.ReLU()]
        return nn.Sequential(*made)


def with_torch(arguments: Any) -> None:
    torch = importlib.import_module("torch")
    where = "cuda" if "gpu" in arguments.device else "cpu"
    torch.set_default_device(where)
    finish: Step = torch.cuda.synchronize if where == "cuda" else lambda: None
    timer = FinishedTimer(arguments, finish)
    if arguments.program in OF_THE_CPU or arguments.program in COMPILED:
        rows = importlib.import_module("torch_rows")
        rows.generator = torch.Generator(where).manual_seed(0)
        rows.compiled = arguments.compile
        if arguments.program in COMPILED:
            rows = importlib.import_module("networks_torch_rows")
        rows.PROGRAMS[(OF_THE_CPU | COMPILED)[arguments.program]](timer)
        return
    layers, batch, side = NETWORKS[arguments.program]
    batch = arguments.batch or batch
    images, labels = torch.rand(batch, 3, side, side), torch.randint(0, CLASSES, (batch,))
    network = Torch(torch).network(layers)
    network(images[:1])  # sizes the lazy layers
    run: Callable[..., Any] = torch.compile(network) if arguments.compile else network
    optimizer = torch.optim.SGD(network.parameters(), 1e-3)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        torch.nn.functional.cross_entropy(run(images), labels).backward()
        optimizer.step()

    timer.time("network", step)


if __name__ == "__main__":
    parser = timing.parser()
    parser.add_argument("--module", choices=["weft", "torch"], default="weft")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--device", default="/gpu:0", help="/cpu:0 to try the programs")
    parser.add_argument("--batch", type=int, default=0, help="0 for the usual ones")
    given = parser.parse_args()
    (with_weft if given.module == "weft" else with_torch)(given)
