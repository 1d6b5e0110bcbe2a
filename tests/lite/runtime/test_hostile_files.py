"""Damaged and hostile files: each is rejected with a reason, or runs within its arena.

Checksums are recomputed after a mutation, so that later checks are reached.
"""

from __future__ import annotations

import copy
import ctypes
import random
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from weft_testing.parts import Parts
from weft_testing.workspace import ROOT

from weft_lite import Interpreter, compiling, errors, library
from weft_lite.interpreter import _File
from weft_lite.schema import codec, tables as t
from weft_lite.schema.enums import DataType, Layout, OpKind, Padding, Storage


def chain() -> t.Model:
    """Relu of x, then the sum with x: three values in the arena."""

    def tensor(name: str, offset: int) -> t.Tensor:
        return t.Tensor(name, DataType.FLOAT32, shape=[1, 16], offset=offset, size=64)

    ops = [
        t.Op(OpKind.Relu, [0], [1], t.ElementwiseOptions(), "relu"),
        t.Op(OpKind.Add, [1, 0], [2], t.ElementwiseOptions(), "add"),
    ]
    tensors = [tensor("x", 0), tensor("h", 64), tensor("y", 128)]
    signature = t.Signature("s", [t.Binding("x", 0)], [t.Binding("y", 2)])
    return t.Model(
        tensors=tensors, ops=ops, subgraphs=[t.Subgraph(0, 2, [0], [2])], arena_size=192,
        signatures=[signature],
    )  # fmt: skip


def endless() -> t.Model:
    """A loop whose condition is a constant that holds."""
    whole = chain()
    whole.tensors = [
        t.Tensor("x", DataType.FLOAT32, shape=[], offset=0, size=4),
        t.Tensor("v", DataType.FLOAT32, shape=[], offset=64, size=4),
        t.Tensor("next", DataType.FLOAT32, shape=[], offset=128, size=4),
        t.Tensor("y", DataType.FLOAT32, shape=[], offset=192, size=4),
        t.Tensor("yes", DataType.BOOL, Storage.CONSTANT, shape=[], offset=0, size=1),
    ]
    whole.ops = [
        t.Op(OpKind.While, [0], [3], t.WhileOptions(1, 2)),
        t.Op(OpKind.Abs, [1], [2], t.ElementwiseOptions()),
    ]
    whole.subgraphs = [
        t.Subgraph(0, 1, [0], [3]), t.Subgraph(1, 0, [], [4]), t.Subgraph(1, 1, [1], [2]),
    ]  # fmt: skip
    whole.signatures, whole.arena_size = [], 256
    return whole


def opened(model: t.Model, weights: bytes = b"\1" * 64) -> Interpreter:
    return Interpreter(model_content=codec.encode(model, weights), work_limit=100_000)


def changed(path: str, value: Any) -> t.Model:
    """The chain with one field changed: "tensors.0.shape", for example."""
    model = copy.deepcopy(chain())
    at: Any = model
    *steps, last = path.split(".")
    for step in steps:
        at = at[int(step)] if step.isdigit() else getattr(at, step)
    if last.isdigit():
        at[int(last)] = value
    else:
        setattr(at, last, value)
    return model


