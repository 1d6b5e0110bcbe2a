"""Two implementations that are fed the same batches: the first value in which they differ."""

from __future__ import annotations

__all__ = ["Program", "SessionRun", "compare_runs", "compare_targets"]

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from weft_exec.session.session import Session
from weft_graph import proto
from weft_graph.ir.graph import Graph
from weft_graph.ir.node import Node, Output
from weft_graph.variables.reference import global_variables, global_variables_initializer
from weft_io.porting.parameter_files import Array
from weft_io.porting.tables import format_table
from weft_io.porting.tolerances import Difference, compare_arrays, rounding_tolerance
from weft_tensor import errors

Batch: TypeAlias = Mapping[str, Any]
"""Values of the inputs of one step, by name."""

Run: TypeAlias = Callable[[Batch], Mapping[str, Any]]
"""Function that runs one step and returns the layers' values by name, in computation order."""


class SessionRun:
    """A program in a session, as a function from a batch to the values of its layers.

    Args:
      session: the session; its variables are initialized.
      fetches: the compared values by name: tensors, in the order in which they are computed.
      inputs: placeholders by the names of the batches' values.
      then: operations that run after the fetches of a step, such as a train op. They run in a
        separate step, so that all fetches use the same values of the variables.

    Examples:
      >>> x = wf.placeholder(wf.float32, [None])
      >>> with wf.Session() as session:
      ...     run = wf.porting.SessionRun(session, {"double": 2.0 * x}, {"x": x})
      ...     run({"x": [1.0, 2.0]})
      {'double': array([2., 4.], dtype=float32)}
    """

    def __init__(
        self,
        session: Any,
        fetches: Mapping[str, Output],
        inputs: Mapping[str, Output],
        then: Sequence[Node] = (),
    ) -> None:
        self._session = session
        self._fetches = dict(fetches)
        self._inputs = dict(inputs)
        self._then = list(then)

    def __call__(self, batch: Batch) -> dict[str, Array]:
        """Run a step. Raises: NotFoundError: the batch has a value for an unknown input."""
        unknown = sorted(set(batch) - set(self._inputs))
        if unknown:
            raise errors.NotFoundError(
                f"a batch has values for {', '.join(unknown)}; the inputs are "
                f"{', '.join(self._inputs)}"
            )
        feeds = {self._inputs[name]: value for name, value in batch.items()}
        result: dict[str, Array] = self._session.run(self._fetches, feeds)
        if self._then:
            self._session.run(self._then, feeds)
        return result


class StepDifference(NamedTuple):
    """The first value that differs between two runs.

    Attributes:
      step: number of the batch, from 0.
      name: name of the value.
      difference: None if the shapes differ.
      shapes: the shapes of both.
      tolerance: the accepted relative difference.
    """

    step: int
    name: str
    difference: Difference | None
    shapes: tuple[tuple[int, ...], tuple[int, ...]]
    tolerance: float


class RunComparison(NamedTuple):
    """The comparison of two runs.

    Attributes:
      num_steps: number of compared steps; the one with the first difference is the last.
      largest: the largest relative difference of each value over all steps.
      first: the first difference, or None if the runs agree.
    """

    num_steps: int
    largest: Mapping[str, float]
    first: StepDifference | None

    @property
    def agrees(self) -> bool:
        """Return True if there is no difference."""
        return self.first is None

    def __str__(self) -> str:
        rows = [(name, f"{error:.3g}") for name, error in self.largest.items()]
        table = format_table(("value", "largest relative difference"), rows)
        if self.first is None:
            return f"{table}\n\nthe runs agree in {self.num_steps} steps"
        step, name, difference, (ours, theirs), tolerance = self.first
        if difference is None:
            return f"{table}\n\nstep {step}: {name} has shape {ours} and {theirs}"
        return (
            f"{table}\n\nstep {step}: {name} is the first value that differs: "
            f"{difference.ours} and {difference.theirs} at {list(difference.position)}, relative "
            f"difference {difference.relative:.3g}, accepted {tolerance:.3g}"
        )


