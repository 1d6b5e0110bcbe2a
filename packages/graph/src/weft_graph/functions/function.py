"""Functions of a graph's library, which programs call."""

from __future__ import annotations

__all__ = ["call_function"]

from collections.abc import Callable, Sequence
from typing import Any

from weft_graph.functions.call import add_call
from weft_graph.functions.definition import FunctionDefinition
from weft_graph.ir.default_graph import get_default_graph
from weft_graph.ir.node import Output
from weft_tensor import errors


class Function(FunctionDefinition):
    """A function that can be called in graphs; see `FunctionDefinition`.

    Attributes:
      package: converts the results and node of a call to the caller's result; None for a list.
    """

    package: Callable[..., Any] | None = None

    def __call__(self, *args: Any, name: str | None = None) -> Any:
        """Call it in the default graph; return results in the structure of the Python function."""
        node, results = add_call(self, args, name)
        if self.package is not None:
            return self.package(results, node)
        if not results:
            return node
        return results[0] if len(results) == 1 else results

    @property
    def captured_inputs(self) -> list[Output]:
        """The values from outside that the body uses."""
        return list(self.captured or ())

    @property
    def function_def(self) -> Any:
        """The function as a `FunctionDef` message."""
        return self.definition


def call_function(function: Any, args: Sequence[Any] = (), name: str | None = None) -> Any:
    """Call a function of the default graph's library.

    Args:
      function: its name, or the function itself, which is then added to the library with the
        functions that it calls.
      args: values that convert to tensors, one for each input. Captured values may be omitted if
      the outer graph or an existing call provides them.
      name: name of the call; the function's by default.
    Returns: its result, a list of several results, or the node if there is none.
    Raises:
      NotFoundError: there is no function of that name.
      AlreadyExistsError: the library has another function of that name.
      InvalidArgumentError: the number of arguments or a shape does not fit.
      InvalidTypeError: an element type does not fit.

    Examples:
      >>> @wf.Defun(wf.float32, func_name="Twice")
      ... def twice(x):
      ...     return 2.0 * x
      >>> y = twice(wf.constant(1.0))
      >>> wf.Session().run(wf.call_function("Twice", [5.0]))
      np.float32(10.0)
    """
    graph = get_default_graph()
    callee_function = graph.functions[function] if isinstance(function, str) else function
    if not isinstance(callee_function, Function):
        raise errors.InvalidTypeError(f"a function or its name is required, got {function!r}")
    return callee_function(*args, name=name)
