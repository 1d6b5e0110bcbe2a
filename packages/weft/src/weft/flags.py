"""`wf.flags`: absl's flags under TensorFlow's name."""

import functools as _functools
import sys as _sys
from collections.abc import Callable as _Callable, Iterator as _Iterator
from typing import Any as _Any

from absl import flags as _flags
from absl.flags import *

from weft import _lazy


class _Values:
    """absl's flags, which parse `sys.argv` if a flag is read before `wf.app.run`."""

    def __init__(self) -> None:
        vars(self)["_flags"] = _flags.FLAGS

    def __getattr__(self, name: str) -> _Any:
        flag_values = self._flags
        if name in flag_values and not flag_values.is_parsed():
            flag_values(_sys.argv, known_only=True)
        return getattr(flag_values, name)

    def __setattr__(self, name: str, value: _Any) -> None:
        setattr(self._flags, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._flags, name)

    def __call__(self, argv: list[str], known_only: bool = False) -> list[str]:
        remaining: list[str] = self._flags(argv, known_only=known_only)
        return remaining

    def _parse_flags(self) -> None:
        """Parse the flags, for programs that are older than absl's flags."""
        self._flags(_sys.argv, known_only=True)

    def __getitem__(self, name: str) -> _Any:
        return self._flags[name]

    def __setitem__(self, name: str, flag: _Any) -> None:
        self._flags[name] = flag

    def __contains__(self, name: str) -> bool:
        return name in self._flags

    def __iter__(self) -> _Iterator[str]:
        return iter(self._flags)

    def __len__(self) -> int:
        return len(self._flags)

    def __dir__(self) -> list[str]:
        return dir(self._flags)

    def __repr__(self) -> str:
        return repr(self._flags)


FLAGS = _Values()  # type: ignore[assignment]  # it stands for absl's

_NEW_NAMES = {"flag_name": "name", "default_value": "default", "docstring": "help"}


def _with_old_names(define: _Callable[..., _Any]) -> _Callable[..., _Any]:
    """Return a function that also accepts the argument names used before absl."""

    @_functools.wraps(define)
    def wrapper(*args: _Any, **kwargs: _Any) -> _Any:
        return define(*args, **{_NEW_NAMES.get(key, key): kwargs[key] for key in kwargs})

    return wrapper


DEFINE_bool = _with_old_names(_flags.DEFINE_bool)
DEFINE_boolean = _with_old_names(_flags.DEFINE_boolean)
DEFINE_float = _with_old_names(_flags.DEFINE_float)
DEFINE_integer = _with_old_names(_flags.DEFINE_integer)
DEFINE_string = _with_old_names(_flags.DEFINE_string)

_lazy.hint(__name__)
