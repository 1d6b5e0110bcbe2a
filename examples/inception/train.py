"""Train an Inception-style network with synchronous replicas, or fine-tune an ONNX model.

The images are lines of text in one of eight typefaces that matplotlib ships; the network names the
typeface. `draw_line` is the whole recipe. In a cluster each of three workers has a graph of its
own, and a step needs the gradients of two of them: the third one is a backup worker.
"""

from __future__ import annotations

import subprocess
import sys
import zipfile
from collections.abc import Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar

import matplotlib as mpl
import numpy as np
from journey import Answers, Feeds, Journey, Serving, Training, main
from journey.text import load_words
from PIL import Image, ImageDraw, ImageFont

import weft as wf

HEIGHT, WIDTH = 32, 96
BATCH = 32
SHORT_BATCH = 16
FONTS = (
    "DejaVuSans",
    "DejaVuSans-Bold",
    "STIXGeneralItalic",
    "DejaVuSans-Oblique",
    "DejaVuSansMono",
    "DejaVuSerif",
    "DejaVuSerif-Italic",
    "STIXGeneral",
)
NUM_QUESTIONS = 200
SHORT_QUESTIONS = 100
PACKAGE = "rapidocr-onnxruntime==1.4.4"
"""A package that ships a MobileNetV3, which tells whether a line of text is upside down."""
PRETRAINED = "ch_ppocr_mobile_v2.0_cls_infer.onnx"


def draw_line(rng: np.random.Generator, font: str, words: Sequence[str]) -> np.ndarray:
    """Return a line of text, uint8 (32, 96, 3), dark on light, with noise."""
    path = Path(mpl.get_data_path()) / "fonts" / "ttf" / f"{font}.ttf"
    ink, paper = rng.uniform(0, 90, 3), rng.uniform(165, 255, 3)
    picture = Image.new("RGB", (WIDTH, HEIGHT), tuple(map(int, paper)))
    text = " ".join(rng.choice(words, 6))
    place = int(rng.integers(-20, 1)), int(rng.integers(-2, 8))
    face = ImageFont.truetype(str(path), int(rng.integers(16, 23)))
    ImageDraw.Draw(picture).text(place, text, tuple(map(int, ink)), face)
    values = np.asarray(picture) + rng.normal(0, 12, (HEIGHT, WIDTH, 3))
    return np.clip(values, 0, 255).astype(np.uint8)


def draw_lines(seed: int, count: int, num_fonts: int) -> tuple[np.ndarray, np.ndarray]:
    """Return images, float32 in -1 to 1, and the numbers of their typefaces."""
    rng, words = np.random.default_rng([5, seed]), load_words().words
    labels = np.arange(count, dtype=np.int32) % num_fonts
    images = np.stack([draw_line(rng, FONTS[label], words) for label in labels])
    return images.astype(np.float32) / 127.5 - 1.0, labels


def convolve(x: wf.Tensor, filters: int, size: Any, training: bool, stride: int = 1) -> wf.Tensor:
    """Apply a convolution, a batch normalization and a ReLU."""
    x = wf.layers.conv2d(x, filters, size, stride, padding="same", use_bias=False)
    return wf.nn.relu(wf.layers.batch_normalization(x, momentum=0.9, training=training))


