"""The first training step of 64 layers: by kernels, compiled, and loaded from the disk cache.

Each is a process of its own, and its time the processor's, from the graph to the first result.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time

import networks_v1
import timing
from timing import Timer

import weft as wf

LAYERS, LENGTH = 64, 16
WAYS = {"kernels": "off", "cold": "now", "warm": "now"}


def first_step() -> None:
    """Build a transformer with Adam, and print its nodes and the seconds of the first step."""
    networks_v1.use(wf)
    width = networks_v1.WIDTH
    x = wf.placeholder(wf.float32, [LENGTH, width])
    h = x
    for layer in range(LAYERS):
        with wf.variable_scope(f"layer{layer}"):
            h += networks_v1.attention(networks_v1.layer_norm(h, "first", width), 1, LENGTH)
            normal = networks_v1.layer_norm(h, "second", width)
            wide = networks_v1.gelu(networks_v1.projected(normal, width, 4 * width, "wide"))
            h += networks_v1.projected(wide, 4 * width, width, "narrow")
    loss = wf.reduce_mean(wf.square(h))
    train = wf.train.AdamOptimizer().minimize(loss)
    with wf.Session() as session:
        session.run(wf.global_variables_initializer())
        start = time.process_time()
        session.run([train, loss], {x: networks_v1.random_floats(LENGTH, width)})
        print(len(wf.get_default_graph().nodes), time.process_time() - start)


def compiling(timer: Timer) -> None:
    with tempfile.TemporaryDirectory() as cache:
        for way, said in WAYS.items():
            environment = os.environ | {"WEFT_JIT": said, "WEFT_CACHE": cache}
            command = [sys.executable, __file__, "--here"]
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, check=True
            )
            timer.report(f"compile_large_{way}", [float(done.stdout.split()[-1])])


if __name__ == "__main__":
    if "--here" in sys.argv:
        first_step()
    else:
        timing.main({"compile_large": compiling}, timing.parser().parse_args())
