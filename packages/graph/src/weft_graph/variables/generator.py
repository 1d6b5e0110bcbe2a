"""Random number generators with their state in a variable, which checkpoints save."""

from __future__ import annotations

__all__ = [
    "Algorithm",
    "Generator",
    "create_rng_state",
    "get_global_generator",
    "set_global_generator",
]

import enum
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from weft_graph.ir.builder import convert_to_tensor, out
from weft_graph.ir.default_graph import get_default_graph, name_scope
from weft_graph.ir.graph import Graph
from weft_graph.ir.node import Output
from weft_graph.ops.random import shape_tensor
from weft_graph.ops.stateful_random import STATE_SIZE
from weft_graph.variables.resource import ResourceVariable
from weft_tensor import dtypes, errors


class Algorithm(enum.Enum):
    """Algorithms of random number generators; only Philox is supported.

    Args:
      value: the number of a member, 1 to 3.

    Examples:
      >>> wf.random.Algorithm.PHILOX.value
      1
    """

    PHILOX = 1
    THREEFRY = 2
    AUTO_SELECT = 3


def _philox(algorithm: Any) -> int:
    """Return the number of Philox, after checking that it is requested."""
    name = algorithm
    if isinstance(algorithm, Algorithm):
        name = algorithm.name
    elif isinstance(algorithm, int):
        name = next((member.name for member in Algorithm if member.value == algorithm), algorithm)
    if str(name).lower() not in ("philox", "auto_select"):
        raise errors.InvalidArgumentError(
            f"requires the algorithm 'philox' or 'auto_select', got {algorithm!r}"
        )
    return Algorithm.PHILOX.value


def create_rng_state(seed: Any, alg: Any) -> Any:
    """Return the state of a generator with a seed.

    Args:
      seed: an integer, or integers of shape (N,), N up to 3.
      alg: "philox" or "auto_select", or an `Algorithm`.
    Returns: int64, shape (3,): the seed's 64-bit parts, the lowest first, then zeros.
    Raises: InvalidArgumentError: the seed has more than 192 bits, or the algorithm is not Philox.

    Examples:
      >>> wf.random.create_rng_state(7, "philox").tolist()
      [7, 0, 0]
    """
    _philox(alg)
    if isinstance(seed, int | np.integer):
        number, bits = int(seed), 64 * STATE_SIZE
        if not -(1 << bits - 1) <= number < 1 << bits:
            raise errors.InvalidArgumentError(f"a seed has at most {bits} bits, got {number}")
        parts = [number >> 64 * word & (1 << 64) - 1 for word in range(STATE_SIZE)]
        return np.array(parts, np.uint64).view(np.int64)
    words = np.asarray(seed)
    if words.ndim != 1 or len(words) > STATE_SIZE or words.dtype.kind not in "iu":
        raise errors.InvalidArgumentError(
            f"a seed must be an integer or up to {STATE_SIZE} integers, got {seed!r}"
        )
    return np.pad(words.astype(np.int64), (0, STATE_SIZE - len(words)))


