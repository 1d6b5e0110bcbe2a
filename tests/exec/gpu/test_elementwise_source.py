"""CUDA kernels of scalar definitions: results on the stand-in's compiler."""

from __future__ import annotations

import numpy as np
import pytest
from cupy_standin import Machine

from weft_exec.gpu.elementwise_source import Elements, can_be_written
from weft_exec.gpu.generated import Program
from weft_graph.ir.op_def import lookup_op
from weft_graph.ir.scalar import Definition, attribute, where
from weft_tensor import dtypes


def expression(definition: Definition, name: str, count: int = 1):  # type: ignore[no-untyped-def]  # short
    dtype = dtypes.as_dtype(name)
    return definition.expression([dtype] * count, dtype), [dtype] * count


@pytest.mark.parametrize("name", ["float16", "float32", "float64", "int32", "uint8"])
def test_a_definition_is_computed_for_each_element(machine: Machine, name: str) -> None:
    import cupy

    definition = lookup_op("Relu6").traits.scalar
    assert definition is not None
    made, inputs = expression(definition, name)
    x = cupy.asarray(np.array([0, 1, 5, 6, 7, 100]).astype(name))
    y = cupy.zeros(6, name)
    Program(cupy, Elements("f", made, inputs, {}), {"T": name}).launch_elements("f", 6, x, y)
    assert y.get().tolist() == [0, 1, 5, 6, 6, 6]


def test_what_is_no_number_stays_none(machine: Machine) -> None:
    import cupy

    definition = lookup_op("Relu6").traits.scalar
    assert definition is not None
    made, inputs = expression(definition, "float32")
    x, y = cupy.asarray(np.array([np.nan, -np.inf], np.float32)), cupy.zeros(2, np.float32)
    Program(cupy, Elements("f", made, inputs, {}), {"T": "float32"}).launch_elements("f", 2, x, y)
    assert np.isnan(float(y[0])) and float(y[1]) == 0


def test_attributes_are_numbers_of_the_text() -> None:
    definition = Definition(lambda x: where(x > 0, x, x * attribute("alpha", x.dtype)))
    made, inputs = expression(definition, "float32")
    text = Elements("f", made, inputs, {"alpha": 0.25}).text({}, "int64")
    assert "a0 * (float)0.25" in text
    assert "typedef long long I;" in text


def test_what_cuda_has_no_words_for_is_left_to_the_array_module() -> None:
    conversion = lookup_op("Conj").traits.scalar
    assert conversion is not None
    complexes = [dtypes.complex64]
    assert not can_be_written(conversion.expression(complexes, dtypes.complex64), complexes)
    reals = [dtypes.float32, dtypes.float32]
    equal = lookup_op("Equal").traits.scalar
    assert equal is not None
    assert not can_be_written(equal.expression(reals, dtypes.bool_), reals)
