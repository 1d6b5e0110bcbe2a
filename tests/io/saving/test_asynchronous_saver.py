"""Saving during training: contents, failures, and waiting for completion."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft_io.saving.saver
from weft_exec import Session
from weft_exec.resources.resources import VariableState
from weft_graph import Graph
from weft_graph.ops.array import placeholder_with_default
from weft_graph.variables.partitioning import fixed_size_partitioner
from weft_graph.variables.reference import Variable, global_variables_initializer
from weft_graph.variables.scope import get_variable
from weft_io import (
    SaveableObject,
    Saver,
    SaveSpec,
    get_checkpoint_state,
    latest_checkpoint,
    load_variable,
)
from weft_io.checkpoint import held_tensors
from weft_io.ops.checkpoint import hold_for_save
from weft_io.saving import background
from weft_tensor import dtypes, errors

PROGRAM = Path(__file__).parent / "programs" / "ending.py"
LIMIT = 60.0


class Gate:
    """Stands before the writing of every checkpoint and lets it pass, or fail, when told."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._write = weft_io.saving.saver.write_checkpoint
        self._open = threading.Event()
        self.reached = threading.Event()
        self.failure: BaseException | None = None
        patch.setattr(weft_io.saving.saver, "write_checkpoint", self._pass)

    def _pass(self, *args: Any) -> Any:
        self.reached.set()
        assert self._open.wait(LIMIT)
        if self.failure is not None:
            raise self.failure
        return self._write(*args)

    def release(self) -> None:
        self._open.set()


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    made = Gate(monkeypatch)
    yield made
    made.release()


@pytest.fixture(autouse=True)
def graph() -> Iterator[Graph]:
    with Graph().as_default() as made:
        yield made


def in_thread(work: Callable[[], Any]) -> threading.Thread:
    thread = threading.Thread(target=work)
    thread.start()
    return thread


