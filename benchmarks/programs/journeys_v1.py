"""Time training steps of an example, with weft or with TensorFlow, which runs it unchanged.

The package `journey` is reduced to what training graphs need, and `weft` names the framework.
"""

from __future__ import annotations

import argparse
import importlib
import json
import statistics
import sys
import tempfile
import types
from itertools import repeat
from pathlib import Path
from typing import Any

import timing

EXAMPLES = Path(__file__).parents[2] / "examples"


def load_program(name: str, framework: Any) -> Any:
    """Return the module of an example, whose framework is the given one."""
    sys.modules["weft"] = framework
    journey = types.ModuleType("journey")
    journey.__path__ = [str(EXAMPLES / "journey")]
    sys.modules["journey"] = journey
    base = importlib.import_module("journey.base")
    for part in ("Answers", "Feeds", "Journey", "Serving", "Training"):
        setattr(journey, part, getattr(base, part))
    journey.main = None  # type: ignore[attr-defined]
    sys.path.insert(0, str(EXAMPLES / name))
    return importlib.import_module("train")


def main() -> None:
    """Train the example for some steps, and print the median seconds of a step."""
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.add_argument("--module", default="weft")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--warm-up", type=int, default=100)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    framework = importlib.import_module(options.module)
    if options.module != "weft":
        framework.disable_v2_behavior()
        framework.logging.set_verbosity(framework.logging.ERROR)
    module = load_program(options.name, framework)
    (kind,) = [
        value
        for value in vars(module).values()
        if isinstance(value, type) and value.__module__ == "train" and hasattr(value, "steps")
    ]
    config = framework.ConfigProto(
        intra_op_parallelism_threads=options.threads, inter_op_parallelism_threads=options.threads
    )
    with tempfile.TemporaryDirectory() as directory, framework.Graph().as_default() as graph:
        framework.set_random_seed(0)
        framework.train.get_or_create_global_step()
        training = kind(Path(directory), 0, is_short=False).training()
        with framework.train.MonitoredTrainingSession(config=config) as session:
            feeds = repeat(None) if training.feeds is None else training.feeds(session)
            samples = []
            for _ in range(options.warm_up + options.steps):
                started = timing.clock()
                session.run(training.train, next(feeds))
                samples.append(timing.clock() - started)
        line = {"row": options.name, "median": statistics.median(samples[options.warm_up :])}
        print(json.dumps(line | {"nodes": len(graph.get_operations())}), flush=True)


if __name__ == "__main__":
    main()
