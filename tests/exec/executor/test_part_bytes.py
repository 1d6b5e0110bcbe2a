"""Parts as bytes: each is written, read and derived separately; results of the step are equal."""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import weft_accelerator
from hypothesis import example, given, settings, strategies as st
from weft_testing.loading import load
from weft_testing.workspace import ROOT

import weft as wf
from weft import errors
from weft_exec.config import SessionConfig
from weft_exec.devices.device import Device, make_devices
from weft_exec.executor.executable import Executable
from weft_exec.executor.overlap import Overlap
from weft_exec.executor.partitioned_step import derive_part
from weft_exec.kernels.registry import find_kernel
from weft_exec.resources.rendezvous import DEAD, Rendezvous, ends_of
from weft_exec.resources.resources import ResourceHandle, ResourceManager
from weft_exec.session.targets.local import LocalBackend
from weft_graph.functions.defun import Declare, Defun
from weft_graph.ir.graph import Graph
from weft_graph.ir.node import Node
from weft_graph.ir.op_def import lookup_op
from weft_graph.ir.step_graph import Part
from weft_graph.serialize import (
    graph_from_bytes,
    graph_to_bytes,
    part_from_bytes,
    part_to_bytes,
    value_from_bytes,
    value_to_bytes,
)
from weft_graph.serialize.layout import HEADER_SIZE, pack_header, unpack_header

PLACES = ("/device:CPU:0", "/device:CPU:1", "/device:CPU:2")


class Wire(Rendezvous):
    """A rendezvous like that of several processes: values travel through host memory."""

    def __init__(self, devices: dict[str, Device]) -> None:
        super().__init__()
        self._devices = devices

    def send(self, key: str, value: Any) -> None:
        source = self._devices[ends_of(key)[0]]
        super().send(key, value if value is DEAD else source.to_host(value))


class Sent(Executable):
    """The executables of parts that were read from bytes."""

    __slots__ = ("devices", "fetched", "parts")

    def __init__(
        self, parts: dict[str, Part], devices: dict[str, Device], feeds: int, fetched: int
    ) -> None:
        super().__init__([None] * feeds, range(feeds), (), None, None)
        self.devices = devices
        self.fetched = fetched
        self.parts = []
        for name, part in parts.items():
            read = part_from_bytes(part_to_bytes(part))
            read.step.graph.check_integrity()
            self.parts.append((read, derive_part(read, devices[name], Overlap.EVERYTHING)))

    def cancel(self) -> None:
        for _, executable in self.parts:
            executable.cancel()


class PartsBackend(LocalBackend):
    """Runs the parts of each step in threads of their own, joined by nothing but the wire."""

    made: list[Sent]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._inner = self.runner
        self.runner: Any = self
        PartsBackend.made = []

    def plan(self, feeds: Any, outputs: Any, targets: Any, size: int) -> Executable:
        parts = self.planner.parts(feeds, outputs, targets, size)
        devices = {device.name: device for device in self._devices}
        made = Sent(parts, devices, len(feeds), len(outputs))
        self.made.append(made)
        return made

    def run(self, executable: Any, slots: list[Any]) -> list[Any]:
        return self.run_watched(executable, slots)

    def run_watched(
        self, executable: Any, slots: list[Any], deadline: Any = None, trace: Any = None
    ) -> list[Any]:
        assert isinstance(executable, Sent)
        wire = Wire(executable.devices)
        found: list[Any] = [None] * executable.fetched

        def go(part: Part, mine: Executable) -> Sequence[Any]:
            own = mine.slots([slots[position] for position in part.feeds])
            return self._inner.run_watched(mine, own, deadline, trace, wire)

        with ThreadPoolExecutor(len(executable.parts)) as pool:
            runs = [pool.submit(go, *each) for each in executable.parts]
        for run, (part, _) in zip(runs, executable.parts, strict=True):
            for position, value in zip(part.fetches, run.result(), strict=True):
                found[position] = value
        return found

    def close(self) -> None:
        self.runner = self._inner
        super().close()


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("weft_exec.session.targets.local.LocalBackend", PartsBackend)
    with wf.Graph().as_default():
        yield


def config(**options: Any) -> Any:
    return wf.ConfigProto(device_count={"CPU": 3}, **options)


# ----------------------------------------------------------------------- the same values

RECORDER = load(ROOT / "tests" / "integration" / "control_flow" / "record.py")
PACKAGE = RECORDER.load()
ROWS = {name: row for name, row in PACKAGE.TABLE.items() if not row.refused}


