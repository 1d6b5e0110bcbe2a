"""Session.run as its callers see it."""

from __future__ import annotations

import collections
import gc
import logging
import math
import threading
import time
from typing import Any

import numpy as np
import pytest
from weft_testing.waiting import wait_until

import weft as wf
from weft import errors


@pytest.fixture(autouse=True)
def graph() -> wf.Graph:
    with wf.Graph().as_default() as made:
        yield made


class TestFetches:
    def test_structures_keep_their_types(self) -> None:
        Pair = collections.namedtuple("Pair", "a b")
        x = wf.constant(2.0, name="x")
        y = wf.constant([1, 2], name="y")
        with wf.Session() as session:
            result = session.run({"p": Pair(x, [y, x]), "t": (x,), "n": x.op})
        assert isinstance(result["p"], Pair)
        assert result["p"].a == 2.0 and result["p"].b[1] == 2.0
        np.testing.assert_array_equal(result["p"].b[0], [1, 2])
        assert result["t"] == (2.0,) and result["n"] is None

    def test_names_and_ports(self) -> None:
        parts = wf.split(wf.constant([1.0, 2.0]), 2, name="bar")
        with wf.Session() as session:
            assert session.run("bar:1")[0] == 2.0
            assert session.run(parts[0].op.name) is None

    def test_rank_zero_results_are_scalars(self) -> None:
        with wf.Session() as session:
            assert type(session.run(wf.constant(1.5) + 1.0)) is np.float32
            assert session.run(wf.constant("text")) == b"text"

    def test_an_unknown_fetch_says_what_is_near(self) -> None:
        wf.constant(1.0, name="weights")
        with wf.Session() as session:
            with pytest.raises(errors.NotFoundError, match="weights"):
                session.run("weight:0")
            with pytest.raises(errors.NotFoundError, match="1 outputs"):
                session.run("weights:1")
            with pytest.raises(TypeError):
                session.run(None)
            with pytest.raises(TypeError):
                session.run(3.5)
            assert session.run("weights:0") == 1.0

    def test_a_tensor_of_another_graph_is_refused(self) -> None:
        with wf.Graph().as_default():
            other = wf.constant(1.0)
        mine = wf.constant(1.0)
        with wf.Session() as session:
            with pytest.raises(ValueError, match="different graph"):
                session.run(other)
            with pytest.raises(ValueError, match="different graph"):
                session.run(mine, {other: 1.0})
            assert session.run(mine) == 1.0


