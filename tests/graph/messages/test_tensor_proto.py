"""TensorProto to and from arrays."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as hnp

from weft_graph import proto
from weft_graph.messages.tensor_proto import array_to_proto, make_ndarray, make_tensor_proto
from weft_tensor import dtypes, errors

PLAIN = [d for d in dtypes.ALL_DTYPES if d.is_numpy_compatible and d is not dtypes.string]


def _proto(dtype: int, shape: list[int], **values: Any) -> proto.TensorProto:
    message = proto.TensorProto(dtype=dtype, **values)
    for size in shape:
        message.tensor_shape.dim.add(size=size)
    return message


@pytest.mark.parametrize("dtype", PLAIN, ids=lambda d: d.name)
@pytest.mark.parametrize("shape", [(), (1,), (2, 3), (0, 4)], ids=str)
def test_round_trip(dtype: dtypes.DType, shape: tuple[int, ...]) -> None:
    count = int(np.prod(shape))
    array = (np.arange(count) % 2 + 1).reshape(shape).astype(dtype.numpy)
    message = array_to_proto(array, dtype)
    assert message.dtype == dtype.as_datatype_enum
    assert bool(message.tensor_content) == (count > 1)
    back = make_ndarray(proto.TensorProto.FromString(message.SerializeToString()))
    assert (back.dtype, back.shape) == (array.dtype, array.shape)
    assert back.tobytes() == array.tobytes()
    assert back.flags.writeable


@pytest.mark.parametrize("dtype", PLAIN, ids=lambda d: d.name)
def test_the_last_value_repeats(dtype: dtypes.DType) -> None:
    message = array_to_proto(np.array(1).astype(dtype.numpy), dtype)
    message.tensor_shape.dim.add(size=3)
    expected = np.ones(3).astype(dtype.numpy)
    np.testing.assert_array_equal(make_ndarray(message), expected)
    assert make_ndarray(message).dtype == dtype.numpy


def test_values_fields() -> None:
    np.testing.assert_array_equal(
        make_ndarray(_proto(proto.DT_INT16, [4], int_val=[1, -2])), np.int16([1, -2, -2, -2])
    )
    np.testing.assert_array_equal(
        make_ndarray(_proto(proto.DT_COMPLEX64, [2], scomplex_val=[1, 2])),
        np.complex64([1 + 2j, 1 + 2j]),
    )
    np.testing.assert_array_equal(
        make_ndarray(_proto(proto.DT_HALF, [2], half_val=[0x3C00, 0xC000])), np.float16([1, -2])
    )
    bfloat16 = make_ndarray(_proto(proto.DT_BFLOAT16, [1], half_val=[0x3F80]))
    assert bfloat16.dtype == dtypes.bfloat16.numpy and bfloat16[0] == 1
    np.testing.assert_array_equal(make_ndarray(_proto(proto.DT_FLOAT, [2])), np.zeros(2, "f4"))
    assert make_ndarray(_proto(proto.DT_STRING, [2], string_val=[b"a"])).tolist() == [b"a", b"a"]
    assert make_ndarray(_proto(proto.DT_STRING, [2])).tolist() == [b"", b""]
    np.testing.assert_array_equal(
        make_ndarray(_proto(proto.DT_UINT64, [1], uint64_val=[2**64 - 1])), np.uint64([2**64 - 1])
    )


def test_make_tensor_proto() -> None:
    assert make_tensor_proto(1.5).float_val == [1.5]
    assert make_tensor_proto([1, 2]).tensor_content == np.int32([1, 2]).tobytes()
    assert make_tensor_proto([1, 2], dtype=dtypes.int64).dtype == proto.DT_INT64
    assert make_tensor_proto(["a", b"b"]).string_val == [b"a", b"b"]
    splat = make_tensor_proto(3, shape=[1000, 1000])
    assert splat.ByteSize() < 40
    assert make_ndarray(splat).shape == (1000, 1000)
    assert [d.size for d in make_tensor_proto([1, 2, 3, 4], shape=[2, 2]).tensor_shape.dim] == [
        2,
        2,
    ]
    assert make_tensor_proto(splat) is splat
    assert make_tensor_proto(np.int8([1, 2]), dtypes.qint8).dtype == proto.DT_QINT8
    with pytest.raises(errors.InvalidArgumentError):
        make_tensor_proto([1, 2, 3], shape=[2])
    with pytest.raises(errors.InvalidArgumentError, match="must have shape"):
        make_tensor_proto(1, shape=[2], verify_shape=True)
    with pytest.raises(errors.InvalidArgumentError, match="must be known"):
        make_tensor_proto(1, shape=[None])
    with pytest.raises(errors.InvalidTypeError):
        make_tensor_proto("a", dtype=dtypes.float32)


@pytest.mark.parametrize(
    ("message", "kind", "text"),
    [
        (_proto(proto.DT_INT32, [2], int_val=[1, 2, 3]), ValueError, "3 values"),
        (_proto(proto.DT_INT32, [2], tensor_content=b"\0" * 9), ValueError, "takes 8 bytes"),
        (_proto(proto.DT_INT32, [-1], int_val=[1]), ValueError, "must be known"),
        (_proto(proto.DT_INT32, [1] * 65, int_val=[1]), ValueError, "rank 65"),
        (_proto(proto.DT_INT8, [1], int_val=[300]), ValueError, "300"),
        (_proto(proto.DT_HALF, [1], half_val=[70000]), ValueError, "70000"),
        (_proto(proto.DT_INT32, [2**40], int_val=[1]), ValueError, "would expand to"),
        (_proto(proto.DT_INT32, [2**31, 2**31, 0]), ValueError, "too many elements"),
        (_proto(proto.DT_INT32, [2**62, 2**62], int_val=[1]), ValueError, "too many elements"),
        (_proto(proto.DT_BOOL, [2], tensor_content=b"\1\2"), ValueError, "bool tensor is 2"),
        (_proto(proto.DT_STRING, [2], tensor_content=b"ab"), ValueError, "of 195 bytes"),
        (_proto(proto.DT_COMPLEX64, [1], scomplex_val=[1]), ValueError, "1 values"),
        (_proto(proto.DT_RESOURCE, [1]), TypeError, "arrays of resource are not supported"),
        (_proto(proto.DT_INVALID, []), TypeError, "DT_INVALID is unknown"),
        (_proto(12345, []), TypeError, "12345 is unknown"),
    ],
)
def test_refusals(message: proto.TensorProto, kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=text) as caught:
        make_ndarray(message)
    assert isinstance(caught.value, errors.InvalidArgumentError)


def test_too_large_for_a_message() -> None:
    array = np.broadcast_to(np.float64(1), (2**28, 1))
    with pytest.raises(errors.InvalidArgumentError, match="2 GiB"):
        array_to_proto(array, dtypes.float64)


@given(
    hnp.arrays(st.sampled_from(["f4", "f8", "i2", "u4", "c8", "?"]), hnp.array_shapes(min_side=0))
)
def test_any_array(array: np.ndarray) -> None:
    back = make_ndarray(array_to_proto(array, dtypes.from_numpy(array.dtype)))
    assert (back.dtype, back.shape) == (array.dtype, array.shape)
    assert back.tobytes() == array.tobytes()


@given(st.binary(max_size=120))
def test_garbage(garbage: bytes) -> None:
    from google.protobuf.message import DecodeError

    try:
        message = proto.TensorProto.FromString(garbage)
    except DecodeError:
        return
    with contextlib.suppress(errors.InvalidArgumentError):
        make_ndarray(message)