def module(x: wf.Tensor, width: int, training: bool, size: int) -> wf.Tensor:
    """Apply an Inception module with factorized convolutions (Szegedy et al. 2015).

    It is residual (Szegedy et al. 2016) where the number of channels stays the same: without that,
    20 modules learn nothing in 600 steps.
    """
    conv = partial(convolve, training=training)
    single = conv(x, width, 1)
    short = conv(conv(conv(x, width // 2, 1), width // 2, (1, size)), width, (size, 1))
    long = conv(x, width // 2, 1)
    for shape in ((size, 1), (1, size)) * 2:
        long = conv(long, width // 2 if shape == (size, 1) else width, shape)
    pooled = conv(wf.layers.average_pooling2d(x, 3, 1, padding="same"), width // 2, 1)
    result = wf.concat([single, short, long, pooled], 3)
    return x + result if x.shape[-1] == result.shape[-1] else result


def features(images: wf.Tensor, training: bool, depths: Sequence[int]) -> wf.Tensor:
    """Return features, (N, channels); `depths` are the numbers of modules of the stages."""
    x = convolve(images, 16, 3, training, 2)
    for stage, depth in enumerate(depths):
        with wf.variable_scope(f"stage{stage}"):
            for i in range(depth):
                with wf.variable_scope(f"module{i}"):
                    x = module(x, 8 * (stage + 1), training, 3 if stage == 0 else 5)
            x = wf.layers.max_pooling2d(x, 2, 2)
    return wf.reduce_mean(x, [1, 2])


def fetch_pretrained(directory: Path) -> Path:
    """Return the ONNX model of the package, whose wheel is downloaded once."""
    path = directory / PRETRAINED
    if not path.exists():
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", PACKAGE]
        subprocess.run([*pip, "--dest", str(directory)], check=True)
        (wheel,) = directory.glob("rapidocr_onnxruntime-*.whl")
        with zipfile.ZipFile(wheel) as archive:
            path.write_bytes(archive.read(f"rapidocr_onnxruntime/models/{PRETRAINED}"))
    return path


def pretrained(images: wf.Tensor, path: Path) -> wf.Tensor:
    """Return the features of an ONNX model before its last layer; its weights are variables."""
    scaled = wf.image.resize_bilinear(images, [HEIGHT * 3 // 2, WIDTH * 2])
    inputs = {"x": wf.transpose(scaled, [0, 3, 1, 2])}
    wf.onnx.import_model(path, inputs, trainable=True, name="pretrained")
    products = [op for op in wf.get_default_graph().get_operations() if op.type == "MatMul"]
    return products[-1].inputs[0]


class Inception(Journey):
    """An Inception-style network with 20 modules, or a fine-tuned MobileNetV3."""

    name = "inception"
    steps, short_steps = 600, 30
    metric = "accuracy"
    goal, short_goal = 0.90, 0.5
    variants = ("inception", "fine-tuned")
    jobs: ClassVar = {"ps": 1, "worker": 3}
    has_graph_per_worker = True

    def logits(self, images: wf.Tensor, training: bool) -> wf.Tensor:
        """Return the logits of the variant."""
        if self.variant == "fine-tuned":
            x = pretrained(images, fetch_pretrained(self.directory))
        else:
            x = features(images, training, (1,) if self.is_short else (2, 7, 11))
        return wf.layers.dense(x, self.num_fonts, name="logits")

    @property
    def num_fonts(self) -> int:
        """The number of typefaces; the short form has fewer."""
        return 3 if self.is_short else len(FONTS)

    @cached_property
    def _lines(self) -> tuple[np.ndarray, np.ndarray]:
        return draw_lines(0, 300 if self.is_short else 8000, self.num_fonts)

    def training(self) -> Training:
        """Draw lines of text, and train with smoothed labels and averaged variables."""
        images, labels = self._lines
        size = SHORT_BATCH if self.is_short else BATCH
        place = wf.placeholder(wf.float32, [size, HEIGHT, WIDTH, 3], name="images")
        targets = wf.placeholder(wf.int32, [size], name="labels")
        logits = self.logits(place, training=True)
        loss = wf.losses.softmax_cross_entropy(
            wf.one_hot(targets, self.num_fonts), logits, label_smoothing=0.05
        )
        for variable in wf.trainable_variables():
            wf.summary.scalar(f"norms/{variable.op.name}", wf.norm(variable))
        step = wf.train.get_or_create_global_step()
        rate = wf.train.cosine_decay(1e-2 if self.is_short else 5e-3, step, self.num_steps)
        optimizer, hooks = wf.train.AdamOptimizer(rate), []
        averages = wf.train.ExponentialMovingAverage(0.9, step)
        if self.replicas.cluster is not None:
            num_workers = self.replicas.num_workers
            optimizer = wf.train.SyncReplicasOptimizer(
                optimizer,
                replicas_to_aggregate=num_workers - 1,
                total_num_replicas=num_workers,
                variable_averages=averages,
                variables_to_average=wf.trainable_variables(),
            )
            hooks = [optimizer.make_session_run_hook(is_chief=self.replicas.worker == 0)]
        updates = wf.get_collection(wf.GraphKeys.UPDATE_OPS)
        train = optimizer.minimize(loss, global_step=step)
        # As control inputs of `minimize`, they would make the optimizer's initializers need images.
        train = wf.group(train, *updates)
        if self.replicas.cluster is None:
            with wf.control_dependencies([train]):
                train = averages.apply(wf.trainable_variables())

        def feeds(_: Any) -> Any:
            rng = np.random.default_rng([self.seed, self.replicas.worker])
            while True:
                rows = rng.integers(0, len(labels), size)
                yield {place: images[rows], targets: labels[rows]}

        return Training(train, loss, feeds, hooks)

    def serving(self) -> Serving:
        """Return the scores of all typefaces."""
        images = wf.placeholder(wf.float32, [1, HEIGHT, WIDTH, 3], name="image")
        scores = wf.nn.softmax(self.logits(images, training=False), name="scores")
        return Serving([images], {"scores": scores})

    def calibration(self) -> Sequence[Feeds]:
        """Return lines that are neither trained on nor scored."""
        return [{"image": image[None]} for image in draw_lines(1, 30, self.num_fonts)[0]]

    @cached_property
    def _held_out(self) -> tuple[np.ndarray, np.ndarray]:
        return draw_lines(2, SHORT_QUESTIONS if self.is_short else NUM_QUESTIONS, self.num_fonts)

    def questions(self) -> Sequence[Feeds]:
        """Return the held-out lines."""
        return [{"image": image[None]} for image in self._held_out[0]]

    def score(self, answers: Answers) -> float:
        """Return the share of the held-out lines whose typeface is named."""
        return float(np.mean(np.concatenate(list(answers)).argmax(1) == self._held_out[1]))


if __name__ == "__main__":
    sys.exit(main(Inception))
