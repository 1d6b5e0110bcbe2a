"""The C header of a compiled model."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from weft_tensor import errors
from weft_tensor.dtypes import DType

MISPLACED: Final = -3
"""Error code of a function that is called with an unaligned arena."""

_C: Final = {"bool": "uint8_t", "float32": "float", "float64": "double"}
_WORDS: Final = """
alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t
char32_t class co_await co_return co_yield compl concept const const_cast consteval constexpr
constinit continue decltype default delete do double dynamic_cast else enum explicit export extern
false float for friend goto if inline int long mutable namespace new noexcept not not_eq nullptr
operator or or_eq private protected public register reinterpret_cast requires restrict return
short signed sizeof static static_assert static_cast struct switch template this thread_local
throw true try typedef typeid typename typeof typeof_unqual union unsigned using virtual void
volatile wchar_t while xor xor_eq
int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t
NULL linux unix main memcpy memmove memset arena
"""
_RESERVED: Final = frozenset(_WORDS.split())
"""Reserved names: keywords of C and C++, types of the header, compiler macros, library functions,
and the name of the function's arena parameter."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """An input or output of a compiled model.

    Attributes:
      key: its name in the model.
      name: its name in C.
      dtype, shape: element type and shape of its elements, contiguous in C order.
    """

    key: str
    name: str
    dtype: DType
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def c_type(self) -> str:
        """The C type of its elements; 16-bit floats are `uint16_t`."""
        if self.dtype.name in _C:
            return _C[self.dtype.name]
        return f"{self.dtype.name}_t" if self.dtype.is_integer else "uint16_t"


def parameters(
    keys: Sequence[str], dtypes: Sequence[DType], shapes: Sequence[tuple[int, ...]]
) -> list[Parameter]:
    """Return inputs or outputs with valid C names."""
    results: list[Parameter] = []
    for key, dtype, shape in zip(keys, dtypes, shapes, strict=True):
        name = to_identifier(key)
        results.append(Parameter(key, name, dtype, shape))
    return results


def rename_distinct(inputs: Sequence[Parameter], outputs: Sequence[Parameter]) -> list[Parameter]:
    """Return all parameters, renamed so that no two names are equal when case is ignored."""
    names: dict[str, Parameter] = {}
    for parameter in (*inputs, *outputs):
        name, count = parameter.name, 1
        while name.upper() in names:
            name, count = f"{parameter.name}_{count}", count + 1
        names[name.upper()] = Parameter(parameter.key, name, parameter.dtype, parameter.shape)
    return list(names.values())


def to_identifier(text: str) -> str:
    """Convert a text to a valid C name."""
    name = re.sub(r"\W", "_", text, flags=re.ASCII) or "x"
    if name[0].isdigit() or name[0] == "_":
        name = f"x{name}"
    return f"{name}_" if name in _RESERVED else name


def require_name(name: str) -> None:
    """Raise unless the name is a valid function name in C.

    Raises: InvalidArgumentError: it is not.
    """
    if to_identifier(name) != name:
        raise errors.InvalidArgumentError(
            f"the name of a compiled model must be valid for a C function, such as "
            f"{to_identifier(name)!r}, got {name!r}"
        )


def header(
    name: str,
    label: str,
    inputs: Sequence[Parameter],
    outputs: Sequence[Parameter],
    arena: int,
    alignment: int,
    messages: Sequence[str],
) -> str:
    """Return the text of the header.

    Args:
      label: the description of the target.
      messages: error messages of checks, whose numbers start at 1.
    """
    upper = name.upper()
    parameters = [*inputs, *outputs]
    declarations = ", ".join(
        [
            *[f"const {operand.c_type} *{operand.name}" for operand in inputs],
            *[f"{operand.c_type} *{operand.name}" for operand in outputs],
            "void *arena",
        ]
    )
    sizes = "\n".join(
        f"#define {upper}_{operand.name.upper()}_SIZE {operand.size}" for operand in parameters
    )
    lines = "\n".join(f" *   {_describe(operand)}" for operand in parameters)
    cases = "\n".join(
        f"    case {number}: return {quote(message)};"
        for number, message in [*enumerate(messages, 1), (MISPLACED, "the arena is not aligned")]
    )
    return f"""/* {name}.h: a model compiled by weft for {label}. */
#ifndef {upper}_H
#define {upper}_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {{
#endif

#define {upper}_ARENA {arena} /* bytes */
#define {upper}_ALIGNMENT {alignment}
{sizes}

/* Compute
 *
{lines}
 *
 * Elements lie one after the other, those of the last axis beside each other. `arena` is memory of
 * {upper}_ARENA bytes at a multiple of {upper}_ALIGNMENT, whose content means nothing before and
 * after; threads that call this at once give one each. Outputs lie apart from everything else.
 *
 * Returns 0, or what {name}_error has words for. */
int32_t {name}({declarations});

static inline const char *{name}_error(int32_t status) {{
  switch (status) {{
    case 0: return "";
{cases}
    default: return "unknown";
  }}
}}

#ifdef __cplusplus
}}
#endif
#endif
"""


def _describe(parameter: Parameter) -> str:
    key = "" if parameter.key == parameter.name else f", {_to_plain_text(parameter.key)}"
    return f"{parameter.name}: {parameter.dtype.name} {list(parameter.shape)}{key}"


def _to_plain_text(text: str) -> str:
    """Return text on one line that cannot end a C comment."""
    return re.sub(r"[^ -~]", "?", text).replace("\\", "/").replace("*/", "* /").replace("/*", "/ *")


def quote(text: str) -> str:
    """Return a C string literal in UTF-8."""
    plain = [
        chr(byte) if 32 <= byte < 127 and chr(byte) not in '"\\?' else f"\\{byte:03o}"
        for byte in text.encode()
    ]
    return f'"{"".join(plain)}"'
