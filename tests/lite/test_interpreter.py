"""The interpreter: values in and out, shapes, state of errors, memory."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from weft_testing.waiting import least_growth

import weft as wf
from weft_lite import Interpreter, errors, library
from weft_lite.convert import Converter


def convnet(batch: int | None = 1) -> tuple[bytes, Any]:
    """A file, and the full runtime's function that it is of."""
    with wf.Graph().as_default():
        wf.set_random_seed(1)
        x = wf.placeholder(wf.float32, [batch, 12, 12, 3], name="x")
        h = wf.layers.conv2d(x, 20, 3, 2, "same", activation=wf.nn.relu)
        depth = wf.get_variable("depth", [3, 3, 20, 1])
        h = wf.nn.depthwise_conv2d(h, depth, [1, 1, 1, 1], "SAME")
        h = wf.nn.relu6(wf.layers.batch_normalization(h, training=False))
        h = wf.layers.max_pooling2d(h, 2, 2) + 1.0
        y = wf.nn.softmax(wf.layers.dense(wf.layers.flatten(h), 10), name="y")
        session = wf.Session()
        session.run(wf.global_variables_initializer())
        bounds = None if batch else {"x": [4, 12, 12, 3]}
        content = Converter.from_session(session, [x], [y], bounds).convert()
        return content, lambda value: session.run(y, {x: value})


@pytest.fixture(scope="module")
def net() -> tuple[bytes, Any]:
    return convnet()


def image(batch: int = 1) -> Any:
    return np.random.default_rng(7).random((batch, 12, 12, 3), "float32")


def test_a_convnet_gives_what_the_full_runtime_gives(net: tuple[bytes, Any]) -> None:
    content, run = net
    interpreter = Interpreter(model_content=content)
    (given,), (taken,) = interpreter.get_input_details(), interpreter.get_output_details()
    assert (given["name"], given["shape"].tolist(), given["dtype"]) == (
        "x",
        [1, 12, 12, 3],
        np.float32,
    )
    interpreter.allocate_tensors()
    interpreter.set_tensor(given["index"], image())
    interpreter.invoke()
    np.testing.assert_allclose(interpreter.get_tensor(taken["index"]), run(image()), 1e-5)


def test_products_biases_and_activations_are_one_op(net: tuple[bytes, Any]) -> None:
    interpreter = Interpreter(model_content=net[0])
    count = interpreter._library.wl_op_count(interpreter._handle)
    assert count <= 8


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_threads_do_not_change_the_result(net: tuple[bytes, Any], threads: int) -> None:
    runner = Interpreter(model_content=net[0], num_threads=threads).get_signature_runner()
    for _ in range(20):
        assert runner(x=image())["y"].tobytes() == runner(x=image())["y"].tobytes()
    np.testing.assert_allclose(runner(x=image())["y"], net[1](image()), 1e-5)


def test_open_sizes_take_any_shape_within_the_bound() -> None:
    content, run = convnet(None)
    interpreter = Interpreter(model_content=content)
    for batch in (1, 4, 2, 3):
        interpreter.resize_tensor_input(0, [batch, 12, 12, 3])
        interpreter.allocate_tensors()
        got = interpreter.get_signature_runner()(x=image(batch))["y"]
        assert got.shape == (batch, 10)
        np.testing.assert_allclose(got, run(image(batch)), 1e-5)
    with pytest.raises(errors.OutOfRangeError, match="size 0 of the input may be at most 4, not 5"):
        interpreter.resize_tensor_input(0, [5, 12, 12, 3])
    with pytest.raises(errors.OutOfRangeError, match="size 3 of the input may be only 3, not 4"):
        interpreter.resize_tensor_input(0, [1, 12, 12, 4])
    with pytest.raises(errors.InvalidArgumentError, match="rank 4, not 1"):
        interpreter.resize_tensor_input(0, [3])


def test_a_value_above_the_present_shape_is_told_of_resizing() -> None:
    with wf.Graph().as_default() as graph:
        x = wf.placeholder(wf.float32, [None, 2], name="x")
        converter = Converter(graph, [x], [wf.exp(x)], {"x": [16, 2]})
    interpreter = Interpreter(model_content=converter.convert())
    message = (
        r"requires float32 \(16, 2\), got .*\(17, 2\); .* resize_tensor_input\(0, shape\) first"
    )
    with pytest.raises(errors.InvalidArgumentError, match=message):
        interpreter.set_tensor(0, np.zeros((17, 2), np.float32))
    with pytest.raises(wf.errors.InvalidArgumentError, match="or less along unknown sizes"):
        converter.convert(samples={"x": np.zeros((17, 2))})


def test_an_interpreter_is_usable_after_errors(net: tuple[bytes, Any]) -> None:
    interpreter = Interpreter(model_content=net[0])
    for value in (image(2), image().astype("float64"), image()[0]):
        with pytest.raises(errors.InvalidArgumentError, match=r"input 0 \('x'\) requires float32"):
            interpreter.set_tensor(0, value)
    with pytest.raises(errors.InvalidArgumentError, match="is not an input"):
        interpreter.set_tensor(5, image())
    with pytest.raises(errors.InvalidArgumentError, match="no tensor 999"):
        interpreter.get_tensor(999)
    with pytest.raises(errors.FailedPreconditionError, match=r"requires the inputs \['x'\]"):
        interpreter.get_signature_runner()(z=1)
    with pytest.raises(errors.InvalidArgumentError, match="there is no signature 'other'"):
        interpreter.get_signature_runner("other")
    got = interpreter.get_signature_runner()(x=image())["y"]
    np.testing.assert_allclose(got, net[1](image()), 1e-5)