REFUSED = [
    ("tensors.1.offset", 0, "tensors 1 and 0 into the same bytes"),
    ("tensors.2.offset", 0, "tensors 2 and 0 into the same bytes"),
    ("tensors.1.offset", 65, "not aligned"),
    ("tensors.1.offset", 1 << 40, "not in its section"),
    ("tensors.1.offset", (1 << 64) - 64, "not in its section"),
    ("tensors.1.size", 60, "its shape has 64 bytes, and it has 60"),
    ("tensors.1.size", (1 << 64) - 1, "not in its section"),
    ("tensors.1.shape", [1 << 30, 1 << 30, 1 << 30], "larger than any memory"),
    ("tensors.1.shape", [0, 1 << 30, 1 << 30, 1 << 30], "larger than any memory"),
    ("tensors.1.shape", [-1, 16], "has no bound"),
    ("tensors.1.shape", [-2, 16], "has no bound"),
    ("tensors.1.shape", [1] * 9, "rank 9 is above 8"),
    ("tensors.1.shape", [16], "a result has rank 2, and the file says 1"),
    ("tensors.1.shape", [2, 8], r"size 0 of a result is 1, and the file says 2"),
    ("tensors.1.dtype", 99, "is unknown"),
    ("tensors.1.dtype", DataType.INT32, "the result is int32, not float32"),
    ("tensors.1.storage", Storage.VARIABLE, "made by an op, but it is a constant"),
    ("tensors.1.storage", 7, "is unknown"),
    ("tensors.1.quantization", t.Quantization([0.0]), "scale 0 is not positive"),
    ("tensors.1.quantization", t.Quantization([float("nan")]), "scale 0 is not positive"),
    ("tensors.1.quantization", t.Quantization([]), "has no scale"),
    ("tensors.1.quantization", t.Quantization([1.0], [5]), "zero point 5"),
    ("tensors.1.quantization", t.Quantization([1.0] * 3, [], 1), "not the size of an axis"),
    ("ops.0.kind", 9999, "no kernel for kind 9999"),
    ("ops.0.inputs", [7], "no tensor 7"),
    ("ops.0.inputs", [], "takes 1 to 1 operands, not 0"),
    ("ops.0.inputs", [-1], "no tensor -1"),
    ("ops.0.inputs", [2], "read before it is made"),
    ("ops.0.inputs", [1], "read before it is made"),
    ("ops.0.outputs", [0], "tensor 0 is made twice"),
    ("ops.0.outputs", [1, 2], "has 1 results, not 2"),
    ("ops.0.options", None, "options are missing"),
    ("ops.0.options", t.PoolOptions(), "options are missing or those of another"),
    ("ops.1.options", t.ElementwiseOptions(activation=9), "activation 9 is unknown"),
    ("subgraphs", [], "has no graph"),
    ("subgraphs.0.first_op", 1, "does not begin where the one before ends"),
    ("subgraphs.0.op_count", 1, "do not have all ops"),
    ("subgraphs.0.op_count", 1 << 31, "do not have all ops"),
    ("subgraphs.0.outputs", [9], "no tensor 9"),
    ("signatures.0.inputs.0.tensor", 77, "names tensor 77"),
    ("min_reader", 99, "needs version 99"),
    ("arena_size", 1 << 62, "larger than any memory"),
    ("arena_size", 64, "not in its section"),
]


@pytest.mark.parametrize(("path", "value", "words"), REFUSED)
def test_a_wrong_field_is_refused_with_what_and_where(path: str, value: Any, words: str) -> None:
    with pytest.raises(errors.LiteError, match=words):
        opened(changed(path, value))


def test_the_chain_itself_runs() -> None:
    interpreter = opened(chain())
    interpreter.set_tensor(0, [[-1.0] * 8 + [2.0] * 8])
    interpreter.invoke()
    assert interpreter.get_tensor(2).tolist() == [[-1.0] * 8 + [4.0] * 8]


def test_an_endless_loop_meets_the_limit_of_work() -> None:
    with pytest.raises(errors.DeadlineExceededError, match="the limit of work"):
        opened(endless()).invoke()


def test_taps_without_channels_cost_work() -> None:
    """Products of nothing, but pointers to 2^34 places."""
    x = t.Tensor("x", DataType.FLOAT32, shape=[1, 512, 512, 0])
    shape = [1, 1 << 16, 0, 16]
    filters = t.Tensor("f", DataType.FLOAT32, Storage.CONSTANT, Layout.PANELS, shape)
    y = t.Tensor("y", DataType.FLOAT32, shape=[1, 512, 512, 1], size=1 << 20)
    options = t.ConvOptions(padding=Padding.SAME, kernel_h=256, kernel_w=256, channels=1)
    model = t.Model(
        tensors=[x, filters, y], ops=[t.Op(OpKind.Conv2D, [0, 1], [2], options)],
        subgraphs=[t.Subgraph(0, 1, [0], [2])], arena_size=1 << 20, scratch_size=34 << 20,
    )  # fmt: skip
    with pytest.raises(errors.DeadlineExceededError, match="the limit of work"):
        opened(model).invoke()


