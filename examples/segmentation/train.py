"""Train a U-Net to find discs and squares in noisy images, and run it on a device in int8.

The images are generated: Gaussian noise, a disc that is brighter in red, a square that is brighter
in green. `draw_shapes` is the whole recipe.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from journey import Answers, Feeds, Journey, Serving, Training, main

import weft as wf

SIZE = 64
BATCH = 8
NUM_CLASSES = 3
"""Background, disc and square."""


def draw_shapes(rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return images, float32 (count, 64, 64, 3) in 0 to 1, and classes, int32 (count, 64, 64)."""
    images = rng.normal(0.3, 0.1, (count, SIZE, SIZE, 3)).astype(np.float32)
    classes = np.zeros((count, SIZE, SIZE), np.int32)
    rows, columns = np.mgrid[:SIZE, :SIZE]
    for image, mask in zip(images, classes, strict=True):
        for number in (1, 2):
            (y, x), radius = rng.integers(10, SIZE - 10, 2), rng.integers(5, 12)
            disc = (rows - y) ** 2 + (columns - x) ** 2 < radius**2
            square = (abs(rows - y) < radius) & (abs(columns - x) < radius)
            region = disc if number == 1 else square
            mask[region] = number
            image[region, number - 1] += 0.5
    return np.clip(images, 0.0, 1.0), classes


def convolution(x: wf.Tensor, filters: int, training: Any, name: str) -> wf.Tensor:
    """Apply a 3×3 convolution, batch normalization and ReLU."""
    with wf.variable_scope(name):
        x = wf.layers.conv2d(x, filters, 3, padding="same", use_bias=False)
        return wf.nn.relu(wf.layers.batch_normalization(x, momentum=0.9, training=training))


def u_net(images: wf.Tensor, training: Any) -> wf.Tensor:
    """Return logits, (N, 64, 64, 3): two levels down, and up again with skip connections."""
    full = convolution(images, 16, training, "down1")
    half = convolution(wf.layers.max_pooling2d(full, 2, 2), 32, training, "down2")
    quarter = convolution(wf.layers.max_pooling2d(half, 2, 2), 64, training, "bottom")
    x = wf.layers.conv2d_transpose(quarter, 32, 2, 2, name="grow2")
    x = convolution(wf.concat([x, half], -1), 32, training, "up2")
    x = wf.layers.conv2d_transpose(x, 16, 2, 2, name="grow1")
    x = convolution(wf.concat([x, full], -1), 16, training, "up1")
    return wf.layers.conv2d(x, NUM_CLASSES, 1, name="classify")


class Segmentation(Journey):
    """A U-Net on generated shapes."""

    name = "segmentation"
    steps, short_steps = 400, 30
    metric = "mean IoU"
    goal, short_goal = 0.95, 0.6

    def training(self) -> Training:
        """Feed freshly drawn images in each step."""
        images = wf.placeholder(wf.float32, [BATCH, SIZE, SIZE, 3])
        classes = wf.placeholder(wf.int32, [BATCH, SIZE, SIZE])
        loss = wf.losses.sparse_softmax_cross_entropy(classes, u_net(images, True))
        step = wf.train.get_or_create_global_step()
        rate = wf.train.cosine_decay(1e-2, step, self.num_steps)
        with wf.control_dependencies(wf.get_collection(wf.GraphKeys.UPDATE_OPS)):
            train = wf.train.AdamOptimizer(rate).minimize(loss, global_step=step)

        def feeds(_: wf.train.MonitoredSession) -> Iterator[Mapping[wf.Tensor, Any]]:
            rng = np.random.default_rng(self.seed)
            while True:
                values = draw_shapes(rng, BATCH)
                yield dict(zip((images, classes), values, strict=True))

        return Training(train, loss, feeds)

    def serving(self) -> Serving:
        """Return the class of each pixel, and the logits."""
        images = wf.placeholder(wf.float32, [None, SIZE, SIZE, 3], name="images")
        logits = wf.identity(u_net(images, False), name="logits")
        classes = wf.argmax(logits, -1, output_type=wf.int32, name="classes")
        outputs = {"classes": classes, "logits": logits}
        return Serving([images], outputs, {"images": [1, SIZE, SIZE, 3]})

    def calibration(self) -> Sequence[Feeds]:
        """Return 16 images."""
        images, _ = draw_shapes(np.random.default_rng(1), 16)
        return [{"images": image[None]} for image in images]

    def questions(self) -> Sequence[Feeds]:
        """Return 20 held-out images."""
        images, _ = draw_shapes(np.random.default_rng(2), 20)
        return [{"images": image[None]} for image in images]

    def score(self, answers: Answers) -> float:
        """Return the mean intersection over union of the three classes."""
        _, expected = draw_shapes(np.random.default_rng(2), 20)
        classes = np.concatenate(list(answers))
        ious = [
            np.sum((classes == k) & (expected == k)) / np.sum((classes == k) | (expected == k))
            for k in range(NUM_CLASSES)
        ]
        return float(np.mean(ious))


if __name__ == "__main__":
    sys.exit(main(Segmentation))