class TestFeeds:
    def test_any_edge_can_be_fed(self) -> None:
        x = wf.placeholder(wf.float32, [])
        y = wf.square(x, name="y")
        z = y + 1.0
        with wf.Session() as session:
            assert session.run(z, {y: 10.0}) == 11.0
            assert session.run(z, {"y:0": 10.0}) == 11.0
            assert session.run(z, {x: 3.0}) == 10.0
            assert session.run([y, z], {y: 5.0}) == [5.0, 6.0]

    def test_a_fed_node_is_not_run_for_those_that_wait_for_it(self) -> None:
        x = wf.placeholder(wf.float32, [], name="x")
        with wf.control_dependencies([x]):
            y = wf.constant(2.0)
        with wf.Session() as session:
            assert session.run(y, {x: 1.0}) == 2.0
            with pytest.raises(errors.InvalidArgumentError, match="x"):
                session.run(y)

    @pytest.mark.parametrize("optimize", [True, False])
    def test_a_fed_constant_is_not_folded(self, optimize: bool) -> None:
        level = 0 if optimize else -1
        config = wf.ConfigProto()
        config.graph_options.optimizer_options.opt_level = level
        c = wf.constant(2.0)
        y = c * 3.0
        with wf.Session(config=config) as session:
            assert session.run(y) == 6.0
            assert session.run(y, {c: 5.0}) == 15.0

    @pytest.mark.parametrize("known", [[2, 3], [None, 3], None])
    def test_a_sparse_tensor_is_fed_whatever_is_known_of_its_shape(self, known: Any) -> None:
        x = wf.sparse.placeholder(wf.float32, known)
        dense = wf.sparse.to_dense(x)
        with wf.Session() as session:
            value = wf.SparseTensorValue([[0, 1]], [5.0], [2, 3])
            np.testing.assert_array_equal(session.run(dense, {x: value}), [[0, 5, 0], [0, 0, 0]])

    def test_a_sparse_tensor_is_not_fed_another_shape_than_the_graph_was_built_upon(self) -> None:
        x = wf.sparse.placeholder(wf.float32, [2, 3])
        assert wf.sparse.to_dense(x).shape == (2, 3)
        value = wf.SparseTensorValue([[0, 1]], [5.0], [4, 3])
        message = r"shape \[2, 3\].* \[4, 3\]"
        with wf.Session() as session, pytest.raises(errors.InvalidArgumentError, match=message):
            session.run(x.values, {x: value})

    def test_wrong_feeds_say_required_and_got(self) -> None:
        x = wf.placeholder(wf.float32, [None, 3], name="x")
        n = wf.placeholder(wf.int32, [], name="n")
        y = wf.reduce_sum(x) + wf.cast(n, wf.float32)
        with wf.Session() as session:
            with pytest.raises(ValueError, match=r"\[\?,3\].*\[2,2\]"):
                session.run(y, {x: np.zeros([2, 2]), n: 1})
            with pytest.raises(TypeError, match="int32"):
                session.run(y, {x: np.zeros([2, 3]), n: "1"})
            with pytest.raises(ValueError, match="nan does not fit in int32"):
                session.run(y, {x: np.zeros([2, 3]), n: math.nan})
            with pytest.raises(ValueError, match="does not fit in int32"):
                session.run(y, {x: np.zeros([2, 3]), n: 2**40})
            with pytest.raises(errors.InvalidArgumentError, match=r"must.*fe|fed") as caught:
                session.run(y, {n: 1})
            assert caught.value.node == "x" and "test_session.py" in str(caught.value.line)
            with pytest.raises(ValueError, match="node:port"):
                session.run(y, {"nonsense": 1})
            assert session.run(y, {x: [[1, 2, 3]], n: 1}) == 7.0

    def test_numbers_of_another_kind_are_taken(self, caplog: pytest.LogCaptureFixture) -> None:
        kinds = {
            wf.int32: ([1.0, 2.5, -2.5], [1, 2, -2]),
            wf.uint8: (np.array([-0.5, 255.9, True], object), [0, 255, 1]),
            wf.float32: (np.array([1, 2.5, True], object), [1.0, 2.5, 1.0]),
            wf.bool: ([0, 1, 1], [False, True, True]),
            wf.complex64: ([1, 2.0, True], [1, 2, 1]),
            wf.bfloat16: (np.array([1 + 0j, 2, 3]), [1, 2, 3]),
        }
        with wf.Session() as session:
            for _ in range(2):
                for dtype, (value, expected) in kinds.items():
                    x = wf.placeholder(dtype, [3], name=dtype.name)
                    assert session.run(wf.identity(x), {x: value}).tolist() == expected
        cut = [message for message in caplog.messages if "with loss" in message]
        assert [message.split()[0] for message in cut] == [
            f"{name}:0" for name in ("int32", "uint8", "int32_1", "uint8_1")
        ]
        assert "2.5 becomes 2" in cut[0] and "test_session.py" in cut[0]

    def test_what_is_lost_is_said_once_for_a_line(self, caplog: pytest.LogCaptureFixture) -> None:
        x = wf.placeholder(wf.int32, [])
        with wf.Session() as session:
            for value in (1.0, 2.5, 3.5):
                session.run(wf.identity(x), {x: value})
        assert len([message for message in caplog.messages if "with loss" in message]) == 1

    def test_a_fed_array_is_borrowed_and_copied_when_stored(self) -> None:
        x = wf.placeholder(wf.float32, [2])
        v = wf.Variable([0.0, 0.0])
        assign = wf.assign(v, x)
        value = np.array([1.0, 2.0], np.float32)
        with wf.Session() as session:
            session.run(assign.op, {x: value})
            value[:] = 9
            np.testing.assert_array_equal(session.run(v), [1.0, 2.0])

    def test_what_is_fetched_belongs_to_the_caller(self) -> None:
        v = wf.Variable(np.ones([4, 4], np.float32))
        c = wf.constant(np.ones([4, 4], np.float32))
        x = wf.placeholder(wf.float32, [4, 4])
        shared = [v, v.value(), wf.reshape(v, [16]), c, wf.transpose(c), x, wf.identity(x)]
        fed = np.ones([4, 4], np.float32)
        with wf.Session() as session:
            session.run(v.initializer)
            for result in session.run(shared, {x: fed}):
                result[...] = 7
            for result in session.run(shared, {x: fed}):
                assert (result == 1).all()
        assert (fed == 1).all()


