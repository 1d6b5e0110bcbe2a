"""Train a convolutional network on handwritten digits; interrupt it and run it again to go on.

hatch run demo
hatch run demo --seed 3 --epochs 40 --directory runs/other
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import deploy
import digits
import model as network
import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

import weft as wf

BATCH = 32
Curve = list[dict[str, float]]


class Trainer:
    """One training run in a directory: its graph, its session, its checkpoints and its curve."""

    def __init__(self, directory: Path, seed: int, epochs: int) -> None:
        self.directory = directory
        self.seed = seed
        self.epochs = epochs
        self.training, self.held_out = digits.load()
        self.steps_per_epoch = -(-len(self.training.labels) // BATCH)
        self.graph = wf.Graph()
        with self.graph.as_default():
            self.model = network.build(seed, epochs * self.steps_per_epoch)
            self.saver = wf.train.Saver(max_to_keep=2)
        self.session = wf.Session(graph=self.graph)
        self.curve: Curve = []

    def restore(self) -> int:
        """Initialize, or go on from the newest checkpoint; returns the epochs done."""
        newest = wf.train.latest_checkpoint(str(self.directory))
        if newest is None:
            self.session.run(self.model.initialize)
            return 0
        self.saver.restore(self.session, newest)
        state = wf.train.get_checkpoint_state(str(self.directory))
        self.saver.recover_last_checkpoints(state.all_model_checkpoint_paths)
        done = int(self.session.run(self.model.step)) // self.steps_per_epoch
        self.curve = _read_curve(self.directory / "curve.json")[:done]
        return done

    def save(self) -> None:
        """Write the curve so far, then a checkpoint; a run that goes on cuts the curve to fit."""
        aside = self.directory / "curve.json.new"
        aside.write_text(json.dumps(self.curve))
        aside.replace(self.directory / "curve.json")
        self.saver.save(self.session, str(self.directory / "model"), self.model.step)

    def epoch(self, number: int) -> dict[str, float]:
        """Train through the data once, in an order that only the seed and `number` decide."""
        model = self.model
        order = np.random.default_rng([self.seed, number]).permutation(len(self.training.labels))
        losses = []
        for start in range(0, len(order), BATCH):
            chosen = order[start : start + BATCH]
            feeds = {
                model.images: self.training.images[chosen],
                model.labels: self.training.labels[chosen],
                model.training: True,
            }
            losses.append(self.session.run([model.loss, model.train], feeds)[0])
        return {"loss": float(np.mean(losses)), "accuracy": self.accuracy()}

    def accuracy(self) -> float:
        """The share of the held-out images that is recognized."""
        feeds = {self.model.images: self.held_out.images, self.model.labels: self.held_out.labels}
        return float(self.session.run(self.model.accuracy, feeds))

    def run(self, console: Console) -> float:
        """Train what is left to train; returns the accuracy on the held-out images."""
        done = self.restore()
        if done:
            console.print(f"going on after epoch {done} of {self.epochs} from {self.directory}")
        columns = [
            TextColumn("training"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("loss {task.fields[loss]:.4f}  held out {task.fields[accuracy]:.2%}"),
            TimeRemainingColumn(),
        ]
        last = self.curve[-1] if self.curve else {"loss": float("nan"), "accuracy": 0.0}
        with Progress(*columns, console=console) as progress:
            task = progress.add_task("train", total=self.epochs, completed=done, **last)
            for number in range(done, self.epochs):
                point = self.epoch(number)
                self.curve.append(point)
                self.save()
                progress.update(task, advance=1, **point)
        return self.accuracy()


def _read_curve(path: Path) -> Curve:
    try:
        curve: Curve = json.loads(path.read_text())
    except (FileNotFoundError, json.JSONDecodeError):
        return []
    return curve


def draw(curve: Curve, path: Path) -> None:
    """Draw loss and accuracy by epoch."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    epochs = range(1, len(curve) + 1)
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 4), layout="constrained")
    left.semilogy(epochs, [p["loss"] for p in curve], color="tab:blue")
    left.set(title="training loss", xlabel="epoch", ylabel="cross entropy")
    right.plot(epochs, [100 * p["accuracy"] for p in curve], color="tab:orange")
    right.axhline(98, color="gray", linewidth=0.8, linestyle="--")
    right.set(title="held-out accuracy", xlabel="epoch", ylabel="per cent", ylim=(80, 100))
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def main(arguments: Any = None) -> int:
    """Parse the command line and train."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--directory", type=Path, default=Path("runs/digits"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=25)
    parser.add_argument("--restart", action="store_true", help="forget an earlier run")
    parser.add_argument("--no-deploy", action="store_true", help="end after the training")
    options = parser.parse_args(arguments)
    console = Console()
    options.directory.mkdir(parents=True, exist_ok=True)
    if options.restart:
        for pattern in ("model-*", "checkpoint*", "curve.*"):
            for path in options.directory.glob(pattern):
                path.unlink()
    started = time.perf_counter()
    trainer = Trainer(options.directory, options.seed, options.epochs)
    try:
        accuracy = trainer.run(console)
    except KeyboardInterrupt:
        console.print("interrupted; run it again to go on from the last whole epoch")
        return 130
    picture = options.directory / "curve.png"
    draw(trainer.curve, picture)
    console.print(f"held-out accuracy {accuracy:.2%} after {time.perf_counter() - started:.1f} s")
    console.print(
        f"checkpoints in {options.directory}, training curve in {picture}", soft_wrap=True
    )
    if not options.no_deploy:
        deploy.deploy(options.directory, console)
    return 0


if __name__ == "__main__":
    sys.exit(main())
