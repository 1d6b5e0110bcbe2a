"""Train a convolutional network on image files: decode, augment, batch, train, stop early.

The files are generated: ten kinds of colored patterns, half of them JPEG and half PNG, in a
directory for each kind. `draw_pattern` is the whole recipe.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from journey import Answers, Feeds, Journey, Serving, Training, main
from PIL import Image

import weft as wf

SIZE, CROP = 36, 32
BATCH = 32
KINDS = ("disc", "ring", "square", "frame", "cross", "stripes", "columns", "checks", "ramp", "dots")
NUM_QUESTIONS = 200


def draw_pattern(rng: np.random.Generator, kind: str) -> np.ndarray:
    """Return an image, uint8 (36, 36, 3): a pattern in one color on another, with noise."""
    rows, columns = np.mgrid[:SIZE, :SIZE]
    y, x = rng.integers(12, SIZE - 12, 2)
    radius, period = rng.integers(7, 12), rng.integers(5, 9)
    distance, largest = np.hypot(rows - y, columns - x), np.maximum(abs(rows - y), abs(columns - x))
    shape: np.ndarray[Any, Any] = {
        "disc": distance < radius,
        "ring": abs(distance - radius) < 2.5,
        "square": largest < radius,
        "frame": abs(largest - radius) < 2.5,
        "cross": (np.minimum(abs(rows - y), abs(columns - x)) < 3) & (largest < radius),
        "stripes": (rows + y) % period < period // 2,
        "columns": (columns + x) % period < period // 2,
        "checks": ((rows + y) // period + (columns + x) // period) % 2 == 0,
        "ramp": (rows + columns) / (2 * SIZE) + 0.0 * x,
        "dots": np.hypot((rows + y) % period - period / 2, (columns + x) % period - period / 2) < 2,
    }[kind]
    ink = rng.uniform(0, 255, 3)
    paper = (ink + rng.uniform(80, 175, 3)) % 255  # differs enough to be seen through the noise
    image = shape[..., None] * ink + (1.0 - shape[..., None]) * paper
    return np.clip(image + rng.normal(0, 20, image.shape), 0, 255).astype(np.uint8)


def write_files(directory: Path, split: str, count: int) -> Path:
    """Write the files of a split, unless they exist; return its directory."""
    folder = directory / split
    if (folder / "complete").exists():
        return folder
    rng = np.random.default_rng([3, len(split)])
    for kind in KINDS:
        (folder / kind).mkdir(parents=True, exist_ok=True)
        for number in range(count // len(KINDS)):
            suffix = ("jpg", "png")[number % 2]
            Image.fromarray(draw_pattern(rng, kind)).save(folder / kind / f"{number:04}.{suffix}")
    (folder / "complete").touch()
    return folder


def read_files(folder: Path) -> tuple[list[str], list[int]]:
    """Return the paths of image files and the numbers of their kinds."""
    pairs = [(str(path), i) for i, kind in enumerate(KINDS) for path in (folder / kind).iterdir()]
    paths, labels = zip(*sorted(pairs), strict=True)
    return list(paths), list(labels)


def decode(path: wf.Tensor, label: wf.Tensor) -> tuple[wf.Tensor, wf.Tensor]:
    """Return the image of a file, float32 in 0 to 1, and its label."""
    image = wf.image.decode_image(wf.read_file(path), channels=3)
    image.set_shape([SIZE, SIZE, 3])
    return wf.image.convert_image_dtype(image, wf.float32), label


def augment(image: wf.Tensor, label: wf.Tensor) -> tuple[wf.Tensor, wf.Tensor]:
    """Crop at random, flip at random, and change brightness and contrast."""
    image = wf.random_crop(image, [CROP, CROP, 3])
    image = wf.image.random_flip_left_right(image)
    image = wf.image.random_brightness(image, 0.1)
    return wf.image.random_contrast(image, 0.8, 1.2), label


def network(images: wf.Tensor, training: bool) -> wf.Tensor:
    """Return logits, (N, 10)."""
    x = images
    for i, filters in enumerate((16, 32, 64)):
        with wf.variable_scope(f"stage{i}"):
            x = wf.layers.conv2d(x, filters, 3, padding="same", use_bias=False)
            x = wf.nn.relu(wf.layers.batch_normalization(x, momentum=0.9, training=training))
            x = wf.layers.max_pooling2d(x, 2, 2)
    x = wf.reduce_mean(x, [1, 2])
    return wf.layers.dense(x, len(KINDS), name="logits")


class StopWhenLearned(wf.train.SessionRunHook):
    """Stops the training when the mean accuracy of the last 50 batches reaches a bound."""

    def __init__(self, accuracy: wf.Tensor, bound: float) -> None:
        self._accuracy = accuracy
        self._bound = bound
        self._recent: list[float] = []

    def before_run(self, run_context: Any) -> Any:
        """Fetch the accuracy of the batch."""
        return wf.train.SessionRunArgs(self._accuracy)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Request a stop."""
        self._recent = [*self._recent[-49:], float(run_values.results)]
        if len(self._recent) == 50 and np.mean(self._recent) >= self._bound:
            run_context.request_stop()


