"""The rows of the table: their programs, subjects and bounds for weft."""

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
CHECKPOINTS = ("weft", "torch", "jax")


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    name: str
    title: str
    unit: str = "ms"


@dataclass(frozen=True)
class Program:
    """One child process, which may measure several rows."""

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


GPU_TITLES = {
    "gpu_mlp": "MLP, batch 128",
    "gpu_cnn": "CIFAR convnet, batch 32",
    "gpu_lstm": "LSTM language model",
    "gpu_alexnet": "AlexNet, batch 128",
    "gpu_overfeat": "OverFeat, batch 128",
    "gpu_vgg_a": "VGG-A, batch 64",
    "gpu_googlenet": "GoogLeNet, batch 128",
}
COMPILED_TITLES = {
    "gpu_layer_norm": "layer norm and GELU, 4 M floats",
    "gpu_adamw": "AdamW, 10 M parameters",
    "gpu_cross_entropy": "softmax cross-entropy and its gradient, 400 × 10,000",
    "gpu_block_128": "transformer block, training, batch 8, 128 tokens",
    "gpu_block_1024": "the same, 1,024 tokens",
    "gpu_gru": "GRU over 100 steps, training",
    "gpu_decode": "one token of a small GPT with a cache",
}
FUSED_TITLES = {
    "gpu_elementwise": "six elementwise ops on 16 M floats",
    "gpu_softmax": "softmax of 16,384 rows of 1,024",
    "gpu_softmax_long": "softmax of 4 rows of 4 M",
    "gpu_norm": "layer norm and GELU, 16,384 × 1,024",
    "gpu_sum": "sum of squares, 64 M floats",
    "gpu_columns": "sums of 64 columns of 1 M squares",
}
GPU_PROGRAMS = (
    [
        Program(
            name,
            (Row(name, f"{title}, on a GPU"),),
            ("weft",) if name == "gpu_decode" else ("weft", "torch", "torch-compile"),
            "gpu_rows.py",
        )
        for name, title in COMPILED_TITLES.items()
    ]
    + [
        Program(
            name,
            (Row(f"{name}_train", f"{title}, train step on a GPU"),),
            ("weft", "torch", "torch-compile"),
            "gpu_rows.py",
        )
        for name, title in GPU_TITLES.items()
    ]
    + [
        Program(
            name,
            (Row(name, f"{title}, on a GPU"),),
            ("weft", "torch", "torch-compile", "jax"),
            "gpu_fused.py",
        )
        for name, title in FUSED_TITLES.items()
    ]
)


def plans(op: str, title: str) -> list[Program]:
    """Return three sizes, which show growth; TensorFlow needs minutes for larger ones."""
    return [
        Program(
            f"plan_{op}_{count}",
            (Row(f"plan_{op}_{count}", f"first Run of {count:,} nodes, {title}"),),
            GRAPH_MODE if count == 1000 else WEFT,
        )
        for count in (1000, 10_000, 100_000)
    ]


MODELS = {
    "mlp": "digits: dropout, Adam, accuracy",
    "transformer_2": "transformer in small ops, 2 texts of 16",
    "transformer_16": "the same, 16 texts of 32",
    "actor_critic": "soft actor-critic",
    "vae": "variational autoencoder",
    "tagger": "tagger, LSTM in both directions",
    "text_cnn": "text convolutions",
    "gan": "generator against discriminator",
    "word2vec": "word2vec with noise-contrastive estimation",
}