class TestErrors:
    def test_a_kernel_error_says_where_and_the_session_goes_on(self) -> None:
        a = wf.placeholder(wf.int32, [None], name="a")
        b = wf.placeholder(wf.int32, [None], name="b")
        quotient = wf.floordiv(a, b, name="quotient")
        with wf.Session() as session:
            with pytest.raises(errors.InvalidArgumentError, match="zero") as caught:
                session.run(quotient, {a: [1, 2], b: [1, 0]})
            error = caught.value
            assert error.op.type == "FloorDiv" and error.node == "quotient"
            assert error.device and "CPU:0" in error.device
            assert list(error.inputs) == ["int32[2]", "int32[2]"]
            assert "test_session.py" in str(error.line)
            np.testing.assert_array_equal(session.run(quotient, {a: [5], b: [2]}), [2])

    def test_shapes_that_only_the_step_knows(self) -> None:
        a = wf.placeholder(wf.float32, [None, None])
        product = wf.matmul(a, wf.ones([3, 2]))
        with wf.Session() as session:
            with pytest.raises(errors.InvalidArgumentError) as caught:
                session.run(product, {a: np.ones([2, 4])})
            assert caught.value.op.type == "MatMul"
            assert list(caught.value.inputs) == ["float32[2,4]", "float32[3,2]"]

    def test_an_uninitialized_variable_is_named(self) -> None:
        v = wf.Variable(1.0, name="weights")
        with wf.Session() as session:
            with pytest.raises(errors.FailedPreconditionError, match="uninitialized value weights"):
                session.run(v * 2.0)
            with pytest.raises(errors.FailedPreconditionError, match="weights"):
                session.run(v)
            session.run(v.initializer)
            assert session.run(v * 2.0) == 2.0

    def test_a_cycle_without_loop_ops_is_named(self, graph: wf.Graph) -> None:
        a = wf.placeholder(wf.float32, [], name="a")
        b = wf.negative(a, name="b")
        c = wf.exp(b, name="c")
        graph.replace_input(b.op, 0, c, reason="test")
        cycle = pytest.raises(errors.InvalidArgumentError, match=r"cycle.*b.*c")
        with wf.Session() as session, cycle:
            session.run(c)

    def test_a_closed_session_refuses(self) -> None:
        x = wf.constant(1.0)
        session = wf.Session()
        call = session.make_callable(x)
        assert session.run(x) == 1.0 and call() == 1.0
        session.close()
        session.close()
        for refused in (lambda: session.run(x), call, session.list_devices):
            with pytest.raises(errors.FailedPreconditionError, match="closed"):
                refused()

    def test_an_edit_of_a_node_that_a_session_has_is_refused(self, graph: wf.Graph) -> None:
        a = wf.constant(1.0)
        b = wf.negative(a, name="b")
        with wf.Session() as session:
            session.run(b)
            with pytest.raises(errors.FailedPreconditionError, match="b"):
                graph.replace_input(b.op, 0, wf.constant(2.0), reason="test")

    def test_a_step_past_its_timeout(self) -> None:
        slow = wf.py_func(lambda: time.sleep(0.05) or np.float32(1), [], wf.float32, name="slow")
        y = slow
        for _ in range(5):
            with wf.control_dependencies([y]):
                y = y + wf.py_func(lambda: time.sleep(0.05) or np.float32(1), [], wf.float32)
        options = wf.RunOptions(timeout_in_ms=60)
        with wf.Session() as session:
            with pytest.raises(errors.DeadlineExceededError):
                session.run(y, options=options)
            assert session.run(y) == 6.0

    @pytest.mark.parametrize("count", [1, 2])
    def test_the_last_kernel_may_be_the_slow_one(self, count: int) -> None:
        def slow() -> np.float32:
            time.sleep(0.3)
            return np.float32(1)

        fetches = [wf.py_func(slow, [], wf.float32, name=f"slow{i}") for i in range(count)]
        with wf.Session() as session:
            with pytest.raises(errors.DeadlineExceededError, match="slow"):
                session.run(fetches, options=wf.RunOptions(timeout_in_ms=30))
            assert session.run(fetches) == [1.0] * count

    def test_a_request_for_a_device_that_is_not_there(self) -> None:
        with wf.device("/gpu:0"):
            folded = wf.constant(1.0) + 2.0
        with wf.Session() as session, pytest.raises(errors.InvalidArgumentError, match="GPU"):
            session.run(folded)
        with wf.Session(config=wf.ConfigProto(allow_soft_placement=True)) as session:
            assert session.run(folded) == 3.0

    def test_an_uninitialized_variable_that_is_fetched_names_its_device(self) -> None:
        v = wf.Variable(1.0)
        with wf.Session() as s, pytest.raises(errors.FailedPreconditionError) as caught:
            s.run(v)
        assert caught.value.device and "CPU:0" in caught.value.device