class Generator:
    """A random number generator whose state is a variable.

    Each use advances the state in the same step, so two sessions that restore the same checkpoint
    generate the same numbers. The variable is initialized and saved like others.

    Args:
      copy_from: a generator whose state is copied at initialization.
      state: int64, shape (3,), if there is no `copy_from`.
      alg: "philox" or "auto_select", or an `Algorithm`.

    Examples:
      >>> generator = wf.random.Generator.from_seed(7)
      >>> x = generator.normal([3])
      >>> with wf.Session() as session:
      ...     session.run(wf.global_variables_initializer())
      ...     bool((session.run(x) != session.run(x)).all())
      True
    """

    _algorithm: int

    def __init__(self, copy_from: Any = None, state: Any = None, alg: Any = None) -> None:
        if (copy_from is None) == (state is None):
            raise errors.InvalidArgumentError("a Generator requires either copy_from or a state")
        if copy_from is not None:
            self._algorithm, state = copy_from.algorithm, copy_from.state.read_value()
        else:
            self._algorithm = _philox("auto_select" if alg is None else alg)
        self._splits = 0
        with name_scope(None, "random_generator"):
            self._state = ResourceVariable(
                _to_state(state), trainable=False, name="StateVar", dtype=dtypes.int64
            )

    @classmethod
    def from_state(cls, state: Any, alg: Any) -> Generator:
        """Return a generator with a state.

        Args:
          state: int64, shape (3,), such as the result of `create_rng_state`.
          alg: "philox" or "auto_select", or an `Algorithm`.

        Examples:
          >>> generator = wf.random.Generator.from_state([1, 2, 3], "philox")
          >>> generator.state.shape
          TensorShape([Dimension(3)])
        """
        return cls(state=state, alg=alg)

    @classmethod
    def from_seed(cls, seed: Any, alg: Any = None) -> Generator:
        """Return a generator with a seed.

        Args:
          seed: an integer, or up to 3 of them.
          alg: "philox" or "auto_select", or an `Algorithm`.

        Examples:
          >>> wf.random.Generator.from_seed(7).algorithm
          1
        """
        algorithm = "auto_select" if alg is None else alg
        return cls(state=create_rng_state(seed, algorithm), alg=algorithm)

    @classmethod
    def from_non_deterministic_state(cls, alg: Any = None) -> Generator:
        """Return a generator seeded with system entropy at initialization.

        Args:
          alg: "philox" or "auto_select", or an `Algorithm`.

        Examples:
          >>> wf.random.Generator.from_non_deterministic_state().algorithm
          1
        """
        state = out("NonDeterministicInts", [np.array([STATE_SIZE])], {"dtype": dtypes.int64})
        return cls(state=state, alg=alg)

    @classmethod
    def from_key_counter(cls, key: Any, counter: Any, alg: Any) -> Generator:
        """Return a generator with a key and a counter.

        Args:
          key: int64, rank 0.
          counter: int64, shape (2,), the low half first.
          alg: "philox" or "auto_select", or an `Algorithm`.

        Examples:
          >>> wf.random.Generator.from_key_counter(5, [0, 0], "philox").algorithm
          1
        """
        return cls(state=_join_state(key, counter), alg=alg)

    @property
    def state(self) -> ResourceVariable:
        """The state variable: int64, shape (3,): the counter's low and high half, and the key."""
        return self._state

    @property
    def algorithm(self) -> int:
        """The number of the algorithm, that of `Algorithm.PHILOX`."""
        return self._algorithm

    @property
    def key(self) -> Output:
        """The key: int64, rank 0."""
        return self._state.read_value()[2]

    def reset(self, state: Any) -> Any:
        """Return a node that replaces the state: int64, shape (3,)."""
        return self._state.assign(_to_state(state))

    def reset_from_seed(self, seed: Any) -> Any:
        """Return a node that replaces the state by that of `from_seed`."""
        return self.reset(create_rng_state(seed, self._algorithm))

    def reset_from_key_counter(self, key: Any, counter: Any) -> Any:
        """Return a node that replaces the state by that of `from_key_counter`."""
        return self.reset(_join_state(key, counter))

    def skip(self, delta: Any) -> Output:
        """Advance the state as if `delta` numbers were generated; return the previous state.

        Args:
          delta: an integer of rank 0, not negative.
        Returns: int64, shape (3,).
        Raises: InvalidArgumentError: `delta` is a negative number.
        """
        if isinstance(delta, int | np.integer) and delta < 0:
            raise errors.InvalidArgumentError(f"delta must be at least 0, got {delta}")
        algorithm = np.int32(self._algorithm)
        count = out("Cast", [convert_to_tensor(delta)], {"DstT": dtypes.uint64})
        return out("RngReadAndSkip", [self._state.handle, algorithm, count])

    def _draw(
        self, op: str, shape: Any, dtype: Any, *parameters: Any, name: str | None = None
    ) -> Output:
        inputs = [self._state.handle, np.int64(self._algorithm), shape_tensor(shape), *parameters]
        return out(op, inputs, {"dtype": dtypes.as_dtype(dtype)}, name)

    def normal(
        self,
        shape: Any,
        mean: Any = 0.0,
        stddev: Any = 1.0,
        dtype: Any = dtypes.float32,
        name: str | None = None,
    ) -> Output:
        """Return normal numbers.

        Args:
          shape: shape of the result; `mean` and `stddev` broadcast to it.
          dtype: floating.
        """
        with name_scope(name, "stateful_normal") as scope:
            draws = self._draw("StatefulStandardNormalV2", shape, dtype)
            return _scale_and_shift(draws, mean, stddev, scope)

    def truncated_normal(
        self,
        shape: Any,
        mean: Any = 0.0,
        stddev: Any = 1.0,
        dtype: Any = dtypes.float32,
        name: str | None = None,
    ) -> Output:
        """Return normal numbers; those beyond two standard deviations are redrawn.

        Args:
          shape: shape of the result; `mean` and `stddev` broadcast to it.
          dtype: floating.
        """
        with name_scope(name, "truncated_normal") as scope:
            draws = self._draw("StatefulTruncatedNormal", shape, dtype)
            return _scale_and_shift(draws, mean, stddev, scope)

    def uniform(
        self,
        shape: Any,
        minval: Any = 0,
        maxval: Any = None,
        dtype: Any = dtypes.float32,
        name: str | None = None,
    ) -> Output:
        """Return uniform numbers in [minval, maxval).

        Args:
          shape: shape of the result.
          minval, maxval: the range; `maxval` is 1 by default, and required for integers.
          dtype: floating, int32, int64, uint32 or uint64.
        Raises: InvalidArgumentError: `maxval` is missing.
        """
        kind = dtypes.as_dtype(dtype)
        if maxval is None and kind.is_integer:
            raise errors.InvalidArgumentError(f"maxval must be given for {kind.name}")
        with name_scope(name, "stateful_uniform") as scope:
            low = convert_to_tensor(minval, kind)
            high = convert_to_tensor(1 if maxval is None else maxval, kind)
            if kind.is_integer:
                return self._draw("StatefulUniformInt", shape, kind, low, high, name=scope)
            draws = self._draw("StatefulUniform", shape, kind)
            return _scale_and_shift(draws, low, out("Sub", [high, low]), scope)

    def uniform_full_int(
        self, shape: Any, dtype: Any = dtypes.uint64, name: str | None = None
    ) -> Output:
        """Return uniform integers of the whole range of a type.

        Args:
          shape: shape of the result.
          dtype: int32, int64, uint32 or uint64.
        """
        name = name or "stateful_uniform_full_int"
        return self._draw("StatefulUniformFullInt", shape, dtype, name=name)

    def binomial(
        self,
        shape: Any,
        counts: Any,
        probs: Any,
        dtype: Any = dtypes.int32,
        name: str | None = None,
    ) -> Output:
        """Return binomially distributed numbers.

        Args:
          shape: shape of the result, to which the parameters broadcast.
          counts: numbers of trials, not negative.
          probs: probabilities of success, in [0, 1]; floating.
          dtype: element type of the result: float16, float32, float64, int32 or int64.
        """
        with name_scope(name, "binomial") as scope:
            chances = convert_to_tensor(probs)
            tries = out("Cast", [convert_to_tensor(counts)], {"DstT": chances.dtype.base_dtype})
            return self._draw("StatefulRandomBinomial", shape, dtype, tries, chances, name=scope)

    def make_seeds(self, count: int = 1) -> Output:
        """Generate seeds for stateless ops.

        Args:
          count: number of seeds.
        Returns: int64, shape (2, count); a column is a seed.
        """
        keys = self.uniform_full_int([count], dtypes.int64)
        return out("Pack", [[keys, out("ZerosLike", [keys])]])

    def split(self, count: int = 1) -> list[Generator]:
        """Return generators that are independent of each other and of this one.

        Their keys are derived from this generator's state at their initialization, which does not
        change, and from the number of earlier splits.

        Args:
          count: number of generators.
        """
        self._splits += 1
        state = self._state.read_value()
        seed = out("Pack", [[state[0] + state[1], state[2] - self._splits]])
        bounds = [np.int64(bound) for bound in (-(2**63), 2**63 - 1)]
        shape = np.array([count], np.int32)
        keys = out("StatelessRandomUniformInt", [shape, seed, *bounds])
        return [
            Generator.from_key_counter(keys[position], [0, 0], "philox")
            for position in range(count)
        ]