def close_to(got: Any, wanted: Any, where: str) -> None:
    if isinstance(wanted, dict):
        assert got.keys() == wanted.keys(), where
        for key, value in wanted.items():
            close_to(got[key], value, f"{where}, {key}")
    elif isinstance(wanted, list | tuple):
        assert len(got) == len(wanted), where
        for i, value in enumerate(wanted):
            close_to(got[i], value, f"{where}, {i}")
    elif np.asarray(wanted).dtype.kind in "fc":
        np.testing.assert_allclose(got, wanted, rtol=1e-6, atol=1e-9, err_msg=where)


@pytest.mark.parametrize("name", list(ROWS)[::6])
def test_loops_and_conditionals_with_gradients(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    row = ROWS[name]
    order = min(row.order, 1)
    wanted = PACKAGE.run(wf, row, PACKAGE.build(wf, row, order), None)
    built = PACKAGE.build(wf, row, order)
    for node in built.graph.nodes:
        node.device = PLACES[zlib.crc32(node.name.encode()) % 3]
    monkeypatch.setattr("weft_exec.session.targets.local.LocalBackend", PartsBackend)
    found = PACKAGE.run(wf, row, built, config(allow_soft_placement=True))
    assert PartsBackend.made
    close_to(found, wanted, name)


def test_variables_strings_and_random_numbers(sent: None) -> None:
    x = wf.placeholder(wf.string, [None], name="x")
    with wf.device(PLACES[1]):
        v = wf.Variable([1.0, 2.0], name="v")
        w = wf.get_variable("w", initializer=[3.0], use_resource=True)
    with wf.device(PLACES[2]):
        text = wf.string_join([x, "é\0"], name="joined")
        noise = wf.random_uniform([3], seed=5)
    with wf.control_dependencies([v.assign_add([1.0, 1.0]), w.assign_add([1.0])]):
        total = wf.reduce_sum(v.read_value()) + wf.reduce_sum(w.read_value())
    with wf.Session(config=config()) as session:
        session.run(wf.global_variables_initializer())
        fed = {x: [b"a", b"\xff\0"]}
        got, joined, drawn = session.run([total, text, noise], fed)
        again = session.run([total, text, noise], fed)
        assert got == 9.0 and again[0] == 12.0
        assert joined.tolist() == [b"a\xc3\xa9\0", b"\xff\0\xc3\xa9\0"]
        assert drawn.shape == (3,) and not np.array_equal(drawn, again[2])
        assert len(PartsBackend.made[-1].parts) > 1
        with pytest.raises(errors.InvalidArgumentError) as caught:
            with wf.device(PLACES[2]):
                bad = wf.gather([1.0, 2.0], wf.cast(total, wf.int32), name="bad")
            session.run(bad)
        assert caught.value.node == "bad" and "test_part_bytes.py" in str(caught.value.line)


def test_recursive_functions(sent: None) -> None:
    declared = Declare("parts_power", [("x", wf.float32), ("n", wf.int32)], [("y", "float")])

    @Defun(wf.float32, wf.int32, func_name="parts_power")
    def power(x: Any, n: Any) -> Any:
        return wf.cond(n > 0, lambda: x * declared(x, n - 1), lambda: wf.ones_like(x))

    x = wf.placeholder(wf.float32, [])
    power.add_to_graph(wf.get_default_graph())
    with wf.device(PLACES[1]):
        y = power(x, 3)
    with wf.device(PLACES[2]):
        z = y + 1.0
    with wf.Session(config=config()) as session:
        assert session.run(z, {x: 2.0}) == 9.0


def test_what_no_branch_gives_is_an_error_that_names_it(sent: None) -> None:
    p = wf.placeholder(wf.bool, [])
    with wf.device(PLACES[1]):
        inner = wf.raw_ops.Switch(data=wf.constant(1.0), pred=p, name="either")[1] * 2.0
    with wf.Session(config=config()) as session:
        assert session.run(inner, {p: True}) == 2.0
        with pytest.raises(
            errors.InvalidArgumentError, match="branch that was not taken"
        ) as caught:
            session.run(inner, {p: False})
        assert caught.value.node == inner.op.name


def test_accelerators_take_what_comes_by_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft_exec.session.targets.local.LocalBackend", PartsBackend)
    weft_accelerator.plug_in(2)
    with wf.Graph().as_default():
        x = wf.placeholder(wf.float32, [None, 40])
        with wf.device("/device:ACCEL:0"):
            y = wf.matmul(x, wf.ones([40, 40]))
        with wf.device("/device:ACCEL:1"):
            z = wf.tanh(y) * 2.0
        assert find_kernel(z.op, "CPU") is not None
        proto = wf.ConfigProto(device_count={"ACCEL": 2})
        with wf.Session(config=proto) as session:
            found = session.run([y, z], {x: np.full((2, 40), 0.01)})
            assert len(PartsBackend.made[-1].parts) == 3
    np.testing.assert_allclose(found[0], np.full((2, 40), 0.4), rtol=1e-5)
    np.testing.assert_allclose(found[1], 2 * np.tanh(found[0]), rtol=1e-5)


# --------------------------------------------------------------------------- the form


def parts() -> dict[str, Part]:
    """Return the parts of a loop over two devices, by the public planning functions."""
    with wf.Graph().as_default():
        x = wf.placeholder(wf.float32, [4], name="x")

        def body(i: Any, a: Any) -> Any:
            with wf.device(PLACES[1]):
                b = wf.sin(a)
            return i + 1, b * 0.5

        y = wf.while_loop(lambda i, _: i < 5, body, [0, x])[1]
        with wf.Session(config=config()) as session:
            backend: Any = session._backend
            backend.extend(x.graph.nodes)
            found: dict[str, Part] = backend.planner.parts([x], [y, y], [])
    return found


def test_a_part_comes_back_as_it_was() -> None:
    for part in parts().values():
        back = part_from_bytes(part_to_bytes(part))
        assert [described(node) for node in back.nodes if node.type != "_Arg"] == [
            described(node) for node in part.nodes if node.type != "_Arg"
        ]
        assert (back.feeds, back.fetches) == (part.feeds, part.fetches)
        assert [f.name for f in back.step.feeds] == [f.name for f in part.step.feeds]
        assert [f.name for f in back.step.fetches] == [f.name for f in part.step.fetches]
        assert part_to_bytes(back) == part_to_bytes(part)


def described(node: Node) -> Any:
    inputs = tuple(source.name for source in node.inputs)
    controls = tuple(control.name for control in node.control_inputs)
    outputs = [(output.dtype, output.dims) for output in node.outputs]
    return node.name, node.type, inputs, controls, outputs, str(node.attrs), node.device, node.line


def graph_with(op: str, attrs: dict[str, Any], count: int = 1, **more: Any) -> bytes:
    """A graph with nodes that no planner makes."""
    graph = Graph()
    one = graph.add_node(
        lookup_op("Const"),
        "one",
        (),
        {"value": np.float32(1), "dtype": wf.float32},
        [wf.float32],
        [()],
    )
    definition = lookup_op(op)
    for i in range(count):
        inputs = (one.outputs[0],) * len(definition.inputs)
        types = [wf.float32] * len(definition.outputs)
        node = graph.add_node(definition, f"_n{i}", inputs, attrs, types, [None] * len(types))
        if more.get("waits"):
            graph.set_control_inputs(node, [one], reason="test")
    return graph_to_bytes(graph)


def backwards(op: str) -> bytes:
    """A graph in which a node precedes its inputs or control inputs."""
    graph = Graph()
    with graph.as_default():
        one = wf.placeholder(wf.float32, [], name="one").op
        with wf.control_dependencies([one] if op == "NoOp" else []):
            user = wf.no_op("user") if op == "NoOp" else wf.negative(one.outputs[0], name="user").op
    graph.reorder([user, one], reason="test")
    return graph_to_bytes(graph)


TRANSFER = {"tensor_name": "x", "send_device": "a", "recv_device": "b"}


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (
            graph_with("_Arg", {"T": wf.float32, "index": 0, "shape": ()}, 2),
            "the index 0 is used by another",
        ),
        (graph_with("_Fetch", {"T": wf.float32, "index": 3}, 2), "the index 3 is used by another"),
        (graph_with("_Fetch", {"T": wf.float32, "index": 3}, waits=True), "has control edges"),
        (graph_with("_Send", {"T": wf.float32, **TRANSFER, "tensor_name": b"\xff"}), "not text"),
        (
            graph_with("_Recv", {"tensor_type": wf.float32, **TRANSFER, "_depth": "deep"}),
            "_depth must be an integer",
        ),
        (
            graph_with("_Recv", {"tensor_type": wf.float32, **TRANSFER, "_depth": -1}),
            "_depth must be an integer",
        ),
        (
            graph_with("_Recv", {"tensor_type": wf.float32, **TRANSFER, "_guard": np.ones(2)}),
            "_guard must be an integer",
        ),
        (backwards("Neg"), "it precedes its input 'one'"),
        (backwards("NoOp"), "it precedes its input 'one'"),
        (graph_with("NoOp", {"_used": (1,)}), "_used must be indices of its 0 outputs"),
        (graph_with("NoOp", {"_used": 1}), "_used must be a list of integers"),
    ],
)
def test_graphs_that_are_no_parts_are_refused(data: bytes, said: str) -> None:
    with pytest.raises(errors.InvalidArgumentError, match=said):
        part_from_bytes(data)


