"""Train the digits on a cluster that Ray starts, lose a parameter server, and go on.

hatch run cluster-demo
hatch run cluster-demo --target 0.98 --kill worker

Ray starts a parameter server and two workers on this machine. In the midst of the training the
process of one is killed. Ray starts it again, the training loop restores the last checkpoint, and
goes on until the held-out images are recognized.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import time
from contextlib import ExitStack
from typing import Any, NamedTuple

import digits
import numpy as np

import weft as wf
from weft_distrib.launch import Job, Launch
from weft_distrib.launch.ray import RayCluster

BATCH = 64
EVERY = 50
"""Steps between two looks at the held-out images."""


class Model(NamedTuple):
    """What the training needs of the graph."""

    images: Any
    labels: Any
    train: Any
    accuracy: Any


def logits_of(images: Any) -> Any:
    """A small network; its variables are shared by all who call this."""
    with wf.variable_scope("network", reuse=wf.AUTO_REUSE):
        hidden = wf.layers.conv2d(images, 16, 3, padding="same", activation=wf.nn.relu)
        hidden = wf.layers.max_pooling2d(hidden, 2, 2)
        hidden = wf.layers.dense(wf.layers.flatten(hidden), 64, activation=wf.nn.relu)
        return wf.layers.dense(hidden, 10)


def build(cluster: wf.train.ClusterSpec) -> Model:
    """Variables on the parameter servers; each worker has a part of the batch."""
    images = wf.placeholder(wf.float32, [None, 8, 8, 1])
    labels = wf.placeholder(wf.int32, [None])
    workers = cluster.num_tasks("worker")
    step = wf.train.get_or_create_global_step()
    optimizer = wf.train.AdamOptimizer(2e-3)
    found = []
    for worker in range(workers):
        place = f"/job:worker/task:{worker}"
        setter = wf.train.replica_device_setter(cluster=cluster, worker_device=place)
        with wf.device(setter):
            logits = logits_of(images[worker::workers])
            loss = wf.losses.sparse_softmax_cross_entropy(labels[worker::workers], logits)
            found.append(optimizer.compute_gradients(loss))
    means = [
        (wf.add_n([gradient for gradient, _ in pairs]) / workers, pairs[0][1])
        for pairs in zip(*found, strict=True)
    ]
    train = optimizer.apply_gradients(means, global_step=step)
    right = wf.equal(wf.argmax(logits_of(images), 1, output_type=wf.int32), labels)
    return Model(images, labels, train, wf.reduce_mean(wf.cast(right, wf.float32)))


def train(cluster: RayCluster, directory: str, target: float, victim: str) -> tuple[float, int]:
    """Train until the target is reached, with one loss on the way; the accuracy and the steps."""
    data, held_out = digits.load()
    order = np.random.default_rng(0)
    with wf.Graph().as_default():
        model = build(cluster.cluster)
        all_held_out = {model.images: held_out.images, model.labels: held_out.labels}
        with wf.train.MonitoredTrainingSession(
            cluster.target("worker"),
            checkpoint_dir=directory,
            save_checkpoint_steps=EVERY,
            save_summaries_steps=None,
            save_summaries_secs=None,
            log_step_count_steps=None,
        ) as session:
            steps, accuracy, killed = 0, 0.0, False
            while accuracy < target:
                chosen = order.integers(0, len(data.labels), BATCH)
                fed = {model.images: data.images[chosen], model.labels: data.labels[chosen]}
                session.run(model.train, fed)
                steps += 1
                if steps % EVERY == 0:
                    accuracy = float(session.run(model.accuracy, all_held_out))
                    print(f"step {steps}: {accuracy:.2%} of the held-out images", flush=True)
                if steps == 2 * EVERY and not killed:
                    killed = True
                    accuracy = 0.0
                    process = cluster.process(victim)
                    print(f"killing process {process}, which is {victim}:0", flush=True)
                    os.kill(process, signal.SIGKILL)
    return accuracy, steps


def main(arguments: Any = None) -> int:
    """Parse the command line, start Ray and the cluster, and train."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--target", type=float, default=0.97, help="accuracy to stop at")
    parser.add_argument("--kill", choices=("ps", "worker"), default="ps", help="whom to kill")
    options = parser.parse_args(arguments)
    import ray

    began = time.perf_counter()
    jobs = [Job("ps", 1), Job("worker", 2)]
    ray.init(num_cpus=4, include_dashboard=False, logging_level="ERROR")
    try:
        with ExitStack() as stack:
            directory = stack.enter_context(tempfile.TemporaryDirectory())
            # The servers write the checkpoints, and only where they are let.
            launch = Launch("digits", jobs, 3, {"WEFT_FILE_ROOTS": directory})
            cluster = stack.enter_context(
                RayCluster(launch, "127.0.0.1", on_restart=lambda p: print(f"Ray restarted {p}"))
            )
            before = cluster.process(options.kill)
            print(f"Ray runs {', '.join(map(str, launch.task_ids()))}", flush=True)
            accuracy, steps = train(cluster, directory, options.target, options.kill)
            after = cluster.process(options.kill)
    finally:
        ray.shutdown()
    seconds = time.perf_counter() - began
    print(f"{accuracy:.2%} of the held-out images after {steps} steps and {seconds:.0f} s")
    print(f"{options.kill}:0 was process {before}, and is {after}")
    return 0 if after != before else 1


if __name__ == "__main__":
    sys.exit(main())
