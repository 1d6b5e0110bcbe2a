"""Training on the device: a converted train step, with checkpoints of its variables."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft as wf
from weft_lite import Interpreter
from weft_lite.convert import Converter
from weft_lite.errors import DataLossError, FailedPreconditionError
from weft_lite.schema.codec import decode, encode

Array = Any
SIZE, CLASSES, BATCH = 8, 4, 16

OPTIMIZERS = {
    "sgd": lambda: wf.train.GradientDescentOptimizer(0.1),
    "momentum": lambda: wf.train.MomentumOptimizer(0.05, 0.9),
    "nesterov": lambda: wf.train.MomentumOptimizer(0.05, 0.9, use_nesterov=True),
    "adam": lambda: wf.train.AdamOptimizer(0.01),
    "adagrad": lambda: wf.train.AdagradOptimizer(0.1),
    "adadelta": lambda: wf.train.AdadeltaOptimizer(20.0),
    "rmsprop": lambda: wf.train.RMSPropOptimizer(0.005, momentum=0.5),
    "centered": lambda: wf.train.RMSPropOptimizer(0.005, centered=True),
    "ftrl": lambda: wf.train.FtrlOptimizer(0.1, l1_regularization_strength=0.001),
}


def data(seed: int = 0, batches: int = 12) -> list[tuple[Array, Array]]:
    """Batches of noisy images, each with a bright quarter that is its class."""
    random = np.random.default_rng(seed)
    result = []
    for _ in range(batches):
        labels = random.integers(0, CLASSES, BATCH)
        images = random.random((BATCH, SIZE, SIZE, 1), "float32")
        half = SIZE // 2
        for image, label in zip(images, labels, strict=True):
            row, column = divmod(int(label), 2)
            image[row * half : (row + 1) * half, column * half : (column + 1) * half] += 1
        result.append((images, labels))
    return result


class Model:
    """A small network, its train step and its prediction."""

    def __init__(self, optimizer: Any, layers: str, use_resource: bool = False) -> None:
        wf.set_random_seed(3)
        self.images = wf.placeholder(wf.float32, [BATCH, SIZE, SIZE, 1], name="images")
        self.labels = wf.placeholder(wf.int64, [BATCH], name="labels")
        with wf.variable_scope("net", use_resource=use_resource):
            h = self._body(layers)
            logits = wf.layers.dense(wf.layers.flatten(h), CLASSES)
        losses = wf.nn.sparse_softmax_cross_entropy_with_logits(labels=self.labels, logits=logits)
        train = optimizer.minimize(wf.reduce_mean(losses) + 1e-3 * wf.nn.l2_loss(logits))
        with wf.control_dependencies([train]):
            self.loss = wf.identity(wf.reduce_mean(losses), name="loss")
        self.classes = wf.argmax(logits, 1, name="classes")

    def _body(self, layers: str) -> Any:
        h: Any = self.images
        if layers == "dense":
            return wf.layers.dense(wf.layers.flatten(h), 16, activation=wf.nn.tanh)
        if layers == "pooled":
            h = wf.layers.conv2d(h, 6, 3, 1, "same", activation=wf.nn.relu)
            h = wf.layers.max_pooling2d(h, 3, 2, "same")
            h = wf.layers.conv2d(h, 8, 3, 2, "valid", activation=wf.nn.leaky_relu)
            return wf.layers.average_pooling2d(h, 2, 1, "same")
        h = wf.layers.separable_conv2d(h, 6, 3, 2, "same", depth_multiplier=2, activation=wf.nn.elu)
        return wf.layers.conv2d_transpose(h, 4, 3, 2, "same", activation=wf.nn.softplus)


def converted(session: Any, model: Model) -> tuple[Interpreter, Interpreter]:
    """Interpreters of the train step and of the prediction, which has no slots."""
    variables = wf.global_variables()
    inputs = [model.images, model.labels]
    step = wf.lite.Converter.from_session(session, inputs, [model.loss], variables=variables)
    predict = wf.lite.Converter.from_session(
        session, [model.images], [model.classes], variables=wf.trainable_variables()
    )
    return tuple(Interpreter(model_content=each.convert()) for each in (step, predict))  # type: ignore[return-value]


def losses(session: Any, model: Model, batches: list[tuple[Array, Array]]) -> list[float]:
    return [float(session.run(model.loss, {model.images: x, model.labels: y})) for x, y in batches]


def losses_on_device(interpreter: Interpreter, batches: list[tuple[Array, Array]]) -> list[float]:
    run = interpreter.get_signature_runner()
    return [float(run(images=x, labels=y)["loss"]) for x, y in batches]


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_the_device_trains_as_the_session_does(optimizer: str) -> None:
    with wf.Graph().as_default(), wf.Session() as session:
        model = Model(OPTIMIZERS[optimizer](), "dense")
        session.run(wf.global_variables_initializer())
        step, _ = converted(session, model)
        expected = losses(session, model, data())
    actual = losses_on_device(step, data())
    np.testing.assert_allclose(actual, expected, rtol=2e-4, atol=1e-6)
    assert actual[-1] < 0.9 * actual[0]


@pytest.mark.parametrize("use_resource", [False, True])
@pytest.mark.parametrize("layers", ["pooled", "separable"])
def test_convolutions_train_on_the_device(layers: str, use_resource: bool) -> None:
    with wf.Graph().as_default(), wf.Session() as session:
        model = Model(wf.train.AdamOptimizer(0.01), layers, use_resource)
        session.run(wf.global_variables_initializer())
        step, predict = converted(session, model)
        expected = losses(session, model, data(batches=40))
        images, labels = data(seed=1, batches=1)[0]
        classes = session.run(model.classes, {model.images: images})
    actual = losses_on_device(step, data(batches=40))
    np.testing.assert_allclose(actual, expected, rtol=5e-3, atol=1e-4)
    predict.restore_variables(step.save_variables())
    np.testing.assert_array_equal(predict.get_signature_runner()(images=images)["classes"], classes)
    assert np.mean(classes == labels) > 0.8


def test_batch_sizes_may_be_open_and_batch_normalization_trains() -> None:
    with wf.Graph().as_default(), wf.Session() as session:
        wf.set_random_seed(3)
        images = wf.placeholder(wf.float32, [None, SIZE, SIZE, 1], name="images")
        labels = wf.placeholder(wf.int64, [None], name="labels")
        h = wf.layers.conv2d(images, 6, 3, 2, activation=wf.nn.relu)
        h = wf.layers.batch_normalization(h, training=True, fused=False)
        logits = wf.layers.dense(wf.reshape(h, [-1, 54]), CLASSES)
        mean = wf.losses.sparse_softmax_cross_entropy(labels, logits)
        with wf.control_dependencies(wf.get_collection(wf.GraphKeys.UPDATE_OPS)):
            train = wf.train.MomentumOptimizer(0.05, 0.9).minimize(mean)
        with wf.control_dependencies([train]):
            loss = wf.identity(mean, name="loss")
        session.run(wf.global_variables_initializer())
        step = wf.lite.Converter.from_session(
            session,
            [images, labels],
            [loss],
            bounds={"images": [BATCH, SIZE, SIZE, 1], "labels": [BATCH]},
            variables=wf.global_variables(),
        )
        interpreter = Interpreter(model_content=step.convert())
        for size, (x, y) in zip([16, 7, 1, 16, 12, 16] * 3, data(batches=18), strict=True):
            for tensor, value in zip(interpreter.get_input_details(), (x, y), strict=True):
                interpreter.resize_tensor_input(tensor["index"], [size, *value.shape[1:]])
            actual = interpreter.get_signature_runner()(images=x[:size], labels=y[:size])["loss"]
            expected = session.run(loss, {images: x[:size], labels: y[:size]})
            np.testing.assert_allclose(actual, expected, rtol=1e-3, atol=1e-5)


@pytest.fixture
def trained() -> tuple[Interpreter, Interpreter]:
    with wf.Graph().as_default(), wf.Session() as session:
        model = Model(wf.train.AdamOptimizer(0.01), "dense")
        session.run(wf.global_variables_initializer())
        return converted(session, model)


def test_training_resumes_from_a_checkpoint_with_the_same_bits(
    trained: tuple[Interpreter, Interpreter],
) -> None:
    step, _ = trained
    batches = data()
    losses_on_device(step, batches[:6])
    checkpoint = step.save_variables()
    expected = losses_on_device(step, batches[6:])
    step.reset_all_variables()
    step.restore_variables(checkpoint)
    assert losses_on_device(step, batches[6:]) == expected


def test_a_checkpoint_written_in_part_changes_nothing(
    trained: tuple[Interpreter, Interpreter],
) -> None:
    step, _ = trained
    before = step.save_variables()
    losses_on_device(step, data(batches=1))
    after = step.save_variables()
    assert after != before
    random = np.random.default_rng(0)
    for cut in [0, 7, 15, 16, 40, *random.integers(0, len(before), 20)]:
        with pytest.raises(DataLossError, match="checkpoint"):
            step.restore_variables(before[:cut])
        torn = before[:cut] + after[cut:]
        if torn not in (before, after):
            with pytest.raises(DataLossError, match=r"checksum|begin"):
                step.restore_variables(torn)
    assert step.save_variables() == after


def test_a_checkpoint_of_other_variables_is_refused(
    trained: tuple[Interpreter, Interpreter],
) -> None:
    step, predict = trained
    before = step.save_variables()
    with pytest.raises(FailedPreconditionError, match="no variable"):
        step.restore_variables(predict.save_variables())
    with wf.Graph().as_default(), wf.Session() as session:
        other = wf.get_variable("net/dense/kernel", [2, 2])
        x = wf.placeholder(wf.float32, [2, 2], name="x")
        session.run(wf.global_variables_initializer())
        smaller = wf.lite.Converter.from_session(session, [x], [x @ other], variables=[other])
        interpreter = Interpreter(model_content=smaller.convert())
    with pytest.raises(FailedPreconditionError, match="net/dense/kernel has shape"):
        interpreter.restore_variables(before)
    assert step.save_variables() == before


def test_variables_of_one_name_cannot_be_saved() -> None:
    """No converter writes such a file; a restore would give both the value of the first."""
    with wf.Graph().as_default(), wf.Session() as session:
        first, second = wf.Variable([1.0, 2.0], name="first"), wf.Variable(3.0, name="second")
        step = wf.placeholder(wf.float32, [], name="step")
        total = wf.identity(wf.assign_add(second, step) + wf.assign_add(first, [1.0, 1.0]))
        session.run(wf.global_variables_initializer())
        content = Converter.from_session(session, [step], [total], variables=[first, second])
        model, weights = decode(content.convert())
    for tensor in model.tensors:
        if tensor.name == "second":
            tensor.name = "first"
    interpreter = Interpreter(model_content=encode(model, bytes(weights)))
    with pytest.raises(FailedPreconditionError, match="two variables of the file have the name"):
        interpreter.save_variables()