def test_a_filter_that_gets_smaller_than_its_bound_is_refused() -> None:
    """Its bound fits the window; its size after a resize does not, and would be exceeded."""
    x = t.Tensor("x", DataType.FLOAT32, shape=[1, 4, 4, 2], size=128)
    y = t.Tensor("y", DataType.FLOAT32, shape=[1, 2, 2, 2], offset=128, size=32)
    filters = t.Tensor("f", DataType.FLOAT32, shape=[-1, 3, 2], offset=192, size=72)
    filters.bound = [3, 3, 2]
    options = t.ConvOptions(padding=Padding.VALID, kernel_h=3, kernel_w=3)
    model = t.Model(
        tensors=[x, filters, y], ops=[t.Op(OpKind.DepthwiseConv2D, [0, 1], [2], options)],
        subgraphs=[t.Subgraph(0, 1, [0, 1], [2])], arena_size=320, scratch_size=1 << 13,
    )  # fmt: skip
    interpreter = opened(model)
    interpreter.resize_tensor_input(1, [2, 3, 2])
    with pytest.raises(errors.LiteError, match=r"DepthwiseConv2D.*filter"):
        interpreter.allocate_tensors()
    interpreter.resize_tensor_input(1, [3, 3, 2])
    interpreter.set_tensor(0, [[[[1.0] * 2] * 4] * 4])
    interpreter.set_tensor(1, [[[1.0] * 2] * 3] * 3)
    interpreter.invoke()
    assert interpreter.get_tensor(2).tolist() == [[[[9.0] * 2] * 2] * 2]


def test_loops_around_an_empty_axis_are_not_run() -> None:
    shape = [1 << 20, 1 << 20, 0]
    axis = t.Tensor("axis", DataType.INT32, Storage.CONSTANT, shape=[], size=4)
    x, y = (t.Tensor(name, DataType.FLOAT32, shape=shape) for name in "xy")
    model = t.Model(
        tensors=[x, axis, y], ops=[t.Op(OpKind.Cumsum, [0, 1], [2], t.ReduceOptions())],
        subgraphs=[t.Subgraph(0, 1, [0], [2])],
    )  # fmt: skip
    interpreter = opened(model, (2).to_bytes(64, "little"))
    interpreter.invoke()
    assert interpreter.get_tensor(2).shape == tuple(shape)


def test_a_stride_may_be_as_large_as_numbers_go() -> None:
    def constant(name: str, offset: int) -> t.Tensor:
        return t.Tensor(name, DataType.INT64, Storage.CONSTANT, shape=[1], offset=offset, size=8)

    x = t.Tensor("x", DataType.FLOAT32, shape=[16], size=64)
    y = t.Tensor("y", DataType.FLOAT32, shape=[1], offset=64, size=4)
    tensors = [x, constant("begin", 0), constant("end", 64), constant("step", 128), y]
    op = t.Op(OpKind.StridedSlice, [0, 1, 2, 3], [4], t.StridedSliceOptions())
    model = t.Model(
        tensors=tensors, ops=[op],
        subgraphs=[t.Subgraph(0, 1, [0], [4])], arena_size=128,
    )  # fmt: skip
    for begin, end, step in [(2, 16, 2**63 - 1), (15, -17, -(2**63))]:
        numbers = (begin, end, step)
        weights = b"".join(n.to_bytes(64, "little", signed=True) for n in numbers)
        interpreter = opened(model, weights)
        interpreter.set_tensor(0, list(range(16)))
        interpreter.invoke()
        assert interpreter.get_tensor(4).tolist() == [begin]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda m: setattr(m.ops[0].options, "body_subgraph", 0), "calls subgraph 0"),
        (lambda m: setattr(m.ops[0].options, "body_subgraph", 1), "calls subgraph 1"),
        (lambda m: setattr(m.ops[0].options, "body_subgraph", 9), "calls subgraph 9"),
        (lambda m: setattr(m.ops[1], "inputs", [3]), "read before it is made"),
        (lambda m: setattr(m.subgraphs[0], "outputs", [2]), "read outside of the subgraph"),
        (lambda m: setattr(m.subgraphs[2], "inputs", []), "read before it is made"),
        (lambda m: setattr(m.tensors[2], "offset", 64), "into the same bytes"),
    ],
)
def test_a_wrong_loop_is_refused(change: Callable[[t.Model], None], words: str) -> None:
    model = endless()
    change(model)
    with pytest.raises(errors.LiteError, match=words):
        opened(model)


