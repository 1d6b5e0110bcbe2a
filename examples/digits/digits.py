"""The UCI handwritten digits: reading them, and one fixed stratified split."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import NamedTuple

import numpy as np

DATA = Path(__file__).parent / "data" / "digits.csv.gz"


class Split(NamedTuple):
    """Images float32 [n, 8, 8, 1] in 0 to 1, labels int32 [n]."""

    images: np.ndarray
    labels: np.ndarray


def load() -> tuple[Split, Split]:
    """The training part and the held-out fifth.

    Every fifth image of each digit is held out, so both parts have the same mix of digits.
    """
    with gzip.open(DATA, "rt") as file:
        table = np.loadtxt(file, delimiter=",", dtype=np.float32)
    images = (table[:, :64] / 16).reshape(-1, 8, 8, 1)
    labels = table[:, 64].astype(np.int32)
    held_out = np.zeros(len(labels), bool)
    for digit in range(10):
        held_out[np.flatnonzero(labels == digit)[::5]] = True
    return Split(images[~held_out], labels[~held_out]), Split(images[held_out], labels[held_out])
