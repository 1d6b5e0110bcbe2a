"""The parts of `tf.contrib` that older programs import, as thin wrappers.

Namespaces are loaded on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from weft_contrib import (
        crf as crf,
        cudnn_rnn as cudnn_rnn,
        framework as framework,
        layers as layers,
        learn as learn,
        legacy_seq2seq as legacy_seq2seq,
        lookup as lookup,
        losses as losses,
        opt as opt,
        rnn as rnn,
        seq2seq as seq2seq,
        slim as slim,
        training as training,
    )

NAMESPACES = (
    "crf",
    "cudnn_rnn",
    "framework",
    "layers",
    "learn",
    "legacy_seq2seq",
    "lookup",
    "losses",
    "opt",
    "rnn",
    "seq2seq",
    "slim",
    "training",
)
"""The available namespaces of `tf.contrib`."""


def __getattr__(name: str) -> Any:
    if name in NAMESPACES:
        return import_module(f"weft_contrib.{name}")
    raise AttributeError(
        f"weft.contrib has no {name!r}; it has {', '.join(NAMESPACES)}",
        name=name,
    )


def __dir__() -> list[str]:
    return sorted({*globals(), *NAMESPACES})
