"""Products of matrices in every form: a constant or a value, on either side, transposed or not."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import weft as wf
from weft_lite import Interpreter
from weft_lite.convert import Converter


@pytest.mark.parametrize("constant", ["left", "right", "neither"])
@pytest.mark.parametrize(("left", "right"), list(product([False, True], repeat=2)))
@pytest.mark.parametrize("shapes", [((5, 5), (5, 5)), ((4, 3), (3, 18)), ((2, 4, 3), (2, 3, 5))])
def test_a_product_is_that_of_numpy(
    constant: str, left: bool, right: bool, shapes: tuple[tuple[int, ...], tuple[int, ...]]
) -> None:
    """Square matrices have the same shape transposed, so that only values tell."""
    draw = np.random.default_rng(0)
    a, b = (draw.normal(size=shape).astype("float32") for shape in shapes)
    given = [
        np.ascontiguousarray(each.swapaxes(-1, -2)) if flip else each
        for each, flip in ((a, left), (b, right))
    ]
    with wf.Graph().as_default():
        ends = [
            wf.constant(each) if constant == side else wf.placeholder(wf.float32, each.shape)
            for side, each in zip(("left", "right"), given, strict=True)
        ]
        y = wf.matmul(*ends, transpose_a=left, transpose_b=right, name="y")
        inputs = [each for each in ends if each.op.type == "Placeholder"]
        content = Converter(y.graph, inputs, [y]).convert()
    interpreter = Interpreter(model_content=content)
    fed = [each for side, each in zip(("left", "right"), given, strict=True) if side != constant]
    for place, each in enumerate(fed):
        interpreter.set_tensor(interpreter.get_input_details()[place]["index"], each)
    interpreter.invoke()
    index = interpreter.get_output_details()[0]["index"]
    np.testing.assert_allclose(interpreter.get_tensor(index), a @ b, 1e-5, 1e-5)