def _to_state(state: Any) -> Output:
    value = convert_to_tensor(state, dtypes.int64)
    if value.dims != (STATE_SIZE,):
        raise errors.InvalidArgumentError(
            f"the state of a Generator must have shape [{STATE_SIZE}], got {value.shape}"
        )
    return value


def _join_state(key: Any, counter: Any) -> Output:
    parts = [convert_to_tensor(counter, dtypes.int64), [convert_to_tensor(key, dtypes.int64)]]
    return out("ConcatV2", [parts, 0])


def _scale_and_shift(draws: Output, mean: Any, scale: Any, name: str) -> Output:
    """Return `draws` times `scale` plus `mean`."""
    dtype = draws.dtype
    scaled = out("Mul", [draws, convert_to_tensor(scale, dtype)])
    return out("AddV2", [scaled, convert_to_tensor(mean, dtype)], None, name)


_global: WeakKeyDictionary[Graph, Generator] = WeakKeyDictionary()


def get_global_generator() -> Generator:
    """Return the shared generator of the default graph, seeded with entropy at first use.

    Examples:
      >>> wf.random.get_global_generator() is wf.random.get_global_generator()
      True
    """
    graph = get_default_graph()
    generator = _global.get(graph)
    if generator is None:
        generator = _global[graph] = Generator.from_non_deterministic_state()
    return generator


def set_global_generator(generator: Generator) -> None:
    """Replace the shared generator of the default graph.

    Args:
      generator: a generator of that graph.

    Examples:
      >>> wf.random.set_global_generator(wf.random.Generator.from_seed(3))
    """
    _global[get_default_graph()] = generator
