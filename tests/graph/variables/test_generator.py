"""Random generators whose state is a variable."""

from __future__ import annotations

from collections import Counter
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft as wf


def test_draws_move_the_state_on_and_do_not_overlap() -> None:
    generator = wf.random.Generator.from_seed(5)
    kinds = [
        (generator.uniform([5], 1, 3, wf.float64), 5),
        (generator.normal([4]), 4),
        (generator.truncated_normal([2, 2]), 4),
        (generator.uniform([6], 0, 4, wf.uint32), 6),
        (generator.uniform_full_int([2]), 2),
        (generator.binomial([3], 10, 0.5), 3),
        (generator.make_seeds(3), 3),
        (generator.skip(7), 7),
        (generator.normal([0]), 0),
    ]
    with wf.Session() as session:
        session.run(wf.global_variables_initializer())
        counter = 5
        for draw, count in kinds:
            session.run(draw)
            counter += 256 * count
            assert session.run(generator.state).tolist() == [counter, 0, 0], draw.name
        first, second = (session.run(kinds[1][0]) for _ in range(2))
        assert not (first == second).any()


def test_numbers_are_those_of_philox_at_the_state() -> None:
    generator = wf.random.Generator.from_key_counter(9, [-1, 2], "philox")
    counter = np.array([2**64 - 1, 2, 0, 0], np.uint64)
    bits = np.random.Philox(key=np.array([9, 0], np.uint64), counter=counter)
    with wf.Session() as session:
        session.run(wf.global_variables_initializer())
        assert session.run(generator.key) == 9
        drawn = session.run(generator.uniform_full_int([6]))
        assert session.run(generator.state).tolist() == [256 * 6 - 1, 3, 9]
    np.testing.assert_array_equal(drawn, bits.random_raw(6))


def test_distributions() -> None:
    generator = wf.random.Generator.from_seed(1)
    draws = [
        generator.normal([20000], 2.0, 3.0),
        generator.truncated_normal([20000], 1.0, 2.0),
        generator.uniform([20000], -1.0, 1.0),
        generator.uniform([20000], -2, 3, wf.int32),
        generator.binomial([20000], [10.0], 0.25),
    ]
    with wf.Session() as session:
        session.run(wf.global_variables_initializer())
        normal, cut, uniform, integers, tries = session.run(draws)
    assert abs(normal.mean() - 2) < 0.1
    assert abs(normal.std() - 3) < 0.1
    assert cut.min() >= -3
    assert cut.max() <= 5
    assert uniform.min() >= -1
    assert abs(uniform.std() - 3**-0.5) < 0.02
    assert sorted(Counter(integers.tolist())) == [-2, -1, 0, 1, 2]
    assert abs(tries.mean() - 2.5) < 0.05


def test_states_are_reset_restored_and_copied(tmp_path: Path) -> None:
    generator = wf.random.Generator.from_seed(5)
    copied = wf.random.Generator(copy_from=generator)
    draw, of_copy = generator.normal([3]), copied.normal([3])
    resets = [generator.reset_from_seed(5), generator.reset_from_key_counter(0, [5, 0])]
    saver = wf.train.Saver()
    with wf.Session() as session:
        session.run(wf.global_variables_initializer())
        first = session.run(draw)
        np.testing.assert_array_equal(session.run(of_copy), first)
        for reset in resets:
            session.run(reset)
            np.testing.assert_array_equal(session.run(draw), first)
        path = saver.save(session, str(tmp_path / "model"))
        after = session.run(draw)
    with wf.Session() as session:
        saver.restore(session, path)
        np.testing.assert_array_equal(session.run(draw), after)


def test_parts_of_a_generator_differ() -> None:
    generator = wf.random.Generator.from_seed(5)
    parts = [*generator.split(2), *generator.split(1), wf.random.get_global_generator()]
    wf.random.set_global_generator(parts[0])
    assert wf.random.get_global_generator() is parts[0]
    draws = [part.normal([]) for part in [generator, *parts]]
    with wf.Session() as session:
        session.run(wf.global_variables_initializer())
        assert len(set(session.run(draws))) == 5


def test_the_state_of_a_seed() -> None:
    state = wf.random.create_rng_state
    assert state(2**100, "philox").tolist() == [0, 2**36, 0]
    assert state(-1, wf.random.Algorithm.AUTO_SELECT).tolist() == [-1, -1, -1]
    assert state([1, 2], 1).tolist() == [1, 2, 0]
    for seed in (2**192, [1.5], [1, 2, 3, 4]):
        with pytest.raises(wf.errors.InvalidArgumentError, match="seed"):
            state(seed, "philox")


def test_what_is_refused() -> None:
    generator = wf.random.Generator.from_seed(5)
    calls: list[Any] = [
        lambda: wf.random.Generator(),
        lambda: wf.random.Generator.from_seed(1, "threefry"),
        lambda: wf.random.Generator.from_state([1, 2], "philox"),
        lambda: generator.uniform([2], dtype=wf.int32),
        lambda: generator.skip(-1),
        lambda: generator.normal([-1]),
        lambda: wf.random_index_shuffle(1, [1, 2], 3),
        lambda: wf.random_index_shuffle(1, [1, 2, 3], 3, rounds=5),
    ]
    for call in calls:
        with pytest.raises(wf.errors.InvalidArgumentError):
            call()
    floats = wf.Variable([1.0, 2.0], use_resource=True)
    with wf.Session() as session:
        session.run(wf.global_variables_initializer())
        skip = wf.raw_ops.RngSkip
        for handle, algorithm, delta in (
            (floats.handle, 1, 1),
            (generator.state.handle, 2, 1),
            (generator.state.handle, 1, -1),
        ):
            with pytest.raises(wf.errors.InvalidArgumentError):
                session.run(
                    skip(resource=handle, algorithm=np.int64(algorithm), delta=np.int64(delta))
                )
        with pytest.raises(wf.errors.InvalidArgumentError, match=r"in \[0, max_index\]"):
            session.run(wf.random_index_shuffle(5, [1, 2, 3], 4))


def test_shuffled_indices_are_permutations_of_all_kinds() -> None:
    seeds = np.arange(3600).reshape(1200, 1, 3)
    orders = wf.random_index_shuffle(np.arange(4), seeds, 3)
    long = wf.random.experimental.index_shuffle(np.arange(1000), [1, 2, 3], 999)
    wide = wf.random_index_shuffle(
        np.array([0, 2**64 - 1], np.uint64), [1, 2, 3], np.uint64(2**64 - 1)
    )
    with wf.Session() as session:
        found, order, ends = session.run([orders, long, wide])
    counts = Counter(map(tuple, found.tolist()))
    assert set(counts) == set(permutations(range(4)))
    assert max(counts.values()) < 90  # 50 are expected
    assert sorted(order.tolist()) == list(range(1000))
    assert len(set(ends.tolist())) == 2
