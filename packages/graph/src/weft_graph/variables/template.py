"""Functions that share their variables between calls."""

from __future__ import annotations

__all__ = ["make_template"]

from collections.abc import Callable
from functools import partial
from typing import Any

from weft_graph.ir.default_graph import get_default_graph
from weft_graph.variables.scope import VariableScope, variable_scope
from weft_tensor import errors


def make_template(
    name_: str,
    func_: Callable[..., Any],
    create_scope_now_: bool = False,
    unique_name_: str | None = None,
    custom_getter_: Any = None,
    **kwargs: Any,
) -> Template:
    """Wrap `func_` so that later calls reuse the variables of the first call.

    Args:
      name_: name of the variable scope, made unique.
      func_: function that uses get_variable.
      create_scope_now_: create the scope now instead of at the first call.
      unique_name_: name of the variable scope, used unchanged.
      custom_getter_: custom getter of the scope.
      **kwargs: arguments for `func_`.

    Raises: InvalidArgumentError: `name_` is None.

    Examples:
      >>> def scale(x):
      ...     return x * wf.get_variable("scale", [], initializer=wf.ones_initializer())
      >>> shared = wf.make_template("shared", scale)
      >>> first, second = shared(1.0), shared(2.0)
      >>> len(wf.global_variables())
      1
    """
    if name_ is None:
        raise errors.InvalidArgumentError("the name of a template must not be None")
    function = partial(func_, **kwargs) if kwargs else func_
    return Template(name_, function, create_scope_now_, unique_name_, custom_getter_)


class Template:
    """The callable that `make_template` returns."""

    def __init__(
        self,
        name: str,
        func: Callable[..., Any],
        create_scope_now: bool = False,
        unique_name: str | None = None,
        custom_getter: Any = None,
    ) -> None:
        if not callable(func):
            raise errors.InvalidTypeError(f"make_template needs a function, got {func!r}")
        self._name = name
        self._func = func
        self._unique_name = unique_name
        self._custom_getter = custom_getter
        self._scope: VariableScope | None = None
        self._called = False
        if create_scope_now:  # the first call opens a name scope
            with self._open(auxiliary_name_scope=False) as scope:
                self._scope = scope

    def _open(self, auxiliary_name_scope: bool = True) -> variable_scope:
        return variable_scope(
            self._unique_name,
            self._name,
            custom_getter=self._custom_getter,
            auxiliary_name_scope=auxiliary_name_scope,
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function in its variable scope."""
        if self._scope is None:
            with self._open() as scope:
                self._scope = scope
                return self._call(args, kwargs)
        with variable_scope(self._scope, reuse=self._called or None):
            return self._call(args, kwargs)

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        trainable = len(get_default_graph().get_collection_ref("trainable_variables"))
        first = not self._called
        result = self._func(*args, **kwargs)
        self._called = True
        new_variables = get_default_graph().get_collection_ref("trainable_variables")[trainable:]
        if not first and new_variables:
            names = ", ".join(variable.name for variable in new_variables)
            raise errors.InvalidArgumentError(
                f"the template {self._name} created new variables in a later call: {names}; "
                "create them with get_variable, so that calls share them"
            )
        return result

    @property
    def name(self) -> str:
        """The name passed to the constructor."""
        return self._name

    @property
    def func(self) -> Callable[..., Any]:
        """The wrapped function."""
        return self._func

    @property
    def variable_scope(self) -> VariableScope | None:
        """The variable scope; None before the first call."""
        return self._scope

    @property
    def variable_scope_name(self) -> str | None:
        """The name of the variable scope."""
        if self._scope is None:
            return None
        return self._scope.name

    @property
    def var_scope(self) -> VariableScope | None:
        """Deprecated name of `variable_scope`."""
        return self._scope

    @property
    def variables(self) -> list[Any]:
        """The global and local variables of the template."""
        return self.global_variables + self.local_variables

    @property
    def trainable_variables(self) -> list[Any]:
        """The trainable variables of the template."""
        return [] if self._scope is None else self._scope.trainable_variables()

    @property
    def non_trainable_variables(self) -> list[Any]:
        """The variables of the template that are not trainable."""
        trainable = self.trainable_variables
        return [
            v
            for v in self.variables
            if all(v is not trainable_variable for trainable_variable in trainable)
        ]

    @property
    def weights(self) -> list[Any]:
        """Same as `variables`."""
        return self.variables

    @property
    def trainable_weights(self) -> list[Any]:
        """Same as `trainable_variables`."""
        return self.trainable_variables

    @property
    def non_trainable_weights(self) -> list[Any]:
        """Same as `non_trainable_variables`."""
        return self.non_trainable_variables

    @property
    def global_variables(self) -> list[Any]:
        """The global variables of the template."""
        return [] if self._scope is None else self._scope.global_variables()

    @property
    def local_variables(self) -> list[Any]:
        """The local variables of the template."""
        return [] if self._scope is None else self._scope.local_variables()
