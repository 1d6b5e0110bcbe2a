"""Input pipelines: decoded and augmented images, single records; for weft or TensorFlow as `tf`.

The images have 375 by 500 pixels, smooth shapes and a little noise. weft's pipelines run in a
session; TensorFlow's are iterated eagerly, which is its faster way.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

tf: Any = None  # weft or tensorflow.compat.v1

HEIGHT, WIDTH = 375, 500
IMAGES = 64  # different ones
BATCH = 32
CROP, SIZE = 320, 224
RECORDS, RECORD_BYTES = 50_000, 100
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
FEWEST = 3  # passes

clock = time.process_time if os.environ.get("WEFT_BENCH_CLOCK") else time.perf_counter


def natural_image(rng: np.random.Generator) -> np.ndarray[Any, Any]:
    """Return smooth blobs of color with noise of a few gray levels."""
    y, x = np.mgrid[0:HEIGHT, 0:WIDTH].astype(np.float32)
    pixels = np.tile(rng.uniform(40, 200, 3).astype(np.float32), (HEIGHT, WIDTH, 1))
    for _ in range(24):
        row, column, width = rng.uniform(0, HEIGHT), rng.uniform(0, WIDTH), rng.uniform(8, 120)
        blob = np.exp(-((y - row) ** 2 + (x - column) ** 2) / (2 * width * width))
        pixels += blob[:, :, np.newaxis] * rng.uniform(-90, 90, 3)
    pixels += rng.normal(0, 4, (HEIGHT, WIDTH, 1))
    return np.clip(pixels, 0, 255).astype(np.uint8)


def write(directory: Path) -> None:
    """Write the files that all subjects read."""
    from PIL import Image

    rng = np.random.default_rng(0)
    for number in range(IMAGES):
        image = Image.fromarray(natural_image(rng))
        image.save(directory / f"{number:03}.jpeg", quality=90)
        image.save(directory / f"{number:03}.png")
    with tf.python_io.TFRecordWriter(str(directory / "records")) as writer:
        for _ in range(RECORDS):
            writer.write(rng.bytes(RECORD_BYTES))


def augmented(image: Any) -> Any:
    """Crop, flip, change the brightness, resize and normalize an image of bytes."""
    image = tf.random_crop(image, [CROP, CROP, 3])
    image = tf.image.random_flip_left_right(image)
    image = tf.image.convert_image_dtype(image, tf.float32)
    image = tf.image.random_brightness(image, 0.2)
    image = tf.image.resize_images(image, [SIZE, SIZE])
    return (image - tf.constant(MEAN)) / tf.constant(DEVIATION)


def images(directory: Path, kind: str, augment: bool) -> Any:
    """Return a dataset of batches of decoded images."""
    decode = {"jpeg": tf.image.decode_jpeg, "png": tf.image.decode_png}[kind]

    def load(path: Any) -> Any:
        image = decode(tf.io.read_file(path), channels=3)
        return augmented(image) if augment else image

    paths = [str(directory / f"{number:03}.{kind}") for number in range(IMAGES)]
    dataset = tf.data.Dataset.from_tensor_slices(paths).repeat(4)
    dataset = dataset.map(load, num_parallel_calls=tf.data.experimental.AUTOTUNE)
    return dataset.batch(BATCH, drop_remainder=True).prefetch(tf.data.experimental.AUTOTUNE)


def records(directory: Path) -> Any:
    """Return a dataset of single records."""
    return tf.data.TFRecordDataset(str(directory / "records"))


def decoding(kind: str, augment: bool) -> tuple[Callable[[Path], Any], int]:
    return lambda directory: images(directory, kind, augment), BATCH


PROGRAMS = {
    "jpeg": decoding("jpeg", False),
    "jpeg_augmented": decoding("jpeg", True),
    "png": decoding("png", False),
    "png_augmented": decoding("png", True),
    "records": (records, 1),
}
"""The dataset of each row, and how many images or records an element has."""


def passes_of_session(dataset: Any, threads: int) -> Iterator[int]:
    """Iterate over a dataset by steps of a session; yield the elements of each pass."""
    limits = {"intra_op_parallelism_threads": threads, "inter_op_parallelism_threads": threads}
    iterator = tf.data.make_initializable_iterator(dataset)
    element = iterator.get_next()
    with tf.Session(config=tf.ConfigProto(**limits)) as session:
        step = session.make_callable(element)
        while True:
            session.run(iterator.initializer)
            count = 0
            try:
                while True:
                    step()
                    count += 1
            except tf.errors.OutOfRangeError:
                yield count


def eager_passes(dataset: Any, threads: int) -> Iterator[int]:
    """Iterate over a dataset of TensorFlow eagerly; yield the elements of each pass."""
    options = tf.data.Options()
    options.threading.private_threadpool_size = threads
    options.threading.max_intra_op_parallelism = 1
    while True:
        yield sum(1 for _ in dataset.with_options(options))


def measure(row: str, directory: Path, threads: int, budget: float) -> None:
    """Print the images or records per second of the median pass."""
    make, per_element = PROGRAMS[row]
    passes = (passes_of_session if tf.__name__ == "weft" else eager_passes)(
        make(directory), threads
    )
    next(passes)  # the first prepares itself
    rates: list[float] = []
    end = time.perf_counter() + budget
    while len(rates) < FEWEST or time.perf_counter() < end:
        started = clock()
        count = next(passes)
        rates.append(count * per_element / (clock() - started))
    print(json.dumps({"row": row, "rate": statistics.median(rates), "passes": len(rates)}))


def main() -> None:
    global tf
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("row", choices=[*PROGRAMS, "write"])
    parser.add_argument("--module", choices=["weft", "tensorflow.compat.v1"], default="weft")
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--budget", type=float, default=2.0)
    given = parser.parse_args()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    tf = importlib.import_module(given.module)
    if given.row == "write":
        write(given.directory)
        return
    if given.module == "weft":
        with tf.Graph().as_default():
            measure(given.row, given.directory, given.threads, given.budget)
    else:
        tf.config.threading.set_intra_op_parallelism_threads(given.threads)
        tf.config.threading.set_inter_op_parallelism_threads(given.threads)
        measure(given.row, given.directory, given.threads, given.budget)


if __name__ == "__main__":
    main()