class TestWhatIsSaved:
    @pytest.mark.parametrize("finalized", [False, True])
    def test_the_values_when_save_was_called(
        self, tmp_path: Path, gate: Gate, graph: Graph, finalized: bool
    ) -> None:
        variables = [
            Variable(np.zeros((300, 40), np.float32), name="a"),
            Variable(np.zeros((300, 40), np.float32), name="b", use_resource=True),
            Variable(np.int64(0), name="c"),
            Variable(0.0, name="d", use_resource=True),
        ]
        ones = [np.ones(v.shape.as_list(), v.dtype.base_dtype.numpy) for v in variables]
        add = [v.assign_add(x, read_value=False) for v, x in zip(variables, ones, strict=True)]
        word = Variable(np.array([b"old"], object), name="word")
        change = word.assign(np.array([b"new"], object))
        saver = Saver(asynchronous=True)
        start = global_variables_initializer()
        if finalized:
            graph.finalize()
        with Session() as session:
            session.run(start)
            session.run(add)
            path = saver.save(session, str(tmp_path / "m"), 1)
            assert path == str(tmp_path / "m-1") and gate.reached.wait(LIMIT)
            assert latest_checkpoint(str(tmp_path)) is None
            for _ in range(3):
                session.run([add, change])
            assert [float(np.max(v)) for v in session.run(variables)] == [4.0] * 4
            gate.release()
            saver.restore(session, path)
            assert all((np.asarray(v) == 1).all() for v in session.run(variables))
            assert session.run(word).tolist() == [b"old"]
        assert latest_checkpoint(str(tmp_path)) == path
        assert (tmp_path / "m-1.meta").exists()

    def test_parts_and_other_names(self, tmp_path: Path, gate: Gate) -> None:
        whole = get_variable(
            "w", shape=[7, 2], partitioner=fixed_size_partitioner(3), dtype=dtypes.float64
        )
        saver = Saver({"other": whole}, asynchronous=True, sharded=True)
        with Session() as session:
            session.run(global_variables_initializer())
            value = session.run(whole.as_tensor())
            path = saver.save(session, str(tmp_path / "m"))
            session.run([part.assign(part * 0.0) for part in whole])
            gate.release()
            saver.close()
        np.testing.assert_array_equal(load_variable(path, "other"), value)

    def test_what_is_fed_is_copied(self, tmp_path: Path, gate: Gate) -> None:
        class Fed(SaveableObject):
            def __init__(self, tensor: Any) -> None:
                super().__init__(tensor, [SaveSpec(tensor, "", "fed")], "fed")

            def restore(self, restored_tensors: Any, restored_shapes: Any) -> Any:
                return restored_tensors[0].op

        tensor = placeholder_with_default(np.zeros(3, np.float32), [3], "t")
        saver = Saver([Fed(tensor)], asynchronous=True)
        value = np.ones(3, np.float32)

        class Feeding:
            def __init__(self, session: Session) -> None:
                self.session = session
                self.graph = session.graph

            def run(self, fetches: Any, feed_dict: Any = None) -> Any:
                return self.session.run(fetches, {**(feed_dict or {}), tensor: value})

        with Session() as session:
            path = saver.save(Feeding(session), str(tmp_path / "m"))
            value[:] = 5
            gate.release()
            saver.close()
        assert load_variable(path, "fed").tolist() == [1, 1, 1]

    def test_updates_copy_only_while_it_is_held(self, tmp_path: Path, gate: Gate) -> None:
        v = Variable(np.zeros(1000, np.float32), name="v")
        add = v.assign_add(np.ones(1000, np.float32), read_value=False)
        saver = Saver(asynchronous=True)
        with Session() as session:
            session.run(v.initializer)
            (state,) = session.resources.resources(VariableState, "")
            saver.save(session, str(tmp_path / "m"))
            place = state.read().ctypes.data
            session.run(add)
            moved = state.read().ctypes.data
            assert moved != place
            session.run(add)
            assert state.read().ctypes.data == moved
            gate.release()
            saver.close()
            session.run(add)
            assert state.read().ctypes.data == moved
        assert not held_tensors._held

    def test_the_graph_that_there_is_then(self, tmp_path: Path, graph: Graph) -> None:
        from weft_graph import proto

        v = Variable(1.0, name="v")
        saver = Saver(asynchronous=True)
        sizes = []
        with Session() as session:
            session.run(v.initializer)
            for step in range(3):
                saver.save(session, str(tmp_path / "m"), step)
                saver.close()
                data = (tmp_path / f"m-{step}.meta").read_bytes()
                message = proto.MetaGraphDef.FromString(data)
                sizes.append((len(message.graph_def.node), len(message.collection_def)))
                if step == 0:
                    v.assign_add(1.0)
                    graph.add_to_collection("more", 1)
        assert sizes[0] < sizes[1] == sizes[2]
        assert sizes[0][1] < sizes[1][1]

    def test_uninitialized_variables_are_an_error_at_once(self, tmp_path: Path) -> None:
        Variable(1.0, name="weights")
        saver = Saver(asynchronous=True)
        with Session() as session, pytest.raises(errors.FailedPreconditionError, match="weights"):
            saver.save(session, str(tmp_path / "m"))
        saver.close()
        assert not list(tmp_path.iterdir())

    def test_the_list_and_its_length(self, tmp_path: Path) -> None:
        v = Variable(0.0, name="v")
        saver = Saver(asynchronous=True, max_to_keep=2)
        with Session() as session:
            session.run(v.initializer)
            for step in range(6):
                v.load(float(step), session)
                saver.save(session, str(tmp_path / "m"), step)
            saver.close()
        expected = [str(tmp_path / "m-4"), str(tmp_path / "m-5")]
        found = get_checkpoint_state(str(tmp_path))
        assert found is not None and list(found.all_model_checkpoint_paths) == expected
        assert saver.last_checkpoints == expected
        assert load_variable(str(tmp_path), "v") == 5.0
        assert len(list(tmp_path.iterdir())) == 7

    def test_the_program_may_change_its_directory(
        self, tmp_path: Path, gate: Gate, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        v = Variable(1.0, name="v")
        saver = Saver(asynchronous=True)
        (tmp_path / "there").mkdir()
        monkeypatch.chdir(tmp_path)
        with Session() as session:
            session.run(v.initializer)
            path = saver.save(session, "here/m")
            monkeypatch.chdir(tmp_path / "there")
            gate.release()
            saver.restore(session, path)
        assert path == str(tmp_path / "here" / "m") == latest_checkpoint(str(tmp_path / "here"))
        assert not list((tmp_path / "there").iterdir())

    def test_nothing_to_save(self, tmp_path: Path) -> None:
        saver = Saver(allow_empty=True, asynchronous=True)
        with Session() as session:
            assert saver.save(session, str(tmp_path / "m")) is None
        saver.close()


class TestOneAtATime:
    def test_the_next_save_waits(self, tmp_path: Path, gate: Gate) -> None:
        v = Variable(0.0, name="v")
        saver = Saver(asynchronous=True)
        with Session() as session:
            session.run(v.initializer)
            saver.save(session, str(tmp_path / "m"), 1)
            second = in_thread(lambda: saver.save(session, str(tmp_path / "m"), 2))
            assert gate.reached.wait(LIMIT)
            gate.reached.clear()
            assert second.is_alive() and not gate.reached.is_set()
            v.load(7.0, session)  # before the second save looks at it
            gate.release()
            second.join(LIMIT)
            saver.close()
        assert load_variable(str(tmp_path / "m-1"), "v") == 0.0
        assert load_variable(str(tmp_path / "m-2"), "v") == 7.0

    @pytest.mark.parametrize("name", ["restore", "close", "wait_until_finished"])
    def test_who_else_waits(self, tmp_path: Path, gate: Gate, name: str) -> None:
        v = Variable(0.0, name="v")
        saver = Saver(asynchronous=True)
        with Session() as session:
            session.run(v.initializer)
            path = saver.save(session, str(tmp_path / "m"))
            call = getattr(saver, name)
            waiting = in_thread(lambda: call(*((session, path) if name == "restore" else ())))
            assert gate.reached.wait(LIMIT) and waiting.is_alive()
            gate.release()
            waiting.join(LIMIT)
        assert latest_checkpoint(str(tmp_path)) == path

    def test_closing_the_session_does_not_stop_it(self, tmp_path: Path, gate: Gate) -> None:
        v = Variable(3.0, name="v")
        saver = Saver(asynchronous=True)
        with Session() as session:
            session.run(v.initializer)
            path = saver.save(session, str(tmp_path / "m"))
        gate.release()
        saver.close()
        assert load_variable(path, "v") == 3.0

    def test_many_threads(self, tmp_path: Path) -> None:
        v = Variable(np.zeros(2000), name="v")
        saver = Saver(asynchronous=True, max_to_keep=100)
        failures: list[BaseException] = []
        with Session() as session:
            session.run(v.initializer)

            def work(number: int) -> None:
                try:
                    for step in range(4):
                        saver.save(session, str(tmp_path / f"m{number}"), step)
                except BaseException as error:
                    failures.append(error)

            for thread in [in_thread(lambda n=n: work(n)) for n in range(4)]:
                thread.join()
            saver.close()
        assert not failures and len(saver.last_checkpoints) == 16
        assert not held_tensors._held


class TestFailures:
    @pytest.fixture
    def failed(self, tmp_path: Path, gate: Gate) -> Iterator[tuple[Saver, Session, Path]]:
        v = Variable(1.0, name="v")
        saver = Saver(asynchronous=True)
        with Session() as session:
            session.run(v.initializer)
            gate.release()
            saver.save(session, str(tmp_path / "m"), 1)
            saver.close()
            gate.failure = errors.ResourceExhaustedError("saving m failed: No space left on device")
            yield saver, session, tmp_path

    @pytest.mark.parametrize("name", ["save", "restore", "close", "wait_until_finished"])
    def test_it_is_raised_once(
        self, failed: Any, gate: Gate, name: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        saver, session, directory = failed
        saver.save(session, str(directory / "m"), 2)
        arguments = {
            "save": (session, str(directory / "m"), 3),
            "restore": (session, str(directory / "m-1")),
        }
        with pytest.raises(errors.ResourceExhaustedError, match="No space left"):
            getattr(saver, name)(*arguments.get(name, ()))
        assert "m-2 failed" in caplog.text and caplog.records[-1].levelno == logging.ERROR
        gate.failure = None
        saver.close()
        assert saver.last_checkpoints == [str(directory / "m-1")]
        assert latest_checkpoint(str(directory)) == str(directory / "m-1")
        saver.save(session, str(directory / "m"), 3)
        saver.close()
        assert latest_checkpoint(str(directory)) == str(directory / "m-3")
        assert {path.name.split(".")[0] for path in directory.iterdir()} == {
            "checkpoint", "m-1", "m-3"
        }  # fmt: skip

    def test_the_next_step_raises_it(self, failed: Any, gate: Gate) -> None:
        saver, session, directory = failed
        v = session.graph.get_tensor_by_name("v:0")
        call = session.make_callable(v)
        assert session.run(v) == call() == 1
        for step in (session.run, lambda _: call()):
            saver.save(session, str(directory / "m"), 2)
            assert saver._job is not None
            saver._job.wait()
            with pytest.raises(errors.ResourceExhaustedError, match="No space left"):
                step(v)
            assert step(v) == 1
            saver.close()

    def test_a_disk_that_fills_up(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        import errno

        v = Variable(np.zeros(50_000, np.float32), name="v")
        saver = Saver(asynchronous=True)
        real, room = os.write, [60_000]

        def write(descriptor: int, data: Any) -> int:
            if not room[0]:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            written = real(descriptor, data[: room[0]])
            room[0] -= written
            return written

        with Session() as session:
            session.run(v.initializer)
            saver.save(session, str(tmp_path / "m"), 1)
            saver.close()
            before = sorted(tmp_path.iterdir())
            v.load(np.ones(50_000, np.float32), session)
            with monkeypatch.context() as patch:
                patch.setattr(os, "write", write)
                saver.save(session, str(tmp_path / "m"), 2)
                with pytest.raises(errors.ResourceExhaustedError, match="No space left"):
                    saver.close()
            assert sorted(tmp_path.iterdir()) == before
            saver.restore(session, str(tmp_path / "m-1"))
            assert not session.run(v).any()

    def test_a_foreign_error_is_raised_too(self, failed: Any, gate: Gate) -> None:
        saver, session, directory = failed
        gate.failure = MemoryError("no memory")
        saver.save(session, str(directory / "m"), 4)
        with pytest.raises(MemoryError):
            saver.close()


class TestNodes:
    def test_from_a_message(self, tmp_path: Path) -> None:
        v = Variable(1.0, name="v")
        message = Saver().as_saver_def()
        saver = Saver(saver_def=message, asynchronous=True)
        with Session() as session:
            session.run(v.initializer)
            saver.restore(session, saver.save(session, str(tmp_path / "m")))

    def test_the_message_is_that_of_any_saver(self, graph: Graph) -> None:
        Variable(1.0, name="v")
        message = Saver(asynchronous=True).as_saver_def()
        assert message.save_tensor_name == "save/control_dependency:0"
        assert graph.get_operation_by_name("save/HoldForSave").inputs[2].node.type == "VariableV2"

    def test_other_nodes_are_refused(self, graph: Graph) -> None:
        v = Variable(1.0, name="v")
        message = Saver().as_saver_def()
        message.save_tensor_name = v.op.name + ":0"
        with pytest.raises(errors.InvalidArgumentError, match="SaveV2"):
            Saver(saver_def=message, asynchronous=True)

    def test_what_is_held_is_taken_once(self) -> None:
        v = Variable([1.0, 2.0], name="v")
        node = hold_for_save(["a"], [""], [v._ref()])
        with Session() as session:
            session.run(v.initializer)
            first, second = session.run(node).decode(), session.run(node).decode()
            with pytest.raises(errors.NotFoundError, match=first):
                held_tensors.take(first)
            (item,) = held_tensors.take(second)
            assert item.name == "a" and item.value.tolist() == [1.0, 2.0]
            with pytest.raises(errors.NotFoundError, match=second):
                held_tensors.take(second)

    def test_shapes_are_checked(self) -> None:
        with pytest.raises(errors.InvalidArgumentError, match="tensor_names"):
            hold_for_save(["a", "b"], [""], [1.0])


class TestJobs:
    def test_without_a_thread_it_is_done_at_once(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(self: threading.Thread) -> None:
            raise RuntimeError("can't start new thread")

        v = Variable(1.0, name="v")
        saver = Saver(asynchronous=True)
        with Session() as session:
            session.run(v.initializer)
            with monkeypatch.context() as patch:
                patch.setattr(threading.Thread, "start", refuse)
                path = saver.save(session, str(tmp_path / "m"))
            assert latest_checkpoint(str(tmp_path)) == path

    def test_a_failed_one_holds_nothing(self) -> None:
        import weakref

        class Held:
            pass

        alive: list[weakref.ref[Held]] = []

        def fail(value: Held) -> None:
            alive.append(weakref.ref(value))
            try:
                raise OSError("first")
            except OSError as cause:
                raise ValueError("second") from cause

        job = background.Job("something", lambda: fail(Held()))
        job.wait()
        assert alive[0]() is None
        with pytest.raises(ValueError, match="second"):
            job.result()
        job.result()

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
    def test_a_forked_child_does_not_wait(self) -> None:
        done = threading.Event()
        job = background.Job("a long job", lambda: done.wait(LIMIT))
        process = os.fork()
        if not process:
            job.wait()
            os._exit(7 if job.finished else 1)
        try:
            assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 7
            assert not job.finished
        finally:
            done.set()
            job.result()


def start(mode: str, directory: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(PROGRAM), mode, str(directory)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


class TestTheEndOfTheProgram:
    @pytest.mark.parametrize("mode", ["returns", "exits", "raises", "atexit"])
    def test_it_waits_and_says_so(self, tmp_path: Path, mode: str) -> None:
        process = start(mode, tmp_path)
        out, err = process.communicate(timeout=LIMIT)
        assert process.returncode == (0 if mode in ("returns", "atexit") else 1), err
        assert out == "saved\n"
        if mode != "atexit":
            assert f"waiting at exit until the checkpoint {tmp_path / 'm-2'} is finished" in err
        assert latest_checkpoint(str(tmp_path)) == str(tmp_path / "m-2")
        assert load_variable(str(tmp_path), "v")[0] == 2.0

    def test_a_failure_is_not_silent(self, tmp_path: Path) -> None:
        process = start("fails", tmp_path)
        _, err = process.communicate(timeout=LIMIT)
        assert f"the checkpoint {tmp_path / 'm-2'} failed" in err and "No space left" in err
        assert latest_checkpoint(str(tmp_path)) == str(tmp_path / "m-1")

    @pytest.mark.skipif(os.name == "nt", reason="needs signals")
    def test_an_interrupt_leaves_the_previous_one(self, tmp_path: Path) -> None:
        process = start("hangs", tmp_path)
        assert process.stdout is not None and process.stderr is not None
        limit = threading.Timer(LIMIT, process.kill)  # readline has no timeout
        limit.start()
        try:
            assert process.stdout.readline() == "saved\n"
            process.send_signal(signal.SIGINT)
            while "waiting at exit until" not in (line := process.stderr.readline()):
                assert line, f"the program did not wait for its save, or ignored SIGINT {LIMIT:g} s"
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=LIMIT)
        finally:
            limit.cancel()
            process.kill()
        assert process.returncode != 0
        assert latest_checkpoint(str(tmp_path)) == str(tmp_path / "m-1")
        assert load_variable(str(tmp_path), "v")[0] == 1.0
        v = Variable(np.zeros(5), name="v")
        with Session() as session:
            session.run(v.initializer)
            saver = Saver(max_to_keep=1)
            saver.recover_last_checkpoints([str(tmp_path / "m-1")])
            saver.save(session, str(tmp_path / "m"), 3)
        assert {path.name.split(".")[0] for path in tmp_path.iterdir()} == {"checkpoint", "m-3"}
