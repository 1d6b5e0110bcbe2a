"""Write files of this version of the format, with inputs and results, for later versions.

    python tests/lite/runtime/golden/write.py VERSION

A file that was written stays: a runtime that cannot run it any more, needs more memory than it
declares, or gives something else is not of the same version of the format.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import weft as wf
from weft_lite import Interpreter
from weft_lite.convert import Converter

HERE = Path(__file__).parent


def images(x: Any) -> Any:
    """Convolutions of both kinds, a pool, and a dense layer whose depth is no multiple of four."""
    y = wf.layers.conv2d(x, 9, 3, activation=wf.nn.relu)
    y = wf.layers.separable_conv2d(y, 18, 3, strides=2, padding="same")
    return wf.layers.dense(wf.layers.flatten(wf.layers.max_pooling2d(y, 2, 2)), 20)


def steps(x: Any) -> Any:
    """A recurrent layer, a normalization and a softmax."""
    y, _ = wf.nn.dynamic_rnn(wf.nn.rnn_cell.BasicLSTMCell(13), x, dtype=wf.float32)
    return wf.nn.softmax(wf.contrib.layers.layer_norm(wf.layers.dense(y, 17)))


def dense(x: Any) -> Any:
    """A dense layer that needs more scratch memory than any other op."""
    return wf.layers.dense(x, 20)


MODELS: dict[str, tuple[Callable[[Any], Any], tuple[int, ...]]] = {
    "dense": (dense, (8, 64)),
    "images": (images, (2, 14, 14, 3)),
    "steps": (steps, (2, 6, 7)),
}


def write(version: str) -> None:
    """Write each model in float32 and in int8."""
    for name, (build, shape) in MODELS.items():
        random = np.random.default_rng(0)
        with wf.Graph().as_default(), wf.Session() as session:
            wf.set_random_seed(1)
            x = wf.placeholder(wf.float32, shape, name="x")
            y = wf.identity(build(x), name="y")
            session.run(wf.global_variables_initializer())
            samples = [{"x": random.normal(size=shape).astype("float32")} for _ in range(8)]
            for form, options in {"float32": {}, "int8": {"calibration": samples}}.items():
                data = Converter.from_session(session, [x], [y]).convert(**options)
                runner = Interpreter(model_content=data).get_signature_runner()
                stem = HERE / f"{version}-{name}-{form}"
                stem.with_suffix(".weftlite").write_bytes(data)
                np.savez(stem.with_suffix(".npz"), **samples[0], y=runner(**samples[0])["y"])


if __name__ == "__main__":
    write(sys.argv[1])
