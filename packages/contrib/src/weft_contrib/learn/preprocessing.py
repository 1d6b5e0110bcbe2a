"""Conversion of text to word ids."""

from __future__ import annotations

__all__ = ["CategoricalVocabulary", "VocabularyProcessor", "tokenizer"]

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from weft_io.files.gfile import GFile
from weft_tensor import errors

_TOKENS = re.compile(r"[A-Z]{2,}(?![a-z])|[A-Z][a-z]+(?=[A-Z])|[\'\w\-]+", re.UNICODE)
_FORM = "weft vocabulary 1"


def tokenizer(iterator: Iterable[str]) -> Iterator[list[str]]:
    """Yield the words of each text.

    Args:
      iterator: texts.

    Examples:
      >>> list(wf.contrib.learn.preprocessing.tokenizer(["It's a test."]))
      [["It's", 'a', 'test']]
    """
    for value in iterator:
        yield _TOKENS.findall(value)


class CategoricalVocabulary:
    """A vocabulary with ids of words in order of their first occurrence; 0 means unknown.

    Args:
      unknown_token: the word of id 0.
      support_reverse: keep a map from ids to words.
    """

    def __init__(self, unknown_token: str = "<UNK>", support_reverse: bool = True) -> None:
        self._unknown = unknown_token
        self._mapping = {unknown_token: 0}
        self._counts: Counter[str] = Counter()
        self._frozen = False

    def __len__(self) -> int:
        return len(self._mapping)

    def freeze(self, freeze: bool = True) -> None:
        """Freeze or unfreeze the vocabulary.

        Args:
          freeze: True to freeze, False to unfreeze.
        """
        self._frozen = freeze

    def get(self, category: str) -> int:
        """Return the id of a word; add the word unless the vocabulary is frozen.

        Args:
          category: the word.
        """
        if category not in self._mapping:
            if self._frozen:
                return 0
            self._mapping[category] = len(self._mapping)
        return self._mapping[category]

    def add(self, category: str, count: int = 1) -> None:
        """Count a word.

        Args:
          category: the word.
          count: number of occurrences to add.
        """
        if self.get(category) > 0:
            self._counts[category] += count

    def trim(self, min_frequency: int, max_frequency: int = -1) -> None:
        """Keep only words in a range of frequencies, the most frequent ones first.

        Args:
          min_frequency: exclusive lower bound.
          max_frequency: exclusive upper bound, if positive.
        """
        words = [
            word
            for word, count in sorted(self._counts.items(), key=lambda item: (-item[1], item[0]))
            if count > min_frequency and (max_frequency <= 0 or count < max_frequency)
        ]
        self._mapping = {word: i for i, word in enumerate([self._unknown, *words])}
        self._counts = Counter({word: self._counts[word] for word in words})

    def reverse(self, class_id: int) -> str:
        """Return the word with an id.

        Args:
          class_id: the id.
        """
        return list(self._mapping)[class_id]


class VocabularyProcessor:
    """A converter of texts to rows of word ids.

    Args:
      max_document_length: number of ids in a row; longer texts are truncated, shorter ones are
        padded with zeros.
      min_frequency: words with at most this number of occurrences are unknown.
      vocabulary: a `CategoricalVocabulary`.
      tokenizer_fn: function from texts to lists of words.

    Examples:
      >>> processor = wf.contrib.learn.preprocessing.VocabularyProcessor(3)
      >>> np.array(list(processor.fit_transform(["a b", "b c d e"])))
      array([[1, 2, 0],
             [2, 3, 4]])
    """

    def __init__(
        self,
        max_document_length: int,
        min_frequency: int = 0,
        vocabulary: CategoricalVocabulary | None = None,
        tokenizer_fn: Callable[..., Any] | None = None,
    ) -> None:
        self.max_document_length = int(max_document_length)
        self.min_frequency = min_frequency
        self.vocabulary_ = vocabulary or CategoricalVocabulary()
        self._tokenizer = tokenizer_fn or tokenizer

    def fit(self, raw_documents: Iterable[str], unused_y: Any = None) -> VocabularyProcessor:
        """Learn the words of texts.

        Args:
          raw_documents: texts.
          unused_y: is not used.
        """
        for tokens in self._tokenizer(raw_documents):
            for token in tokens:
                self.vocabulary_.add(token)
        if self.min_frequency > 0:
            self.vocabulary_.trim(self.min_frequency)
        self.vocabulary_.freeze()
        return self

    def fit_transform(
        self, raw_documents: Iterable[str], unused_y: Any = None
    ) -> Iterator[np.ndarray[Any, Any]]:
        """Learn the vocabulary of texts and return their rows.

        Args:
          raw_documents: texts.
          unused_y: accepted and ignored.
        """
        documents = list(raw_documents)
        return self.fit(documents).transform(documents)

    def transform(self, raw_documents: Iterable[str]) -> Iterator[np.ndarray[Any, Any]]:
        """Yield a row of ids for each text, int64.

        Args:
          raw_documents: texts.
        """
        for tokens in self._tokenizer(raw_documents):
            row = np.zeros(self.max_document_length, np.int64)
            for i, token in enumerate(tokens[: self.max_document_length]):
                row[i] = self.vocabulary_.get(token)
            yield row

    def reverse(self, documents: Iterable[Any]) -> Iterator[str]:
        """Yield the words of each row, separated by spaces.

        Args:
          documents: rows of ids.
        """
        words = list(self.vocabulary_._mapping)
        for row in documents:
            yield " ".join(words[int(i)] for i in row)

    def save(self, filename: str) -> None:
        """Write the learned vocabulary as JSON; a custom tokenizer is not saved.

        Args:
          filename: path of the file.
        """
        vocabulary = self.vocabulary_
        state = {
            "form": _FORM,
            "max_document_length": self.max_document_length,
            "min_frequency": self.min_frequency,
            "words": list(vocabulary._mapping),
            "counts": dict(vocabulary._counts),
        }
        with GFile(filename, "w") as stream:
            stream.write(json.dumps(state))

    @classmethod
    def restore(cls, filename: str) -> VocabularyProcessor:
        """Read a file written by `save`.

        Args:
          filename: path of the file.
        Raises: DataLossError: the file has another format.
        """
        with GFile(filename) as stream:
            text = stream.read()
        try:
            state = json.loads(text)
            if state["form"] != _FORM:
                raise ValueError(state["form"])
            words = [str(word) for word in state["words"]]
            processor = cls(int(state["max_document_length"]), int(state["min_frequency"]))
            counts = Counter({str(word): int(n) for word, n in state["counts"].items()})
        except (ValueError, KeyError, TypeError, AttributeError) as cause:
            raise errors.DataLossError(f"{filename} is no vocabulary: {cause!r}") from cause
        processor.vocabulary_._mapping = {word: i for i, word in enumerate(words)}
        processor.vocabulary_._counts = counts
        processor.vocabulary_.freeze()
        return processor