def compare_runs(
    first: Run,
    second: Run,
    batches: Iterable[Batch],
    exact: bool = False,
    tolerance: float | None = None,
) -> RunComparison:
    """Feed two implementations the same batches, and find the first value that differs.

    With a learning rate of 0, all values must agree in all steps. If they agree then, but not with
    another rate, the gradients or the optimizers differ.

    Args:
      first, second: functions from a batch to the values of its layers; `SessionRun` makes one from
        a session. Values are compared by name, in the order of `first`. Names that `second` lacks
        are an error.
      batches: the inputs of each step.
      exact: require equal bits.
      tolerance: accepted relative difference, of the largest magnitude of a value; by default what
        rounding explains for the value's type in sums of 1,000 terms.
    Raises: NotFoundError: `second` does not return a value of `first`.

    Examples:
      >>> def first(batch):
      ...     return {"hidden": batch["x"] * 2, "loss": batch["x"].sum()}
      >>> def second(batch):
      ...     return {"hidden": batch["x"] * 2, "loss": batch["x"].mean()}
      >>> result = wf.porting.compare_runs(first, second, [{"x": np.ones(3)}])
      >>> result.first.name
      'loss'
    """
    largest: dict[str, float] = {}
    step = -1
    for step, batch in enumerate(batches):
        ours, theirs = first(batch), second(batch)
        missing = sorted(set(ours) - set(theirs))
        if missing:
            raise errors.NotFoundError(
                f"the second run lacks {', '.join(missing)}; it returns {', '.join(theirs)}"
            )
        first_difference: StepDifference | None = None
        for name, value in ours.items():
            a, b = np.asarray(value), np.asarray(theirs[name])
            if a.shape != b.shape:
                first_difference = first_difference or StepDifference(
                    step, name, None, (a.shape, b.shape), 0.0
                )
                continue
            difference = compare_arrays(a, b)
            largest[name] = max(largest.get(name, 0.0), difference.relative)
            accepted = _resolve_tolerance(b, exact, tolerance)
            if not difference.relative <= accepted:
                shapes = a.shape, b.shape
                first_difference = first_difference or StepDifference(
                    step, name, difference, shapes, accepted
                )
        if first_difference:
            return RunComparison(step + 1, largest, first_difference)
    return RunComparison(step + 1, largest, None)


def _resolve_tolerance(value: Array, exact: bool, tolerance: float | None) -> float:
    if exact:
        return 0.0
    return rounding_tolerance(value.dtype, 1000) if tolerance is None else tolerance


class Program(NamedTuple):
    """A program as `compare_targets` runs it, built into the default graph.

    Args:
      fetches, inputs, then: as for `SessionRun`.

    Examples:
      >>> x = wf.placeholder(wf.float32, [])
      >>> wf.porting.Program({"double": 2.0 * x}, {"x": x}).then
      ()
    """

    fetches: Mapping[str, Output]
    inputs: Mapping[str, Output]
    then: Sequence[Node] = ()


def compare_targets(
    build: Callable[[str], Program],
    targets: tuple[str, str],
    batches: Iterable[Batch],
    exact: bool = True,
    seed: int = 0,
) -> RunComparison:
    """Run the same program on one task and on a cluster, step by step.

    Both sessions are deterministic and get the same batches. Their variables start with the values
    that the program has on the first target.

    Args:
      build: builds the program in the default graph, with the devices for a target. All variables
        have the same names on both targets.
      targets: the targets of the two sessions; "" is this process.
      exact: require equal bits. Sums over replicas need a tolerance if one target has more replicas
        than the other.
      seed: the graphs' random seed.
    Raises: InvalidArgumentError: the variables of the two programs differ.

    Examples:
      >>> def build(target):
      ...     x = wf.placeholder(wf.float32, [])
      ...     return wf.porting.Program({"double": 2.0 * x}, {"x": x})
      >>> server = wf.train.Server.create_local_server()
      >>> wf.porting.compare_targets(build, ("", server.target), [{"x": 1.0}]).agrees
      True
    """
    graphs = [Graph(), Graph()]
    sessions: list[Any] = []
    config = proto.ConfigProto()
    config.experimental.deterministic = True
    try:
        runs = []
        values: dict[str, Array] = {}
        for target, graph in zip(targets, graphs, strict=True):
            with graph.as_default():
                graph.seed = seed
                program = build(target)
                initializer = global_variables_initializer()
                variables = {variable.name: variable for variable in global_variables()}
                session = Session(target, config=config)
                sessions.append(session)
                session.run(initializer)
                if not values:
                    values = session.run({name: v.value() for name, v in variables.items()})
                elif set(values) != set(variables):
                    different = sorted(set(values) ^ set(variables))
                    raise errors.InvalidArgumentError(
                        f"the programs must have the same variables; {', '.join(different[:5])} "
                        "are not in both"
                    )
                else:
                    for name, variable in variables.items():
                        variable.load(values[name], session)
                runs.append(SessionRun(session, program.fetches, program.inputs, program.then))
        return compare_runs(runs[0], runs[1], batches, exact=exact)
    finally:
        for session in sessions:
            session.close()
