"""A model as C source, for programs that have no files."""

from __future__ import annotations

from pathlib import Path
from typing import Final

_PER_LINE: Final = 24

_HEADER: Final = """/* A model and the memory to run it, written by `weft-lite build`. */
#ifndef WEFT_LITE_MODEL_H
#define WEFT_LITE_MODEL_H

#include "weft_lite.h"

#ifdef __cplusplus
extern "C" {{
#endif

#define WEFT_MODEL_BYTES {size}
#define WEFT_MODEL_MEMORY {memory} /* enough for wl_open where pointers have 32 bits */

extern const unsigned char weft_model[WEFT_MODEL_BYTES];

/* Verify and open the model in static memory. Opening it again resets the interpreter. */
wl_status weft_model_open(wl_interpreter **interpreter, wl_error *error);

#ifdef __cplusplus
}}
#endif
#endif
"""

_SOURCE: Final = """#include "weft_lite_model.h"

_Alignas(WL_ALIGNMENT) const unsigned char weft_model[WEFT_MODEL_BYTES] = {{
{numbers}
}};

static _Alignas(WL_ALIGNMENT) unsigned char memory[WEFT_MODEL_MEMORY];

wl_status weft_model_open(wl_interpreter **interpreter, wl_error *error) {{
  return wl_open(weft_model, sizeof weft_model, memory, sizeof memory, NULL, interpreter, error);
}}
"""


def model_files(model: Path, memory: int) -> dict[str, str]:
    """Return the header and the source of a model by file name.

    Args:
      model: a `.weftlite` file.
      memory: bytes that an interpreter of the model needs.
    """
    content = model.read_bytes()
    lines = [
        ",".join(map(str, content[start : start + _PER_LINE])) + ","
        for start in range(0, len(content), _PER_LINE)
    ]
    return {
        "weft_lite_model.h": _HEADER.format(size=len(content), memory=memory),
        "weft_lite_model.c": _SOURCE.format(numbers="\n".join(lines)),
    }


__all__ = ["model_files"]
