"""Arduino libraries: the sources of the kernels that a model needs, and the model as C source."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from weft_lite import targets
from weft_lite.compiling import RUNTIME, sources
from weft_lite.errors import InvalidArgumentError
from weft_lite.interpreter import Interpreter
from weft_lite.packaging.model_source import model_files
from weft_lite.packaging.sbom import package_version
from weft_lite.watching import memory_bytes

SOURCES: Final = RUNTIME.parent / "arduino"

_EXCLUDED: Final = ("threads.h", "thread_pool.h", "threads.c")
_PROPERTIES: Final = """name=WeftLite
version={version}
author=The weft authors
maintainer=The weft authors
sentence=Runs a neural network converted by weft.
paragraph=Contains a model and the kernels that it needs. Nothing is allocated on the heap.
category=Data Processing
url=https://pypi.org/project/weftml-lite/
architectures=esp32,mbed,mbed_giga,mbed_nano,mbed_portenta,renesas_uno,rp2040,samd,stm32
includes=WeftLite.h
"""
_CONFIG: Final = """/* The kernels of the model, and settings that the Arduino IDE does not pass. */
#ifndef WEFT_LITE_CONFIG_H
#define WEFT_LITE_CONFIG_H

#if defined(__clang__)
#pragma clang fp contract(off)
#elif defined(__GNUC__)
#pragma GCC optimize("fp-contract=off", "no-strict-aliasing")
#endif

#define WL_SMALL_STACK 1
#define WL_PORTABLE_ONLY 1 /* without the files of other instruction sets */
#define WL_KERNELS(OP) {table}
{selected}

#endif
"""


def build(out: Path, models: Sequence[Path]) -> targets.BuildResult:
    """Write the folder `WeftLite`, an Arduino library with one model.

    Args:
      out: the folder to write to.
      models: one model.
    Returns: the folder; its size is that of its files.
    Raises:
      InvalidArgumentError: there is not exactly one model.
      DataLossError: the model is damaged.
    """
    if len(models) != 1:
        raise InvalidArgumentError(
            f"an Arduino library contains one model, got {len(models)}: pass --models MODEL"
        )
    kinds = targets.kinds_of(models)
    library = out / "WeftLite"
    if library.exists():
        shutil.rmtree(library)
    source = library / "src"
    source.mkdir(parents=True)
    for path in _runtime_files(kinds):
        shutil.copyfile(path, source / path.name)
    shutil.copyfile(SOURCES / "WeftLite.h", source / "WeftLite.h")
    # Structures are larger on this machine than with pointers of 32 bits.
    texts = model_files(models[0], memory_bytes(Interpreter(models[0])))
    texts["weft_lite_config.h"] = _config(kinds)
    for name, text in texts.items():
        (source / name).write_text(text, "utf-8")
    properties = _PROPERTIES.format(version=package_version())
    (library / "library.properties").write_text(properties, "utf-8")
    sketch = library / "examples" / "Run"
    sketch.mkdir(parents=True)
    shutil.copyfile(SOURCES / "Run.ino", sketch / "Run.ino")
    size = sum(path.stat().st_size for path in library.rglob("*") if path.is_file())
    return targets.BuildResult([library], size, kinds)


def _runtime_files(kinds: Sequence[str]) -> list[Path]:
    """Return the sources and headers of the kernels, without those of other processors."""
    files = [path for path in sources("arm") if targets.is_needed(path, kinds)]
    headers = [*RUNTIME.glob("*.h"), *RUNTIME.glob("*.inc")]
    return sorted(path for path in [*files, *headers] if path.name not in _EXCLUDED)


def _config(kinds: Sequence[str]) -> str:
    """Return the header that selects kernels."""
    table = " ".join(f"OP({kind})" for kind in kinds)
    selected = "\n".join(f"#define WL_WITH_{kind} 1" for kind in kinds)
    return _CONFIG.format(table=table, selected=selected)


__all__ = ["build"]
