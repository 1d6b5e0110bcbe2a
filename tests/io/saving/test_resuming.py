"""Restored training continues with the same bits as uninterrupted training."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft as wf
from weft import errors

STEPS, AT = 12, 5


@pytest.fixture(autouse=True)
def _own_graph() -> Iterator[None]:
    with wf.Graph().as_default():
        yield


def config() -> Any:
    made = wf.ConfigProto()
    made.experimental.deterministic = True
    return made


def program(seed: int | None = 7) -> tuple[Any, Any, Any]:
    """Return the fetches of a model with dropout and noise in a loop, fed by a shuffled dataset."""
    wf.set_random_seed(seed)
    data = wf.data.Dataset.range(40).shuffle(13, seed=3).repeat().batch(4)
    iterator = wf.data.make_one_shot_iterator(data)
    x = wf.cast(iterator.get_next(), wf.float32)[:, None] / 40.0
    w = wf.get_variable("w", [1, 8])
    hidden = wf.nn.dropout(wf.matmul(x, w), rate=0.5)

    def body(i: Any, h: Any) -> Any:
        return i + 1, h + 0.01 * wf.random_normal([4, 8])

    hidden = wf.while_loop(lambda i, _: i < 3, body, [0, hidden])[1]
    step = wf.train.get_or_create_global_step()
    loss = wf.reduce_mean(wf.square(wf.reduce_sum(hidden, 1) - x[:, 0]))
    train = wf.train.AdamOptimizer(0.05).minimize(loss, step)
    return train, [loss, x, w], step


def uninterrupted() -> list[Any]:
    with wf.Graph().as_default():
        train, fetched, _ = program()
        with wf.Session(config=config()) as session:
            session.run(wf.global_variables_initializer())
            return [session.run([train, fetched])[1] for _ in range(STEPS)]


def test_a_resumable_saver_goes_on_with_the_same_bits(tmp_path: Path) -> None:
    with wf.Graph().as_default():
        train, fetched, _ = program()
        saver = wf.train.Saver(resumable=True)
        init = wf.global_variables_initializer()
        with wf.Session(config=config()) as session:
            session.run(init)
            got = [session.run([train, fetched])[1] for _ in range(AT)]
            path = saver.save(session, str(tmp_path / "m"))
            session.run(train)  # is lost
        with wf.Session(config=config()) as session:
            saver.restore(session, path)
            got += [session.run([train, fetched])[1] for _ in range(STEPS - AT)]
        with wf.Session(config=config()) as session:
            session.run(init)
            session.run(train)
            saver.restore(session, path)  # also where the ops have drawn already
            again = session.run([train, fetched])[1]
    want = uninterrupted()
    for step, (mine, theirs) in enumerate(zip(got, want, strict=True)):
        for a, b in zip(mine, theirs, strict=True):
            np.testing.assert_array_equal(a, b, err_msg=f"step {step}")
    for a, b in zip(again, want[AT], strict=True):
        np.testing.assert_array_equal(a, b)


def test_the_checkpoints_of_a_deterministic_training_loop_are_resumable(tmp_path: Path) -> None:
    got: list[Any] = []
    for steps in (AT, STEPS - AT):
        with wf.Graph().as_default():
            train, fetched, _ = program()
            with wf.train.MonitoredTrainingSession(
                checkpoint_dir=str(tmp_path), save_checkpoint_steps=1, config=config()
            ) as session:
                got += [session.run([train, fetched])[1] for _ in range(steps)]
    for mine, theirs in zip(got, uninterrupted(), strict=True):
        for a, b in zip(mine, theirs, strict=True):
            np.testing.assert_array_equal(a, b)


def test_keys_of_ops_without_seeds_are_saved_and_old_checkpoints_can_be_restored(
    tmp_path: Path,
) -> None:
    v = wf.Variable(wf.random_normal([2]), name="v")
    drawn = wf.random_uniform([3])
    resumable, plain = wf.train.Saver(resumable=True), wf.train.Saver()
    with wf.Session() as session:
        session.run(v.initializer)
        session.run(drawn)
        path = resumable.save(session, str(tmp_path / "a"))
        old = plain.save(session, str(tmp_path / "b"))
        want = session.run(drawn)
    names = [name for name, _ in wf.train.list_variables(path)]
    assert names == ["_random/random_uniform", "v"]  # none of the initializer
    with wf.Session() as session:
        resumable.restore(session, path)
        np.testing.assert_array_equal(session.run(drawn), want)
        plain.restore(session, path)
        resumable.restore(session, old)
        assert (session.run(drawn) != want).any()


def test_a_state_that_is_none_is_refused(tmp_path: Path) -> None:
    state = wf.placeholder(wf.string, [])
    restore = wf.raw_ops.RestoreRandomStream(state=state, stream="r")
    with wf.Session() as session:
        session.run(restore, {state: b""})
        for bad in (b"rng1", b"x" * 28, b"rng1" + b"\0" * 25):
            with pytest.raises(errors.DataLossError, match="random op r must be 28 bytes"):
                session.run(restore, {state: bad})
