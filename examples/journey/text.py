"""English text for language models: the manual that ships with Python, `pydoc_data.topics`."""

from __future__ import annotations

import pydoc_data.topics
from typing import NamedTuple

import numpy as np

HELD_OUT = 20
"""One of so many characters is held out, at the end."""


class Text(NamedTuple):
    """Characters as numbers.

    Attributes:
      characters: the character of each number.
      training, held_out: int32 vectors.
    """

    characters: str
    training: np.ndarray
    held_out: np.ndarray

    @property
    def num_characters(self) -> int:
        """The size of the vocabulary."""
        return len(self.characters)


def load_text(size: int = 400_000) -> Text:
    """Return the first characters of the manual's topics in alphabetical order, in ASCII.

    Args:
      size: number of characters, of about 450,000.
    """
    topics = pydoc_data.topics.topics
    text = "\n".join(topics[name] for name in sorted(topics))
    text = text.encode("ascii", "ignore").decode()[:size]
    characters = "".join(sorted(set(text)))
    numbers = {character: number for number, character in enumerate(characters)}
    values = np.array([numbers[character] for character in text], np.int32)
    split = len(values) - len(values) // HELD_OUT
    return Text(characters, values[:split], values[split:])


def perplexity(logits: np.ndarray, targets: np.ndarray) -> float:
    """Return the perplexity of targets, int (n,), under logits, (n, number of characters)."""
    logits = logits.astype(np.float64)
    peak = logits.max(axis=1)
    log_sums = np.log(np.exp(logits - peak[:, None]).sum(axis=1)) + peak
    return float(np.exp(np.mean(log_sums - logits[np.arange(len(targets)), targets])))