def test_checksums_and_lengths_are_compared() -> None:
    data = codec.encode(chain(), b"w" * 64)
    for position in (0, 9, 20, 41, 63, 64, 200):
        broken = bytearray(data)
        broken[position] ^= 1
        with pytest.raises(errors.DataLossError):
            Interpreter(model_content=broken)
    broken = bytearray(data)
    broken[-1] ^= 1
    file, error = _File(None, broken), library.Error()
    Interpreter(model_content=broken)  # checksums of weights are for who asks
    status = library.load().wl_verify_weights(file.address, file.size, ctypes.byref(error))
    assert (status, error.text) == (15, b"weights: the checksum does not fit")
    with Parts() as parts:
        for length in range(0, len(data), 7):
            with parts.part(length), pytest.raises(errors.DataLossError):
                Interpreter(model_content=data[:length] or b"\0")


def sealed(data: bytearray) -> bytes:
    """The file with checksums that fit, as far as its header lets them."""
    length = int.from_bytes(data[16:24], "little")
    data[40:44] = struct.pack("<I", zlib.crc32(data[64 : 64 + length]))
    data[60:64] = struct.pack("<I", zlib.crc32(data[:60]))
    return bytes(data)


def mutated(data: bytes, rng: random.Random) -> bytes:
    """A few bytes or words of the metadata changed, with numbers that do harm."""
    broken = bytearray(data)
    end = 64 + int.from_bytes(data[16:24], "little")
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        at = rng.randrange(64, end - 8)
        match rng.randrange(4):
            case 0:
                broken[at] ^= 1 << rng.randrange(8)
            case 1:
                broken[at] = rng.randrange(256)
            case 2:
                at -= at % 4
                word = rng.choice([0, 1, 2, 3, 4, 16, 64, 0x7FFFFFFF, 0xFFFFFFFF, 0x80000000])
                broken[at : at + 4] = struct.pack("<I", word)
            case _:
                other = rng.randrange(64, end - 8)
                broken[at : at + 4] = broken[other : other + 4]
    return sealed(broken)


def attempt(data: bytes) -> str:
    """Open and run a file: "ran", or the class of the error."""
    try:
        interpreter = Interpreter(model_content=data, work_limit=20_000)
        interpreter.invoke()
        return "ran"
    except errors.LiteError as error:
        assert str(error)
        return type(error).__name__


def fuzz(seeds: list[bytes], count: int, seed: int) -> dict[str, int]:
    """Return how often each outcome occurred."""
    rng, found = random.Random(seed), {}
    for i in range(count):
        kind = attempt(mutated(seeds[i % len(seeds)], rng))
        found[kind] = found.get(kind, 0) + 1
    return found


def seeds() -> list[bytes]:
    """Files of all that the format has."""
    corpus = Path(__file__).parent / "corpus"
    return [
        codec.encode(chain(), b"\1" * 64),
        codec.encode(endless(), b"\1" * 64),
        *(path.read_bytes() for path in sorted(corpus.glob("*.weftlite"))),
    ]


def test_random_changes_do_no_harm() -> None:
    found = fuzz(seeds(), 3000, 5)
    assert found["ran"] > 20
    assert found["DataLossError"] > 1000


@pytest.mark.long
def test_random_changes_do_no_harm_under_sanitizers(tmp_path: Path) -> None:
    library = tmp_path / "lib.so"
    flags = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-O1", "-g"]
    compiling.build(library, flags)
    found = subprocess.run(
        [*compiling.compiler(), "-print-file-name=libasan.so"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    paths = [str(Path(__file__).parent), str(ROOT / "tests" / "support")]
    program = (
        f"import sys; sys.path[:0] = {paths}\n"
        "import test_hostile_files as t; print(t.fuzz(t.seeds(), 100_000, 9))"
    )
    env = {
        "LD_PRELOAD": found.stdout.strip(), "ASAN_OPTIONS": "detect_leaks=0",
        "WEFT_LITE_LIBRARY": str(library),
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", program], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
