"""Images that are decoded in the memory of their batch are the same as images that are copied."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from PIL import Image
from weft_testing.waiting import rounds

import weft as wf
from weft_io.streams import batches

COUNT = 11
PICTURES = np.random.default_rng(3).integers(0, 256, (COUNT, 150, 160, 3), dtype=np.uint8)


def _jpeg(picture: np.ndarray) -> bytes:
    file = io.BytesIO()
    Image.fromarray(picture).save(file, "JPEG")
    return file.getvalue()


FILES = [_jpeg(picture) for picture in PICTURES]


@pytest.fixture(scope="module")
def images() -> np.ndarray:
    with wf.Graph().as_default(), wf.Session() as session:
        return np.stack(session.run([wf.image.decode_jpeg(data) for data in FILES]))


@pytest.fixture
def copies(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of values of each component that is copied into a batch."""
    counts: list[int] = []
    stacked = batches.stack_components

    def noting(values: Any, empty: Any) -> Any:
        counts.append(len(values))
        return stacked(values, empty)

    monkeypatch.setattr(batches, "stack_components", noting)
    return counts


def _batches(function: Callable[..., Any], size: int, calls: Any, files: Any = FILES) -> list[Any]:
    """All batches; an error of a step stands in the place of its batch."""
    with wf.Graph().as_default():
        numbered = wf.data.Dataset.from_tensor_slices((files, np.arange(len(files))))
        dataset = numbered.map(function, num_parallel_calls=calls).batch(size)
        step = dataset.make_one_shot_iterator().get_next()
        found: list[Any] = []
        with wf.Session() as session:
            for _ in rounds():
                try:
                    found.append(session.run(step))
                except wf.errors.OutOfRangeError:
                    break
                except wf.errors.InvalidArgumentError as error:
                    found.append(error)
        return found


def _decode(data: Any, number: Any) -> Any:
    return wf.image.decode_jpeg(data, channels=3)


@pytest.mark.parametrize("calls", [None, 1, 3, wf.data.experimental.AUTOTUNE])
def test_images_are_decoded_in_their_batch(
    images: np.ndarray, copies: list[int], calls: Any
) -> None:
    found = _batches(_decode, 4, calls)
    assert [len(batch) for batch in found] == [4, 4, 3]
    np.testing.assert_array_equal(np.concatenate(found), images)
    assert not copies


def test_other_components_are_copied(images: np.ndarray, copies: list[int]) -> None:
    def labeled(data: Any, number: Any) -> Any:
        return number, wf.image.decode_jpeg(data, channels=3)

    found = _batches(labeled, 4, 2)
    np.testing.assert_array_equal(np.concatenate([batch[0] for batch in found]), range(COUNT))
    np.testing.assert_array_equal(np.concatenate([batch[1] for batch in found]), images)
    assert copies == [4, 4, 3]


@pytest.mark.parametrize("calls", [None, 3])
def test_functions_of_images_get_them_whole(images: np.ndarray, calls: Any) -> None:
    """The decoded image is stored in a row of the batch; derived values use other memory."""

    def inverted(data: Any, number: Any) -> Any:
        image = wf.image.decode_jpeg(data, channels=3)
        return 255 - image, image, image[::-1]

    found = _batches(inverted, 4, calls)
    for place, wanted in enumerate((255 - images, images, images[:, ::-1])):
        np.testing.assert_array_equal(np.concatenate([batch[place] for batch in found]), wanted)


def test_one_image_twice_has_two_memories(images: np.ndarray) -> None:
    def twice(data: Any, number: Any) -> Any:
        image = wf.image.decode_jpeg(data, channels=3)
        return image, image

    for first, second in _batches(twice, 4, 2):
        assert not np.shares_memory(first, second)
        np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("calls", [None, 2])
def test_batches_behind_an_error_are_right(images: np.ndarray, calls: Any) -> None:
    files = [*FILES[:5], b"\xff\xd8\xff no image", *FILES[5:]]
    found = _batches(_decode, 3, calls, files)
    failed = [i for i, batch in enumerate(found) if isinstance(batch, Exception)]
    assert failed == [1]
    kept = np.concatenate([batch for batch in found if not isinstance(batch, Exception)])
    np.testing.assert_array_equal(kept, np.concatenate([images[:3], images[5:]]))


def test_images_of_two_sizes_are_refused() -> None:
    files = [FILES[0], _jpeg(PICTURES[1, :140])]
    (error,) = _batches(_decode, 2, 2, files)
    assert "different shapes" in str(error)