def test_names_of_planning_are_for_parts_alone() -> None:
    data = graph_with("NoOp", {})
    assert [node.name for node in part_from_bytes(data).nodes] == ["one", "_n0"]
    with pytest.raises(errors.InvalidArgumentError, match="not a valid name"):
        graph_from_bytes(data)


REFUSED = (
    errors.DataLossError,
    errors.InvalidArgumentError,
    errors.NotFoundError,
    errors.UnimplementedError,
)


def test_damaged_bytes_are_refused_or_read_as_a_part() -> None:
    chance = random.Random(11)
    for part in parts().values():
        data = part_to_bytes(part)
        for cut in range(0, len(data), 211):
            with pytest.raises(errors.DataLossError if cut else Exception):
                part_from_bytes(data[:cut])
        for _ in range(150):
            damaged = bytearray(data)
            for _ in range(chance.randint(1, 3)):
                damaged[chance.randrange(len(data))] = chance.randrange(256)
            try:
                part_from_bytes(bytes(damaged)).step.graph.check_integrity()
            except REFUSED as error:
                assert str(error)


NUMBERS = st.sampled_from([0, 1, 2, 63, 64, 255, 2**16, 2**31 - 1, 2**31, 2**32 - 1])


@settings(max_examples=60)
@given(data=st.data())
def test_bytes_that_are_forged_with_their_checksums_are_refused_or_derived(
    forged: dict[str, tuple[bytes, Device]], data: st.DataObject
) -> None:
    """Deliberate damage with valid checksums: counts and indices that no writer produces."""
    whole, device = forged[data.draw(st.sampled_from(sorted(forged)))]
    length, blobs, _ = unpack_header(whole[:HEADER_SIZE], 0)
    metadata = bytearray(whole[HEADER_SIZE : HEADER_SIZE + length])
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, length // 4 - 1)) * 4
        metadata[place : place + 4] = data.draw(NUMBERS).to_bytes(4, "little")
    header = pack_header(length, blobs, zlib.crc32(metadata))
    try:
        part = part_from_bytes(header + metadata + whole[HEADER_SIZE + length :])
        part.step.graph.check_integrity()
        derive_part(part, device, Overlap.EVERYTHING)
    except REFUSED as error:
        assert str(error)