NETWORKS = {
    "block_128": ("transformer block, 8×128 tokens of 256, train step", EVERYBODY),
    "block_1024": ("the same, 1,024 tokens", EVERYBODY),
    "gru_100": ("GRU 128 over 100 steps, batch 32, train step", EVERYBODY),
    "resnet_64": ("ResNet-18 at 64², batch 8, train step", GRAPH_MODE),
    "mobilenet_1": ("MobileNetV2 at 224², forward", GRAPH_MODE),
    "mobilenet_16": ("the same, batch 16", GRAPH_MODE),
    "inception_1": ("nine Inception modules at 128², forward", GRAPH_MODE),
    "inception_16": ("the same, batch 16", GRAPH_MODE),
    "adamw_10M": ("AdamW, 10 M parameters", EVERYBODY),
    "cross_entropy": ("softmax cross-entropy 400×10,000 and its gradient", EVERYBODY),
    "layer_norm_gelu": ("layer norm and GELU, 4 M floats", EVERYBODY),
    "products_16": ("1,000 products of 16²", EVERYBODY),
    "small_nodes_4000": ("4,000 small nodes", EAGER_TOO),
    "decode_token": ("a token of a small GPT, with a cache", GRAPH_MODE),
    "compile_1000": ("first step of 1,000 nodes, nothing kept", LOOPS),
}
STEPS = {
    "chain_10000": "10,000 scalar ops in a chain",
    "tiny_layers": "50 layers of 16 units, batch 8, Adam",
    "small_batch": "MLP 784-256-128-10, batch 16, train step",
    "messages": "two rounds of messages along 100,000 edges, with gradients",
    "stft": "log spectra of 4 × 65,536 samples",
    "stft_gradient": "the same with the gradient",
    "softmax_1000": "softmax of 1,024 rows of 1,000",
    "softmax_32": "softmax of 16,384 rows of 32",
    "lengths": "six batches of texts of other lengths, train steps",
}
STEP_PROGRAMS = [
    Program(name, (Row(name, title),), GRAPH_MODE, family="steps") for name, title in STEPS.items()
]
NETWORK_PROGRAMS = [
    Program(name, (Row(name, title),), subjects, family="networks")
    for name, (title, subjects) in NETWORKS.items()
]


def model(name: str) -> Program:
    row = Row(f"model_{name}", MODELS[name])
    return Program(row.name, (row,), family="models")


def records(kind: str) -> Program:
    rows = [
        Row(f"records_{kind}_{size}", f"TFRecord with {kind}, {title}, a record", "µs")
        for size, title in (("100B", "100 B"), ("10KB", "10 KB"), ("1MB", "1 MB"))
    ]
    return Program(f"records_{kind}", tuple(rows), family="records")


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
        "sparse_product",
        (
            Row("sparse_product", "sparse × dense, 60,000 values, 16 columns"),
            Row("sparse_product_gradient", "the same with the gradient"),
        ),
    ),
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
        "loop_nested_gradient",
        (Row("loop_nested_gradient", "nested while loops, up to 49 turns in 50, with gradients"),),
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
        "conditional",
        (Row("conditional", "two training steps with conds, one of two experts each"),),
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
    *[records(kind) for kind in ("bytes", "floats", "integers")],
    Program(
        "queue_batches",
        tuple(
            Row(f"queue_{kind}_1000", f"{title} queue, 1,000 scalars in and out", "µs")
            for kind, title in (
                ("fifo", "FIFO"),
                ("padding", "padding"),
                ("shuffle", "shuffling"),
                ("priority", "priority"),
            )
        ),
        family="queues",
    ),
    Program(
        "queue_singly",
        (
            Row("queue_single", "FIFO queue, one scalar in and out", "µs"),
            Row("queue_images", "32 images in one by one, out as a batch", "µs"),
        ),
        family="queues",
    ),
    Program(
        "queue_wake",
        (Row("queue_wake", "a dequeue that waits, from the call that enqueues", "µs"),),
        family="queues",
    ),
    Program(
        "queue_prefetch",
        (
            Row("queue_in_line", "a step and a reader as slow, one after the other"),
            Row("queue_prefetched", "the same through a queue"),
        ),
        family="queues",
    ),
    Program(
        "checkpoints",
        (
            Row("checkpoint_save_plain", "1 GB written and flushed plainly", "s"),
            Row("checkpoint_save", "checkpoint of 1 GB: save (torch.save, Orbax)", "s"),
            Row("checkpoint_restore_cached_plain", "1 GB read plainly from the cache", "s"),
            Row("checkpoint_restore_cached", "restore, from the system's cache", "s"),
            Row("checkpoint_restore_cold_plain", "1 GB read plainly from the disk", "s"),
            Row("checkpoint_restore_cold", "restore, from the disk", "s"),
            Row("checkpoint_async_copy", "1 GB copied in memory", "s"),
            Row("checkpoint_async_call", "asynchronous save: the call", "s"),
            Row("checkpoint_async_stop", "asynchronous save: how long training stops", "s"),
        ),
        CHECKPOINTS,
        "checkpoints.py",
    ),
    Program(
        "device_crossing",
        (Row("device_crossing", "a value crosses to another CPU device", "µs"),),
        family="devices",
    ),
    Program(
        "device_products",
        (
            Row("device_products_one", "two branches of products on one CPU device"),
            Row("device_products_two", "the same on two"),
        ),
        family="devices",
    ),
    Program(
        "deep",
        (
            Row("deep_kept", "64 layers, train step, all activations kept"),
            Row("deep_recomputed", "the same in two fifths of the memory"),
            Row("deep_kept_peak", "its peak, all kept", "MB"),
            Row("deep_recomputed_peak", "its peak in two fifths", "MB"),
        ),
        WEFT,
        family="devices",
    ),
    *[
        Program(
            f"place_{count}",
            (Row(f"place_{count}", f"{count:,} nodes placed and partitioned over 4 devices", "s"),),
            WEFT,
            family="devices",
        )
        for count in (9000, 18_000, 36_000)
    ],
    *map(model, MODELS),
    *NETWORK_PROGRAMS,
    *STEP_PROGRAMS,
    Program(
        "compile_large",
        tuple(
            Row(f"compile_large_{way}", f"first step of 31,000 nodes, {title}", "s")
            for way, title in (
                ("kernels", "by kernels"),
                ("cold", "compiled"),
                ("warm", "with its code on the disk"),
            )
        ),
        WEFT,
        "compile_large.py",
    ),
    *plans("tanh", "a plain chain"),
    *plans("negative", "neg of neg of …"),
]


