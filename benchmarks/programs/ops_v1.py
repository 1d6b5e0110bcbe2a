"""Chains of nodes of one op: one program that runs with weft or tensorflow.compat.v1 as `tf`."""

from __future__ import annotations

import argparse
import importlib
import inspect
import json
import os
import signal
import sys
import time
from typing import Any

import numpy as np

tf: Any = None  # weft or tensorflow.compat.v1
LIMIT = 20  # seconds that one op may take


def array(told: dict[str, Any]) -> Any:
    dtype = tf.as_dtype(told["dtype"]).as_numpy_dtype
    if told["dtype"] == "string":
        values = np.array([v.encode("latin1") for v in told["values"]], object)
    else:
        raw = np.array(told["values"])
        values = (raw[:, 0] + 1j * raw[:, 1] if raw.ndim == 2 else raw).astype(dtype)
    return np.resize(values, told["shape"]) if values.size else values.reshape(told["shape"])


def attribute(value: Any) -> Any:
    if isinstance(value, dict):
        return tf.as_dtype(value["dtype"]) if "dtype" in value else np.array(value["array"])
    return [attribute(item) for item in value] if isinstance(value, list) else value


def node(entry: dict[str, Any], fed: list[Any]) -> Any:
    call = getattr(tf.raw_ops, entry["op"])
    waiting = iter(fed)
    inputs = [[next(waiting) for _ in range(n)] if n else next(waiting) for n in entry["groups"]]
    attrs = {name: attribute(value) for name, value in entry["attrs"].items()}
    taken = list(inspect.signature(call).parameters)
    names = [n if n in taken else taken[i] for i, n in enumerate(entry["names"])]
    attrs = {name: value for name, value in attrs.items() if name in taken}
    return call(**dict(zip(names, inputs, strict=True)), **attrs)


def operation(made: Any) -> Any:
    while isinstance(made, list | tuple):
        made = made[0]
    return getattr(made, "op", made)


def seconds(entry: dict[str, Any], count: int, budget: float) -> float:
    """Return the least processor time of a step, for each number of nodes in `count`."""
    with tf.Graph().as_default() as graph:
        values = [array(told) for told in entry["arrays"]]
        fed = [tf.placeholder(tf.as_dtype(v["dtype"]), v["shape"]) for v in entry["arrays"]]
        made = [operation(node(entry, fed)) for _ in range(count)]
        with graph.control_dependencies(made):
            last = tf.no_op()
        options = tf.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=1)
        # The nodes are equal, and must stay as many as they are.
        options.graph_options.optimizer_options.opt_level = -1
        options.graph_options.rewrite_options.disable_meta_optimizer = True
        with tf.Session(config=options) as session:
            feeds = dict(zip(fed, values, strict=True))
            step = session.make_callable(last, feed_list=list(feeds))
            step(*feeds.values())  # plans, and takes fresh memory
            samples, end = [], time.perf_counter() + budget
            while len(samples) < 2 or time.perf_counter() < end:
                started = time.process_time()  # not what the machine does for others
                step(*feeds.values())
                samples.append(time.process_time() - started)
    return min(samples) / count


def late(*_: Any) -> None:
    raise TimeoutError


def main() -> None:
    global tf
    parser = argparse.ArgumentParser()
    parser.add_argument("--module", default="weft")
    parser.add_argument("--nodes", type=int, default=100)
    parser.add_argument("--budget", type=float, default=0.1)
    arguments = parser.parse_args()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    tf = importlib.import_module(arguments.module)
    if arguments.module != "weft":
        tf.disable_v2_behavior()
    signal.signal(signal.SIGALRM, late)
    for line in sys.stdin:
        entry = json.loads(line)
        signal.alarm(LIMIT)
        try:
            told = {"seconds": seconds(entry, arguments.nodes, arguments.budget)}
        except Exception as why:  # because an op that one of them lacks is told as such
            told = {"failed": f"{type(why).__name__}: {str(why)[:100]}"}
        finally:
            signal.alarm(0)
        print(json.dumps({"op": entry["op"]} | told), flush=True)


if __name__ == "__main__":
    main()