class TestGrowth:
    def test_ops_added_between_runs_are_said_once(self, caplog: pytest.LogCaptureFixture) -> None:
        x = wf.constant(1.0)
        with wf.Session() as session, caplog.at_level(logging.WARNING, "weft"):
            for _ in range(30):
                session.run(x + 1.0)
        said = [r.getMessage() for r in caplog.records if "grows between runs" in r.getMessage()]
        assert len(said) == 1 and "test_session.py" in said[0]


class TestConcurrency:
    def test_many_clients_run_steps_at_once(self) -> None:
        x = wf.placeholder(wf.float32, [64, 64])
        y = wf.reduce_sum(wf.matmul(x, x) + wf.matmul(x, x, transpose_b=True))
        wrong: list[float] = []
        with wf.Session() as session:

            def client(value: float) -> None:
                for _ in range(50):
                    got = session.run(y, {x: np.full([64, 64], value, np.float32)})
                    if got != np.float32(2 * 64**3 * value * value):
                        wrong.append(float(got))

            threads = [threading.Thread(target=client, args=(float(i),)) for i in range(1, 9)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert not wrong

    def test_concurrent_updates_are_each_counted(self) -> None:
        v = wf.Variable(np.zeros([1000], np.float32))
        add = wf.assign_add(v, np.ones([1000], np.float32), use_locking=True)
        with wf.Session() as session:
            session.run(v.initializer)
            threads = [
                threading.Thread(target=lambda: [session.run(add.op) for _ in range(100)])
                for _ in range(4)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            np.testing.assert_array_equal(session.run(v), np.full([1000], 400, np.float32))

    def test_closing_cancels_what_runs(self) -> None:
        started = threading.Event()

        def wait() -> np.float32:
            started.set()
            time.sleep(0.02)
            return np.float32(1)

        y = wf.constant(0.0)
        for _ in range(200):
            with wf.control_dependencies([y]):
                y = y + wf.py_func(wait, [], wf.float32)
        session = wf.Session()
        outcome: list[BaseException] = []

        def client() -> None:
            try:
                session.run(y, options=wf.RunOptions(timeout_in_ms=60_000))
            except errors.OpError as error:
                outcome.append(error)

        thread = threading.Thread(target=client)
        thread.start()
        assert started.wait(30)
        session.close()
        thread.join(30)
        assert len(outcome) == 1 and isinstance(outcome[0], errors.CancelledError)


class TestContainers:
    def test_state_is_private_by_default_and_shared_by_target_or_name(self) -> None:
        v = wf.Variable(1.0, name="v")
        with wf.container("shared-in-test"):
            w = wf.Variable(1.0, name="w")
        first, second = wf.Session(), wf.Session()
        first.run([v.initializer, w.initializer])
        assert second.run(w) == 1.0
        with pytest.raises(errors.FailedPreconditionError):
            second.run(v)
        wf.Session.reset("", ["shared-in-test"])
        with pytest.raises(errors.FailedPreconditionError):
            first.run(w)
        first.run(w.initializer)
        assert second.run(w) == 1.0
        third, fourth = wf.Session("inproc://test-a"), wf.Session("inproc://test-a")
        third.run(v.initializer)
        assert fourth.run(v) == 1.0
        wf.Session.reset("inproc://test-a")
        with pytest.raises(errors.FailedPreconditionError):
            fourth.run(v)
        with pytest.raises(errors.InvalidArgumentError, match="target"):
            wf.Session("nowhere")


def test_devices_are_listed_with_their_properties() -> None:
    with wf.Session(config=wf.ConfigProto(device_count={"CPU": 2})) as session:
        devices = session.list_devices()
    assert [d.name for d in devices] == [
        "/job:localhost/replica:0/task:0/device:CPU:0",
        "/job:localhost/replica:0/task:0/device:CPU:1",
    ]
    assert [(d.device_type, d.memory_limit_bytes) for d in devices] == [("CPU", 0)] * 2


class TestCallables:
    def test_it_runs_like_run(self) -> None:
        x = wf.placeholder(wf.float32, [2])
        y = x * 2.0
        with wf.Session() as session:
            call = session.make_callable([y, {"x": x}], [x])
            doubled, rest = call([1.0, 2.0])
            np.testing.assert_array_equal(doubled, [2.0, 4.0])
            np.testing.assert_array_equal(rest["x"], [1.0, 2.0])
            with pytest.raises(errors.InvalidArgumentError, match="1 values"):
                call()

    def test_eval_and_run_use_the_default_session(self) -> None:
        v = wf.Variable(3.0)
        with pytest.raises(ValueError if False else errors.FailedPreconditionError):
            v.eval()
        with wf.Session():
            v.initializer.run()
            assert v.eval() == 3.0
            assert (v + 1.0).eval({v.value(): 5.0}) in (4.0, 6.0)


class TestTrace:
    def test_run_metadata_names_every_node(self) -> None:
        x = wf.placeholder(wf.float32, [8, 8])
        y = wf.matmul(x, x, name="product") + wf.matmul(x, x, transpose_a=True, name="other")
        metadata = wf.RunMetadata()
        options = wf.RunOptions(trace_level=wf.RunOptions.FULL_TRACE)
        with wf.Session() as session:
            session.run(y, {x: np.eye(8)}, options=options, run_metadata=metadata)
        names = {n.node_name for d in metadata.step_stats.dev_stats for n in d.node_stats}
        assert {"product", "other"} <= names


@pytest.mark.parametrize("use_resource", [False, True])
def test_a_shared_variable_of_another_type_or_shape_is_refused(use_resource: bool) -> None:
    def run(value: Any, initialize: bool = False) -> Any:
        with wf.Graph().as_default(), wf.container("of one kind"), wf.Session() as session:
            v = wf.Variable(value, name="v", use_resource=use_resource)
            if initialize:
                session.run(v.initializer)
            return session.run(v + value)

    try:
        assert run(3, initialize=True) == 6
        assert run(4) == 7
        with pytest.raises(errors.InvalidArgumentError, match="of type int32 and shape"):
            run(1.5)
        with pytest.raises(errors.InvalidArgumentError, match=r"got int32 and \[2\]"):
            run([1, 2])
    finally:
        wf.Session.reset("", ["of one kind"])


@pytest.mark.parametrize("executor", ["", "READY_QUEUE"])
@pytest.mark.parametrize("devices", [1, 2])
def test_a_failed_step_leaves_no_memory_behind(executor: str, devices: int) -> None:
    """Without a collection of cycles, once the parts on all devices have ended."""

    def fail(x: Any) -> Any:
        raise ValueError("not today")

    experimental = wf.config.experimental
    cpu = experimental.list_physical_devices("CPU")[0]
    limits = [experimental.VirtualDeviceConfiguration(memory_limit=8) for _ in range(devices)]
    experimental.set_virtual_device_configuration(cpu, limits)
    config = wf.ConfigProto(experimental=wf.ConfigProto.Experimental(executor_type=executor))
    gc.collect()
    gc.disable()
    try:
        with wf.Graph().as_default(), wf.Session(config=config) as session:
            x = wf.placeholder(wf.float32, [100, 1000])
            with wf.device("/cpu:0"):
                y = wf.sin(x)
            with wf.device(f"/cpu:{devices - 1}"):
                z = [wf.py_func(fail, [y + float(i)], wf.float32) for i in range(2)]
            for _ in range(2):
                with pytest.raises(wf.errors.InvalidArgumentError, match="not today"):
                    session.run(z, {x: np.ones((100, 1000))})
            wait_until(lambda: not any(d.statistics.bytes_in_use for d in session.list_devices()))
    finally:
        gc.enable()
        experimental.set_virtual_device_configuration(cpu, None)


def test_metadata_is_of_the_last_step_alone() -> None:
    x, metadata = wf.constant(1), wf.RunMetadata()
    with wf.Session() as session:
        session.run(x, options=wf.RunOptions(output_partition_graphs=True), run_metadata=metadata)
        assert len(metadata.partition_graphs) == 1
        session.run(x, run_metadata=metadata)
        assert metadata == wf.RunMetadata()


@pytest.mark.parametrize("infer", [True, False])
def test_the_graph_def_of_a_session_has_shapes_if_it_is_told_so(infer: bool) -> None:
    wf.constant([[1, 2]])
    config = wf.ConfigProto(graph_options=wf.GraphOptions(infer_shapes=infer))
    with wf.Session(config=config) as session:
        assert ("_output_shapes" in session.graph_def.node[0].attr) is infer


def test_names_may_be_bytes() -> None:
    assert wf.constant(1, name=b"one").name == "one:0"
    assert wf.Session().run(b"one:0") == 1
    with pytest.raises(TypeError, match="a name must be text"):
        wf.constant(1, name=b"\xff")


def test_a_known_shape_of_a_sparse_tensor_need_not_be_fed() -> None:
    x = wf.sparse_placeholder(wf.float32, shape=[3, 2])
    dense, fed = wf.sparse.to_dense(x), ([[0, 1], [2, 0]], [1.0, 2.0])
    with wf.Session() as session:
        assert session.run(dense, {x: fed}).tolist() == [[0, 1], [0, 0], [2, 0]]
        other = wf.sparse_placeholder(wf.float32)
        with pytest.raises(TypeError, match="is fed 3 values"):
            session.run(other, {other: fed})


def test_a_fetched_array_may_be_written_to_whatever_made_it() -> None:
    """A kernel may give an array over memory of a library, as decoders of images do."""
    encoded, data = wf.placeholder(wf.string, []), np.zeros((4, 3, 3), np.uint8)
    with wf.Session() as session:
        for encode, decode in (
            (wf.image.encode_png, wf.image.decode_png),
            (wf.image.encode_jpeg, wf.image.decode_jpeg),
        ):
            found = session.run(decode(encoded), {encoded: session.run(encode(data))})
            found[:] = 1
            assert found.shape == data.shape


def test_the_config_reads_as_it_was_given() -> None:
    options = wf.GraphOptions(infer_shapes=True)
    given = wf.ConfigProto(graph_options=options)
    assert wf.Session(config=given)._config.graph_options.infer_shapes
    assert not wf.Session()._config.graph_options.infer_shapes


def test_a_stateless_function_of_constants_is_called_once() -> None:
    with wf.Graph().as_default(), wf.Session() as session:
        calls = iter(range(100))
        stateless = wf.py_func(lambda: next(calls), [], wf.int64, stateful=False)
        assert [session.run(stateless) for _ in range(3)] == [0, 0, 0]
        stateful = wf.py_func(lambda: next(calls), [], wf.int64)
        assert [session.run(stateful) for _ in range(3)] == [1, 2, 3]
        fed = wf.placeholder(wf.int64, [])
        of_fed = wf.py_func(lambda x: x + next(calls), [fed], wf.int64, stateful=False)
        assert [session.run(of_fed, {fed: 0}) for _ in range(2)] == [4, 5]
        assert wf.py_func(lambda: None, [], [], stateful=False) == []