@pytest.fixture(scope="module")
def forged() -> dict[str, tuple[bytes, Device]]:
    """The parts of a loop over two devices, and a device for each."""
    config = SessionConfig(device_count={"CPU": 3, "GPU": 0})
    devices = make_devices(ResourceManager(), config)
    named = {device.name: device for device in devices}
    return {name: (part_to_bytes(part), named[name]) for name, part in parts().items()}


def test_values_as_bytes() -> None:
    values = [
        np.float32(1.5),
        np.arange(6, dtype=np.int64).reshape(2, 3)[:, ::-1],
        np.array([b"", b"\0\xff"], object),
        np.array(b"one", object),
        np.zeros((0, 3), np.bool_),
        np.array([1 + 2j]),
        np.array([1, 2], wf.bfloat16.as_numpy_dtype),
    ]
    for value in values:
        back = value_from_bytes(value_to_bytes(value))
        assert type(back) is type(value) and back.dtype == value.dtype
        np.testing.assert_array_equal(back, value)
    assert value_from_bytes(value_to_bytes(b"one")).shape == ()
    handle = ResourceHandle("/device:CPU:0", "", "v")
    for stays in (handle, np.array([handle], object), None):
        with pytest.raises(errors.InvalidArgumentError, match="cannot leave its process"):
            value_to_bytes(stays)


@given(st.binary(max_size=40))
@example(b"")
@example(b"\x08\x01\x12\x08\x12\x06\x08\x80\x80\x80\x80\x04")  # float32, 2**30 elements, no values
def test_bytes_that_are_no_value_are_refused(data: bytes) -> None:
    try:
        value = value_from_bytes(data)
    except errors.OpError as error:
        assert str(error)
    else:
        assert value.nbytes <= 8 * len(data)


def test_limits_are_those_of_the_reader() -> None:
    data = part_to_bytes(next(iter(parts().values())))
    with pytest.raises(errors.ResourceExhaustedError):
        part_from_bytes(data, max_nodes=3)
    with pytest.raises(errors.ResourceExhaustedError):
        part_from_bytes(data, max_bytes=100)
