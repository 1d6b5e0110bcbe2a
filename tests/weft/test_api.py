"""The public names: existing names of TensorFlow 1.15 stay, with the same meaning."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft as wf

UPDATE = "run tests/weft/write_api.py, and look at what it changed"
api: dict[str, Any] = runpy.run_path(str(Path(__file__).with_name("write_api.py")))
PINNED: dict[tuple[str, str], set[str]] = api["read"]()
PRESENT = (api["HAVE"], api["BEYOND"])
NAMESPACES = sorted({place for place, state in PINNED if state in PRESENT})


@pytest.mark.parametrize(
    "namespace", sorted({place for place, state in PINNED if state in PRESENT})
)
def test_no_name_is_lost(namespace: str) -> None:
    pinned = set().union(*(PINNED.get((namespace, state), set()) for state in PRESENT))
    assert sorted(name for name in pinned if not api["has"](namespace, name)) == []


def test_every_namespace_is_pinned() -> None:
    assert sorted(set(api["namespaces"]()) - set(NAMESPACES)) == [], UPDATE


@pytest.mark.parametrize("namespace", NAMESPACES)
def test_every_name_is_pinned(namespace: str) -> None:
    pinned = set().union(*(PINNED.get((namespace, state), set()) for state in PRESENT))
    assert sorted(api["public"](namespace) - pinned) == [], UPDATE


def test_names_that_are_not_there_yet_are_not_there() -> None:
    came = [
        f"{namespace}.{name}"
        for (namespace, state), names in PINNED.items()
        for name in names
        if state not in PRESENT and api["has"](namespace, name)
    ]
    assert sorted(came) == [], UPDATE


def test_a_name_is_listed_once() -> None:
    names = [f"{place}.{name}" for (place, _), listed in PINNED.items() for name in listed]
    assert len(names) == len(set(names))


# --------------------------------------------------------------------- the right meanings


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("debugging.assert_all_finite", "verify_tensor_all_finite"),
        ("initializers.constant", "constant_initializer"),
        ("initializers.global_variables", "global_variables_initializer"),
        ("initializers.local_variables", "local_variables_initializer"),
        ("initializers.ones", "ones_initializer"),
        ("initializers.random_normal", "random_normal_initializer"),
        ("initializers.variables", "variables_initializer"),
        ("initializers.zeros", "zeros_initializer"),
        ("linalg.band_part", "matrix_band_part"),
        ("linalg.det", "matrix_determinant"),
        ("linalg.diag", "matrix_diag"),
        ("linalg.diag_part", "matrix_diag_part"),
        ("linalg.inv", "matrix_inverse"),
        ("linalg.set_diag", "matrix_set_diag"),
        ("linalg.solve", "matrix_solve"),
        ("linalg.tensor_diag", "diag"),
        ("linalg.transpose", "matrix_transpose"),
        ("math.divide_no_nan", "div_no_nan"),
        ("math.log_sigmoid", "log_sigmoid"),
        ("random.normal", "random_normal"),
        ("random.shuffle", "random_shuffle"),
        ("random.uniform", "random_uniform"),
        ("sparse.matmul", "sparse_tensor_dense_matmul"),
        ("sparse.placeholder", "sparse_placeholder"),
        ("sparse.retain", "sparse_retain"),
        ("sparse.segment_sum", "sparse_segment_sum"),
        ("sparse.to_dense", "sparse_tensor_to_dense"),
        ("strings.join", "string_join"),
        ("strings.reduce_join", "reduce_join"),
        ("strings.to_hash_bucket", "string_to_hash_bucket"),
        ("strings.to_number", "string_to_number"),
        ("version.VERSION", "VERSION"),
    ],
)
def test_a_name_in_a_namespace_is_a_function_with_another_name(name: str, function: str) -> None:
    namespace, _, last = name.partition(".")
    assert getattr(getattr(wf, namespace), last) is getattr(wf, function)


def test_strings_are_split_into_rows() -> None:
    assert wf.strings.split is not wf.split
    assert wf.strings.format is not format


# ------------------------------------------------------------------------ one use of each


def value(fetches: Any) -> Any:
    with wf.Session() as session:
        return session.run(fetches)


@pytest.fixture(autouse=True)
def _graph() -> Any:
    with wf.Graph().as_default():
        yield


USES = {
    "bitwise": (lambda: wf.bitwise.bitwise_and(6, 3), 2),
    "dtypes": (lambda: wf.dtypes.cast(wf.constant([1.5]), wf.dtypes.int32), [1]),
    "io": (lambda: wf.io.decode_base64(wf.io.encode_base64([b"weft"])), [b"weft"]),
    "linalg": (lambda: wf.linalg.diag([1.0, 2.0]), [[1.0, 0.0], [0.0, 2.0]]),
    "losses": (lambda: wf.losses.mean_squared_error([1.0], [3.0]), 4.0),
    "manip": (lambda: wf.manip.roll([1, 2, 3], 1, 0), [3, 1, 2]),
    "math": (lambda: wf.math.reciprocal_no_nan([0.0, 2.0]), [0.0, 0.5]),
    "nn": (lambda: wf.nn.relu([-1.0, 1.0]), [0.0, 1.0]),
    "random": (lambda: wf.shape(wf.random.normal([2, 3])), [2, 3]),
    "sparse": (
        lambda: wf.sparse.to_dense(wf.sparse.from_dense([[0, 1], [2, 0]])),
        [[0, 1], [2, 0]],
    ),
    "strings": (lambda: wf.strings.join([["a"], ["b"]], "-"), [b"a-b"]),
}


@pytest.mark.parametrize("namespace", USES)
def test_use_of_a_namespace(namespace: str) -> None:
    build, expected = USES[namespace]
    np.testing.assert_array_equal(value(build()), expected)


def test_use_of_debugging() -> None:
    checked = wf.debugging.assert_all_finite([1.0, np.inf], "the input")
    with pytest.raises(wf.errors.InvalidArgumentError, match="the input"):
        value(checked)


def test_use_of_initializers_layers_metrics_and_train() -> None:
    wf.set_random_seed(1)
    hidden = wf.layers.dense([[1.0, 2.0]], 1, kernel_initializer=wf.initializers.ones())
    mean, update = wf.metrics.mean(hidden)
    train = wf.train.GradientDescentOptimizer(0.5).minimize(wf.reduce_sum(hidden))
    with wf.Session() as session:
        session.run([wf.global_variables_initializer(), wf.local_variables_initializer()])
        assert session.run(update) == 3.0
        session.run(train)
        session.run(update)
        assert session.run(mean) == pytest.approx((3.0 + 0.0) / 2)


def test_use_of_graph_util_and_version() -> None:
    wf.constant(1.0, name="a")
    part = wf.graph_util.extract_sub_graph(wf.get_default_graph().as_graph_def(), ["a"])
    assert part.versions.producer == wf.version.GRAPH_DEF_VERSION == wf.GRAPH_DEF_VERSION
    assert wf.__version__ == wf.version.VERSION


def test_use_of_messages() -> None:
    feature = wf.train.Feature(int64_list=wf.train.Int64List(value=[3]))
    example = wf.train.Example(features=wf.train.Features(feature={"a": feature}))
    again = wf.train.Example.FromString(example.SerializeToString())
    assert again.features.feature["a"].int64_list.value == [3]
    assert wf.ConfigProto(allow_soft_placement=True).allow_soft_placement


def test_use_of_compat() -> None:
    assert wf.compat.as_bytes("é") == "é".encode()
    assert wf.compat.as_text(b"a") == wf.compat.as_str("a") == "a"
    assert wf.compat.v1 is wf


def test_use_of_logging(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(wf.logging.INFO, logger="weft"):
        wf.logging.info("step %d", 3)
        for _ in range(5):
            wf.logging.log_first_n(wf.logging.WARN, "twice at most", 2)
            wf.logging.log_every_n(wf.logging.WARN, "at the first and the fourth", 3)
    assert wf.get_logger() is wf.logging.get_logger()
    assert caplog.messages.count("twice at most") == 2
    assert caplog.messages.count("at the first and the fourth") == 2
    assert caplog.messages[0] == "step 3"


def test_use_of_flags_and_app(monkeypatch: pytest.MonkeyPatch) -> None:
    wf.app.flags.DEFINE_integer("weft_api_steps", 3, "how many")
    seen = []

    def main(arguments: list[str]) -> None:
        seen.append((wf.flags.FLAGS.weft_api_steps, arguments[1:]))

    try:
        with pytest.raises(SystemExit) as end:
            wf.app.run(main, ["program", "--weft_api_steps=5", "--unknown", "file"])
    finally:
        delattr(wf.flags.FLAGS, "weft_api_steps")
    assert not end.value.code
    assert seen == [(5, ["--unknown", "file"])]


def test_flags_are_parsed_where_one_is_read_first() -> None:
    program = """if True:
        import sys, weft as wf
        wf.flags.DEFINE_integer("steps", default_value=3, docstring="how many")
        print(wf.flags.FLAGS.steps)
        wf.flags.FLAGS._parse_flags()
        wf.app.run(lambda argv: print(wf.flags.FLAGS.steps, argv[1:]))
    """
    command = [sys.executable, "-c", program, "--steps=5", "--unknown", "file"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["5", "5 ['--unknown', 'file']"]


def test_use_of_test() -> None:
    case = wf.test.TestCase()
    case.assertAllClose(np.ones(3), [1, 1, 1])
    assert wf.test.mock.Mock()(1)
    assert wf.test.is_built_with_gpu_support() == wf.test.is_built_with_cuda()
