"""The rows of the table: which program gives each, for whom, and what weft promises."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

# row -> subject -> what was measured, seconds or bytes
Measured = dict[str, dict[str, float]]

GRAPH_MODE = ("weft", "tensorflow")
EVERYBODY = ("weft", "tensorflow", "torch", "torch-compile", "jax")
EAGER_TOO = ("weft", "tensorflow", "torch", "jax")
LOOPS = ("weft", "tensorflow", "jax")
WEFT = ("weft",)


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    name: str
    title: str
    unit: str = "ms"


@dataclass(frozen=True)
class Program:
    """One child process, which may give several rows."""

    name: str
    rows: tuple[Row, ...]
    subjects: tuple[str, ...] = GRAPH_MODE
    script: str = ""  # where it is not the subject's own
    family: str = ""  # where the subject's own script begins with that


@dataclass(frozen=True)
class Promise:
    """A bound on weft, as a number from one round's measurements."""

    title: str
    bound: float
    value: Callable[[Measured], float]
    at_least: bool = False
    unit: str = ""

    def kept(self, value: float) -> bool:
        return value >= self.bound if self.at_least else value <= self.bound


def plans(op: str, title: str) -> list[Program]:
    """Three sizes, so that growth shows; TensorFlow's rewriter needs minutes for the larger."""
    return [
        Program(
            f"plan_{op}_{count}",
            (Row(f"plan_{op}_{count}", f"first Run of {count:,} nodes, {title}"),),
            GRAPH_MODE if count == 1000 else WEFT,
        )
        for count in (1000, 10_000, 100_000)
    ]


PROGRAMS = [
    Program(
        "import",
        (Row("import", "import", "s"), Row("import_above_numpy", "import above NumPy's", "s")),
        EAGER_TOO,
        "footprint.py",
    ),
    Program("size", (Row("installed_size", "installed size", "MB"),), EAGER_TOO, "footprint.py"),
    Program(
        "trivial",
        (Row("null_run", "trivial Run", "µs"), Row("null_callable", "trivial callable", "µs")),
        EVERYBODY,
    ),
    Program(
        "chain",
        (Row("chain1000", "1,000 scalar ops in a chain", "µs"),),
        ("weft", "tensorflow", "torch"),
    ),
    Program("build", (Row("build_6000", "build 6,000 nodes and their gradient", "s"),)),
    Program("mlp", (Row("mlp_train", "MLP 784-512-512-10, batch 128, train step"),), EVERYBODY),
    Program(
        "cnn",
        (
            Row("cnn_train", "CIFAR convnet, batch 32, train step"),
            Row("cnn_infer", "the same, forward only"),
        ),
        EVERYBODY,
    ),
    Program("lstm", (Row("lstm_train", "LSTM language model, 2×200, train step"),), EAGER_TOO),
    Program(
        "word2vec",
        (Row("word2vec_train", "word2vec, 50,000×128, train step", "µs"),),
        EAGER_TOO,
    ),
    Program("elementwise", (Row("fused_ewise_1M", "elementwise, 1 M floats"),), EVERYBODY),
    Program(
        "two_products",
        (
            Row("two_products_in_turn", "two 1024² products, one after the other"),
            Row("two_products_at_once", "two 1024² products in one Run"),
        ),
    ),
    Program(
        "memory",
        (
            Row("memory_reuse_16MB", "16 MB from weft's pool", "µs"),
            Row("memory_reuse_touched_16MB", "16 MB from weft's pool, touched", "µs"),
            Row("memory_fresh_16MB", "16 MB from np.empty, touched", "µs"),
        ),
        WEFT,
        "memory.py",
    ),
    Program(
        "loop_scalar",
        (Row("loop_scalar", "while loop, 1,000 iterations", "µs"),),
        LOOPS,
        family="loops",
    ),
    Program(
        "loop_nested",
        (Row("loop_nested", "nested while loops, 50×50", "µs"),),
        LOOPS,
        family="loops",
    ),
    Program(
        "loop_products",
        (Row("loop_products", "while loop of 100 products 256²"),),
        LOOPS,
        family="loops",
    ),
    Program(
        "rnn",
        (
            Row("rnn_forward", "dynamic_rnn, LSTM 128, 100 steps, batch 32"),
            Row("rnn_gradient", "the same with gradients"),
        ),
        LOOPS,
        family="loops",
    ),
    Program(
        "rnn_lengths",
        (
            Row("rnn_lengths_forward", "dynamic_rnn, sequences of 1 to 100 steps"),
            Row("rnn_lengths_gradient", "the same with gradients"),
        ),
        LOOPS,
        family="loops",
    ),
    *plans("tanh", "a plain chain"),
    *plans("negative", "neg of neg of …"),
]


def weft(row: str) -> Callable[[Measured], float]:
    return lambda measured: measured[row]["weft"]


def quotient(over: str, under: str) -> Callable[[Measured], float]:
    return lambda measured: measured[over]["weft"] / measured[under]["weft"]


PROMISES = [
    Promise("import above NumPy's", 0.1, weft("import_above_numpy"), unit="s"),
    Promise("trivial Run", 5e-6, weft("null_run"), unit="s"),
    Promise("trivial callable", 2.5e-6, weft("null_callable"), unit="s"),
    Promise("1,000 scalar ops in a chain", 1e-3, weft("chain1000"), unit="s"),
    Promise("build 6,000 nodes and their gradient", 0.15, weft("build_6000"), unit="s"),
    Promise(
        "two products: at once over in turn",
        1.7,
        quotient("two_products_in_turn", "two_products_at_once"),
        at_least=True,
        unit="×",
    ),
    Promise(
        "16 MB: pool over fresh memory",
        20,
        quotient("memory_fresh_16MB", "memory_reuse_16MB"),
        at_least=True,
        unit="×",
    ),
    Promise(
        "plan, plain chain: 100,000 nodes over 10,000 (linear: 10, quadratic: 100)",
        20,
        quotient("plan_tanh_100000", "plan_tanh_10000"),
        unit="×",
    ),
    Promise(
        "plan, neg of neg: 100,000 nodes over 10,000 (linear: 10, quadratic: 100)",
        20,
        quotient("plan_negative_100000", "plan_negative_10000"),
        unit="×",
    ),
]
