"""Seeds of random ops: TensorFlow's rules from the graph's seed and an op's own."""

from __future__ import annotations

__all__ = ["get_seed", "set_random_seed"]

import operator
from typing import Any, Final

from weft_graph.ir.default_graph import get_default_graph
from weft_tensor import errors

DEFAULT_GRAPH_SEED: Final = 87654321
MODULUS: Final = 2**31 - 1


def get_seed(op_seed: int | None) -> tuple[int | None, int | None]:
    """Return the two seeds of the next op in the default graph.

    With a graph seed only, the op seed is the number of existing nodes, so that equal programs
    build equal graphs with equal streams. With an op seed only, the graph seed is a constant. With
    neither, both are None, and streams differ between sessions.

    Args:
      op_seed: the op's own seed, or None.
    Raises: InvalidTypeError: a seed is not an integer.

    Examples:
      >>> wf.set_random_seed(7)
      >>> wf.get_seed(None)[0]
      7
    """
    op_seed = _integer(op_seed)
    graph = get_default_graph()
    if graph.seed is not None:
        first, second = graph.seed, graph.version if op_seed is None else op_seed
    elif op_seed is not None:
        first, second = DEFAULT_GRAPH_SEED, op_seed
    else:
        return None, None
    seeds = first % MODULUS, second % MODULUS
    return (0, MODULUS) if seeds == (0, 0) else seeds


def set_random_seed(seed: int) -> None:
    """Set the seed of the default graph, for nodes created from now on.

    Args:
      seed: an integer.

    Examples:
      >>> wf.set_random_seed(7)
      >>> x = wf.random_normal([])
      >>> bool(wf.Session().run(x) == wf.Session().run(x))
      True
    """
    get_default_graph().seed = _integer(seed)


def _integer(seed: Any) -> int | None:
    try:
        return None if seed is None else operator.index(seed)
    except TypeError as cause:
        raise errors.InvalidTypeError(f"seed must be an integer or None, got {seed!r}") from cause
