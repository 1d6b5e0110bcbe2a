"""Long sums of the runtime lose as little as those of kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft as wf
from weft_lite import Interpreter
from weft_lite.convert import Converter


@pytest.mark.parametrize(
    ("shape", "build", "want"),
    [
        pytest.param((300_000,), lambda x: wf.reduce_sum(x, 0), 3e4, id="row"),
        pytest.param((300_000, 3), lambda x: wf.reduce_mean(x, 0), 0.1, id="columns"),
        pytest.param((1, 224, 224, 8), lambda x: wf.reduce_mean(x, [1, 2]), 0.1, id="image"),
        pytest.param((1, 300_000), wf.nn.softmax, 1 / 3e5, id="softmax"),
        pytest.param((1, 300_000), lambda x: wf.nn.l2_normalize(x, 1), 3e5**-0.5, id="norm"),
    ],
)
def test_errors_do_not_grow_with_the_length(
    shape: tuple[int, ...], build: Any, want: float
) -> None:
    with wf.Graph().as_default(), wf.Session() as session:
        x = wf.placeholder(wf.float32, shape, name="x")
        model = Converter.from_session(session, [x], [build(x)]).convert()
    interpreter = Interpreter(model_content=model)
    interpreter.allocate_tensors()
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], np.full(shape, 0.1, "f4"))
    interpreter.invoke()
    found = interpreter.get_tensor(interpreter.get_output_details()[0]["index"])
    np.testing.assert_allclose(found, want, rtol=3e-6)
