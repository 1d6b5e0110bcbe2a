"""English text: the manual that ships with Python, `pydoc_data.topics`."""

from __future__ import annotations

import pydoc_data.topics
import re
from collections import Counter
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np

HELD_OUT = 20
"""One of so many characters is held out, at the end; of words, one of so many passages."""

PASSAGE = 100
"""Number of words in a passage."""


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
    text = _manual()[:size]
    characters = "".join(sorted(set(text)))
    numbers = {character: number for number, character in enumerate(characters)}
    values = np.array([numbers[character] for character in text], np.int32)
    split = len(values) - len(values) // HELD_OUT
    return Text(characters, values[:split], values[split:])


class Words(NamedTuple):
    """Words as numbers, from the most frequent one.

    Attributes:
      words: the word of each number.
      training, held_out: int32 vectors, without rare words; whole passages are held out.
    """

    words: list[str]
    training: np.ndarray
    held_out: np.ndarray


@lru_cache(maxsize=1)
def load_words(min_count: int = 5, size: int = 1_000_000) -> Words:
    """Return the words of the manual in lower case.

    Args:
      min_count: words that are less frequent are left out.
      size: number of characters, of about 450,000.
    """
    text = re.findall("[a-z]+", _manual()[:size].lower())
    counts = Counter(text)
    frequent = [word for word in counts if counts[word] >= min_count]
    words = sorted(frequent, key=lambda word: (-counts[word], word))
    numbers = {word: number for number, word in enumerate(words)}
    values = np.array([numbers[word] for word in text if word in numbers], np.int32)
    is_held_out = np.arange(len(values)) // PASSAGE % HELD_OUT == 0
    return Words(words, values[~is_held_out], values[is_held_out])


def _manual() -> str:
    topics = pydoc_data.topics.topics
    text = "\n".join(topics[name] for name in sorted(topics))
    return text.encode("ascii", "ignore").decode()


def sample_text(
    next_logits: Callable[[int], np.ndarray],
    text: Text,
    prompt: str,
    count: int,
    temperature: float = 0.7,
    seed: int = 0,
) -> str:
    """Return the prompt and characters that a model continues it with.

    Args:
      next_logits: receives a character as a number and returns the logits of the next one,
        (number of characters,); it keeps the state of the model.
      text: the characters of the numbers.
      prompt: at least one character of `text`.
      count: number of characters to draw.
      temperature: divides the logits; the lower, the more the probable characters are preferred.
      seed: of the draws.
    """
    rng = np.random.default_rng(seed)
    numbers = [text.characters.index(character) for character in prompt]
    for token in numbers[:-1]:
        next_logits(token)
    for _ in range(count):
        logits = next_logits(numbers[-1]).astype(np.float64) / temperature
        shares = np.exp(logits - logits.max())
        numbers.append(int(rng.choice(len(shares), p=shares / shares.sum())))
    return "".join(text.characters[number] for number in numbers)


def perplexity(logits: np.ndarray, targets: np.ndarray) -> float:
    """Return the perplexity of targets, int (n,), under logits, (n, number of characters)."""
    logits = logits.astype(np.float64)
    peak = logits.max(axis=1)
    log_sums = np.log(np.exp(logits - peak[:, None]).sum(axis=1)) + peak
    return float(np.exp(np.mean(log_sums - logits[np.arange(len(targets)), targets])))