def weft(row: str) -> Callable[[Measured], float]:
    return lambda measured: measured[row]["weft"]


def quotient(over: str, under: str) -> Callable[[Measured], float]:
    return lambda measured: measured[over]["weft"] / measured[under]["weft"]


def over_weft(row: str, peer: str) -> Callable[[Measured], float]:
    return lambda measured: measured[row][peer] / measured[row]["weft"]


def ahead(row: str, title: str, bound: float) -> Promise:
    """Return a bound on the ratio of TensorFlow's time to weft's."""
    return Promise(title, bound, over_weft(row, "tensorflow"), at_least=True, unit="×")


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
    ahead("loop_scalar", "while loop, TensorFlow's time over weft's", 0.25),
    ahead("rnn_forward", "dynamic_rnn, TensorFlow's time over weft's", 0.66),
    ahead("rnn_gradient", "the same with gradients", 0.66),
    *[
        ahead(f"records_bytes_{size}", f"records of {title}, TensorFlow's time over weft's", bound)
        for size, title, bound in (
            ("100B", "100 B", 0.33),
            ("10KB", "10 KB", 1),
            ("1MB", "1 MB", 1),
        )
    ],
    Promise("1,000 scalars through a queue", 5e-3, weft("queue_fifo_1000"), unit="s"),
    Promise("a dequeue that waits", 200e-6, weft("queue_wake"), unit="s"),
    Promise(
        "a reader as slow as the step: in line over prefetched",
        1.8,
        quotient("queue_in_line", "queue_prefetched"),
        at_least=True,
        unit="×",
    ),
    Promise(
        "checkpoint: plain writing over saving",
        0.9,
        quotient("checkpoint_save_plain", "checkpoint_save"),
        at_least=True,
        unit="×",
    ),
    Promise(
        "asynchronous save: stop over a copy in memory",
        1,
        quotient("checkpoint_async_stop", "checkpoint_async_copy"),
        unit="×",
    ),
    Promise("crossing to another CPU device", 15e-6, weft("device_crossing"), unit="s"),
    Promise(
        "products on one CPU device over two",
        1.7,
        quotient("device_products_one", "device_products_two"),
        at_least=True,
        unit="×",
    ),
    Promise(
        "64 layers: memory with recomputation over without",
        0.4,
        quotient("deep_recomputed_peak", "deep_kept_peak"),
        unit="×",
    ),
    Promise(
        "64 layers: time with recomputation over without",
        1.4,
        quotient("deep_recomputed", "deep_kept"),
        unit="×",
    ),
    Promise("36,000 nodes placed and partitioned", 2, weft("place_36000"), unit="s"),
    Promise(
        "placing: 36,000 nodes over 9,000 (linear: 4, quadratic: 16)",
        6,
        quotient("place_36000", "place_9000"),
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
