"""Whole scripts for weft and tensorflow.compat.v1: build a graph, run its steps, and exit.

Prints one line of JSON: the wall time at the end of each step, in seconds since the start.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import lengths_v1
import models_v1
import networks_v1
import timing
import v1

CLOCK_START = time.perf_counter() - time.process_time()
"""The start of the process, about: until here it was computing."""

SCRIPTS: dict[str, tuple[timing.Program, int]] = {
    "mlp": (v1.PROGRAMS["mlp"], 469),
    "convnet": (v1.PROGRAMS["cnn"], 200),
    "lstm": (v1.PROGRAMS["lstm"], 200),
    "skipgram": (v1.PROGRAMS["word2vec"], 3000),
    "transformer": (models_v1.PROGRAMS["model_transformer_16"], 100),
    "actor_critic": (models_v1.PROGRAMS["model_actor_critic"], 1000),
    "autoencoder": (models_v1.PROGRAMS["model_vae"], 1000),
    "tagger": (models_v1.PROGRAMS["model_tagger"], 300),
    "text_convnet": (models_v1.PROGRAMS["model_text_cnn"], 200),
    "adversarial": (models_v1.PROGRAMS["model_gan"], 50),
    "gru": (networks_v1.PROGRAMS["gru_100"], 100),
    "block_128": (networks_v1.PROGRAMS["block_128"], 30),
    "resnet": (networks_v1.PROGRAMS["resnet_64"], 10),
    "inference": (networks_v1.PROGRAMS["mobilenet_1"], 50),
    "decoding": (networks_v1.PROGRAMS["decode_token"], 2000),
    "lstm_lengths": (lengths_v1.PROGRAMS["lstm_lengths"], 250),
    "transformer_lengths": (lengths_v1.PROGRAMS["transformer_lengths"], 250),
    "transformer_batches": (lengths_v1.PROGRAMS["transformer_batches"], 250),
    "mlp_last_batch": (lengths_v1.PROGRAMS["mlp_last_batch"], 1500),
}
"""By name: the program, and how many steps a run of it has."""


class Steps(timing.Timer):
    """Runs a number of steps, and records when each ends."""

    def __init__(self, threads: int, count: int) -> None:
        super().__init__(threads, 0.0)
        self._count = count

    def time(self, row: str, step: Callable[[], Any]) -> None:
        ends = []
        for _ in range(self._count):
            step()
            ends.append(time.perf_counter() - CLOCK_START)
        print(json.dumps({"row": row, "ends": ends}), flush=True)


def use(module: Any) -> None:
    for programs in (v1, models_v1, networks_v1, lengths_v1):
        programs.use(module)


def programs(factor: float) -> dict[str, timing.Program]:
    """Return the scripts, with `factor` times as many steps."""

    def script(program: timing.Program, count: int) -> timing.Program:
        return lambda timer: program(Steps(timer.threads, max(1, round(factor * count))))

    return {name: script(*each) for name, each in SCRIPTS.items()}


if __name__ == "__main__":
    timing.graph_mode(programs(1.0), use)