def test_views_are_not_copies_and_keep_the_interpreter(net: tuple[bytes, Any]) -> None:
    interpreter = Interpreter(model_content=net[0])
    view = interpreter.tensor(0)()
    view[:] = image()
    interpreter.invoke()
    result = interpreter.tensor(interpreter.get_output_details()[0]["index"])()
    del interpreter
    gc.collect()
    np.testing.assert_allclose(result, net[1](image()), 1e-5)


def test_a_file_is_mapped(net: tuple[bytes, Any], tmp_path: Path) -> None:
    path = tmp_path / "net.weftlite"
    path.write_bytes(net[0])
    runners = [Interpreter(model_path=path).get_signature_runner() for _ in range(2)]
    results: list[Any] = []
    threads = [threading.Thread(target=lambda r=r: results.append(r(x=image()))) for r in runners]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results[0]["y"].tobytes() == results[1]["y"].tobytes()
    path.write_bytes(b"")
    with pytest.raises(errors.InvalidArgumentError, match="is empty"):
        Interpreter(model_path=path)
    with pytest.raises(errors.InvalidArgumentError, match="either"):
        Interpreter()


def test_a_limit_of_work_is_met(net: tuple[bytes, Any]) -> None:
    interpreter = Interpreter(model_content=net[0], work_limit=3)
    for _ in range(2):
        with pytest.raises(errors.DeadlineExceededError, match=r"op \d+ .*the limit of work, 3"):
            interpreter.invoke()


def test_ten_thousand_invocations_take_no_memory(net: tuple[bytes, Any]) -> None:
    interpreter = Interpreter(model_content=net[0])

    def more() -> None:
        for _ in range(2_500):
            interpreter.invoke()

    assert least_growth(more) < 4 * 4096


@pytest.mark.parametrize("content", ["net.weftlite", [1, 2]])
def test_content_that_is_no_buffer_is_refused(content: Any) -> None:
    with pytest.raises(
        errors.InvalidArgumentError, match="model_content must be bytes or an object with"
    ):
        Interpreter(model_content=content)


def test_numpy_is_not_needed(net: tuple[bytes, Any], tmp_path: Path) -> None:
    path = tmp_path / "net.weftlite"
    path.write_bytes(net[0])
    program = f"""
import sys
sys.modules["numpy"] = None
import array
from weft_lite import Interpreter
i = Interpreter({str(path)!r})
x = memoryview(array.array("f", [0.5] * 432)).cast("B").cast("f", (1, 12, 12, 3))
for wrong in ([[0.5]], x.cast("B").cast("f"), None):
    try:
        i.set_tensor(0, wrong)
    except ValueError as error:
        assert "requires float32 (1, 12, 12, 3), got" in str(error), error
    else:
        raise AssertionError(wrong)
i.set_tensor(0, x)
i.invoke()
print(i.get_tensor(i.get_output_details()[0]["index"]).tolist()[0])
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    got = [float(text) for text in done.stdout.strip("[]\n").split(",")]
    want = net[1](np.full((1, 12, 12, 3), 0.5, "float32"))[0]
    np.testing.assert_allclose(got, want, 1e-5)


def test_too_little_memory_is_refused_at_every_size(net: tuple[bytes, Any]) -> None:
    """The core takes its memory from the caller, so this is every allocation that can fail."""
    import ctypes

    interpreter = Interpreter(model_content=net[0])
    lib, file, error = interpreter._library, interpreter._file, library.Error()
    size = ctypes.c_size_t()
    at = ctypes.byref(error)
    lib.wl_query(file.address, file.size, None, ctypes.byref(size), at)
    block, start = (lambda made: (made, -(-ctypes.addressof(made) // 64) * 64))(
        ctypes.create_string_buffer(size.value + 64)
    )
    handle = ctypes.c_void_p()
    for less in (1, 64, 4096, size.value // 2, size.value):
        status = lib.wl_open(
            file.address, file.size, start, size.value - less, None, ctypes.byref(handle), at
        )
        assert status == errors.ResourceExhaustedError.code
        assert not handle
    assert (
        lib.wl_open(file.address, file.size, start, size.value, None, ctypes.byref(handle), at) == 0
    )
    assert block is not None


def test_unknown_ops_are_listed_all_together() -> None:
    with wf.Graph().as_default(), wf.Session() as session:
        x = wf.placeholder(wf.float32, [2, 2], name="x")
        y = wf.linalg.inv(wf.linalg.cholesky(x)) + wf.matrix_determinant(x)
        with pytest.raises(wf.errors.UnimplementedError) as caught:
            Converter.from_session(session, [x], [y]).convert()
    text = str(caught.value)
    assert "3 nodes are not supported by lite" in text
    for name in ("Cholesky", "MatrixInverse", "MatrixDeterminant", __file__):
        assert name in text
