"""Teach a network by Q-learning to find the way out of a maze: a DQN of many small runs.

Each step moves once in the maze, stores the transition in a replay buffer, and trains on a batch of
it. A target network follows every 100 steps. The served network is asked about each cell.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from journey import Answers, Feeds, Journey, Serving, Training, main

import weft as wf

MAZE = (
    "########",
    "#S  #  #",
    "# # # ##",
    "# #    #",
    "# #### #",
    "#  #   #",
    "## # #G#",
    "########",
)
"""A wall is #; S is the start and G the goal."""
MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1))
CELLS = [(y, x) for y, row in enumerate(MAZE) for x, cell in enumerate(row) if cell != "#"]
NUMBERS = {cell: number for number, cell in enumerate(CELLS)}
GOAL = next(cell for cell in CELLS if MAZE[cell[0]][cell[1]] == "G")
BATCH = 32
CAPACITY = 2000
DISCOUNT = 0.95
LONGEST = 60
"""Moves after which an episode ends."""


def move(cell: tuple[int, int], action: int) -> tuple[int, int]:
    """Return the cell after a move; walls stop it."""
    y, x = cell[0] + MOVES[action][0], cell[1] + MOVES[action][1]
    return cell if MAZE[y][x] == "#" else (y, x)


def distances() -> dict[tuple[int, int], int]:
    """Return the length of the shortest way to the goal from each cell."""
    result, frontier = {GOAL: 0}, [GOAL]
    for cell in frontier:
        for action in range(len(MOVES)):
            neighbor = move(cell, action)
            if neighbor not in result:
                result[neighbor] = result[cell] + 1
                frontier.append(neighbor)
    return result


def observe(cells: Sequence[tuple[int, int]]) -> np.ndarray:
    """Return one-hot vectors of cells, float32 (n, number of cells)."""
    result = np.zeros((len(cells), len(CELLS)), np.float32)
    result[np.arange(len(cells)), [NUMBERS[cell] for cell in cells]] = 1.0
    return result


class Replay:
    """A ring buffer of transitions."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng
        self._transitions: list[tuple[Any, ...]] = []
        self._count = 0

    def add(self, *transition: Any) -> None:
        """Store a transition: cell, action, next cell."""
        if len(self._transitions) < CAPACITY:
            self._transitions.append(transition)
        else:
            self._transitions[self._count % CAPACITY] = transition
        self._count += 1

    def sample(self) -> list[Any]:
        """Return the cells, actions and next cells of a batch."""
        chosen = self._rng.integers(0, len(self._transitions), BATCH)
        return list(zip(*(self._transitions[i] for i in chosen), strict=True))


def q_network(cells: wf.Tensor, scope: str, trainable: bool = True) -> wf.Tensor:
    """Return the values of all moves, (n, 4)."""
    with wf.variable_scope(scope):
        hidden = wf.layers.dense(cells, 64, activation=wf.nn.relu, trainable=trainable, name="a")
        hidden = wf.layers.dense(hidden, 64, activation=wf.nn.relu, trainable=trainable, name="b")
        return wf.layers.dense(hidden, len(MOVES), trainable=trainable, name="values")


class Reinforcement(Journey):
    """A DQN in a maze."""

    name = "reinforcement"
    steps, short_steps = 6000, 2000
    metric = "share of shortest ways"
    goal, short_goal = 1.0, 0.6

    def training(self) -> Training:
        """Move, remember, and train in each step; a hook copies the weights to the target."""
        cells = wf.placeholder(wf.float32, [None, len(CELLS)])
        following = wf.placeholder(wf.float32, [None, len(CELLS)])
        actions = wf.placeholder(wf.int32, [None])
        rewards = wf.placeholder(wf.float32, [None])
        values = q_network(cells, "online")
        target = q_network(following, "target", trainable=False)
        best = wf.argmax(q_network_again(following), 1, output_type=wf.int32)
        future = wf.reduce_sum(target * wf.one_hot(best, len(MOVES)), 1)
        expected = wf.stop_gradient(rewards + DISCOUNT * (1.0 - rewards) * future)
        estimate = wf.reduce_sum(values * wf.one_hot(actions, len(MOVES)), 1)
        loss = wf.losses.huber_loss(expected, estimate)
        step = wf.train.get_or_create_global_step()
        train = wf.train.AdamOptimizer(1e-3).minimize(loss, global_step=step)
        pairs = zip(wf.global_variables("target"), wf.trainable_variables("online"), strict=True)
        with wf.control_dependencies([train]):
            copies = wf.cond(
                wf.equal(step % 100, 0),
                lambda: wf.group(*[old.assign(new) for old, new in pairs]),
                wf.no_op,
            )

        def best_action(session: wf.train.MonitoredSession, feed: Any) -> int:
            # A step function runs without hooks, which count steps.
            moves = session.run_step_fn(lambda step_context: step_context.session.run(values, feed))
            return int(moves.argmax())

        def feeds(session: wf.train.MonitoredSession) -> Iterator[Mapping[wf.Tensor, Any]]:
            rng = np.random.default_rng(self.seed)
            replay, cell, length, count = Replay(rng), GOAL, 0, 0
            while True:
                if cell == GOAL or length == LONGEST:
                    cell, length = CELLS[rng.integers(len(CELLS))], 0
                action = int(rng.integers(len(MOVES)))
                if rng.random() > max(0.1, 1.0 - count / 1500):
                    action = best_action(session, {cells: observe([cell])})
                neighbor = move(cell, action)
                replay.add(cell, action, neighbor)
                cell, length, count = neighbor, length + 1, count + 1
                before, chosen, after = replay.sample()
                yield {
                    cells: observe(before),
                    following: observe(after),
                    actions: np.array(chosen, np.int32),
                    rewards: np.array([place == GOAL for place in after], np.float32),
                }

        return Training(copies, loss, feeds)

    def serving(self) -> Serving:
        """Return the values of all moves in a cell."""
        cell = wf.placeholder(wf.float32, [1, len(CELLS)], name="cell")
        return Serving([cell], {"moves": wf.identity(q_network(cell, "online"), name="moves")})

    def calibration(self) -> Sequence[Feeds]:
        """Return all cells."""
        return self.questions()

    def questions(self) -> Sequence[Feeds]:
        """Return all cells."""
        return [{"cell": observe([cell])} for cell in CELLS]

    def score(self, answers: Answers) -> float:
        """Return the share of cells from which the best moves are a shortest way to the goal."""
        best = {cell: int(answer.argmax()) for cell, answer in zip(CELLS, answers, strict=True)}
        shortest, hits = distances(), 0
        for cell in CELLS:
            place, length = cell, 0
            while place != GOAL and length <= len(CELLS):
                place, length = move(place, best[place]), length + 1
            hits += place == GOAL and length == shortest[cell]
        return hits / len(CELLS)


def q_network_again(cells: wf.Tensor) -> wf.Tensor:
    """Return the values of all moves, with the variables of the online network."""
    with wf.variable_scope(wf.get_variable_scope(), reuse=True):
        return q_network(cells, "online")


if __name__ == "__main__":
    sys.exit(main(Reinforcement))
