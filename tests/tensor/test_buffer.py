"""Buffers: size, address, references, views and errors."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from weft_tensor.allocator import CpuAllocator
from weft_tensor.buffer import Buffer


def test_references_are_visible() -> None:
    pool = CpuAllocator()
    buffer = pool.allocate(64)
    assert buffer.ref_count == 1
    view = buffer.view((4,), np.dtype(np.float32))
    second = buffer.view((2, 2), np.dtype(np.float32), 16)
    assert buffer.ref_count == 3
    del view
    assert buffer.ref_count == 2
    del buffer
    assert pool.statistics().bytes_in_use == 64, "the view keeps it"
    del second
    assert pool.statistics().bytes_in_use == 0


def test_views_share_the_memory() -> None:
    buffer = Buffer(np.arange(6, dtype=np.int16))
    assert (len(buffer), buffer.nbytes, buffer.writable) == (12, 12, True)
    view = buffer.view((2,), np.dtype(np.int16), 4)
    assert view.tolist() == [2, 3]
    view[0] = 9
    assert memoryview(buffer.array).tobytes()[4] == 9
    assert f"{buffer.address:#x}" in repr(buffer)


@pytest.mark.parametrize(("shape", "offset"), [((7,), 0), ((1,), 11), ((1,), -1), ((1 << 40,), 0)])
def test_views_stay_inside(shape: tuple[int, ...], offset: int) -> None:
    buffer = Buffer(np.zeros(6, np.int16))
    with pytest.raises(ValueError, match="not inside a buffer of 12"):
        buffer.view(shape, np.dtype(np.int16), offset)


def test_refused_arrays() -> None:
    with pytest.raises(ValueError, match="contiguous"):
        Buffer(np.zeros((4, 4))[:, 1])
    with pytest.raises(ValueError, match="objects"):
        Buffer(np.array([b"a"], object))


def test_borrowed_memory_keeps_its_rights() -> None:
    frozen = np.zeros(3)
    frozen.flags.writeable = False
    buffer = Buffer(frozen)
    assert not buffer.writable
    assert not buffer.view((3,), np.dtype(np.float64)).flags.writeable
    assert Buffer(np.zeros(0)).address == 0


@pytest.mark.skipif(sys.version_info < (3, 12), reason="PEP 688 came with Python 3.12")
def test_buffer_protocol() -> None:
    buffer = Buffer(np.arange(4, dtype=np.uint8))
    assert bytes(memoryview(buffer)) == b"\0\1\2\3"