class Images(Journey):
    """A convolutional network on image files."""

    name = "images"
    steps, short_steps = 1500, 70
    metric = "accuracy"
    goal, short_goal = 0.97, 0.3
    jobs: ClassVar = {"ps": 1, "worker": 2}

    def training(self) -> Training:
        """Read, decode and augment files in threads, and train with a scheduled rate."""
        folder = write_files(self.directory / "files", "training", 400 if self.is_short else 4000)
        paths, labels = read_files(folder)
        dataset = (
            wf.data.Dataset.from_tensor_slices((paths, labels))
            .shuffle(len(paths), seed=self.seed)
            .repeat()
            .map(lambda path, label: augment(*decode(path, label)), num_parallel_calls=2)
            .batch(BATCH, drop_remainder=True)
            .prefetch(2)
        )
        images, targets = dataset.make_one_shot_iterator().get_next()

        def replica(images: wf.Tensor, targets: wf.Tensor) -> list[wf.Tensor]:
            logits = network(images, training=True)
            loss = wf.losses.sparse_softmax_cross_entropy(targets, logits)
            return [loss, wf.equal(wf.argmax(logits, 1, output_type=wf.int32), targets)]

        loss, hits = self.replicas.apply(replica, images, targets)
        accuracy = wf.reduce_mean(wf.cast(hits, wf.float32))
        wf.summary.scalar("accuracy", accuracy)
        wf.summary.image("images", images, max_outputs=4)
        step = wf.train.get_or_create_global_step()
        rate = wf.train.piecewise_constant_decay(
            step, [self.num_steps // 2, self.num_steps * 3 // 4], [1e-2, 3e-3, 1e-3]
        )
        # Each replica normalizes its part of a batch; the statistics are those of the first one.
        updates = wf.get_collection(wf.GraphKeys.UPDATE_OPS, scope="replica0")
        with wf.control_dependencies(updates):
            train = wf.train.AdamOptimizer(rate).minimize(
                loss, global_step=step, colocate_gradients_with_ops=True
            )
        return Training(train, loss, hooks=[StopWhenLearned(accuracy, 0.995)])

    def serving(self) -> Serving:
        """Return the scores of all kinds."""
        images = wf.placeholder(wf.float32, [None, CROP, CROP, 3], name="image")
        scores = wf.nn.softmax(network(images, training=False), name="scores")
        return Serving([images], {"scores": scores}, {"image": [1, CROP, CROP, 3]})

    def _read(self, split: str, count: int) -> tuple[list[Feeds], list[int]]:
        """Return images of a split, cut out of the middle, and their labels."""
        paths, labels = read_files(write_files(self.directory / "files", split, count))
        first = (SIZE - CROP) // 2
        with wf.Graph().as_default(), wf.Session() as session:
            dataset = wf.data.Dataset.from_tensor_slices((paths, labels)).map(decode).batch(count)
            images, _ = session.run(dataset.make_one_shot_iterator().get_next())
        images = images[:, first : first + CROP, first : first + CROP]
        return [{"image": image[None]} for image in images], labels

    def calibration(self) -> Sequence[Feeds]:
        """Return 40 images that are neither trained on nor scored."""
        return self._read("calibration", 40)[0]

    def questions(self) -> Sequence[Feeds]:
        """Return the held-out images."""
        return self._read("test", NUM_QUESTIONS)[0]

    def score(self, answers: Answers) -> float:
        """Return the share of the held-out images that are recognized."""
        labels = self._read("test", NUM_QUESTIONS)[1]
        return float(np.mean(np.concatenate(list(answers)).argmax(1) == labels))


if __name__ == "__main__":
    sys.exit(main(Images))
