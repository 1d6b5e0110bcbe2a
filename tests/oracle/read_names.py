"""Write the public names of `tensorflow.compat.v1` to tensorflow_names.json: names, and no more."""

from __future__ import annotations

import inspect
import json
import os
import textwrap
from pathlib import Path
from typing import Any

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

FILE = Path(__file__).with_name("tensorflow_names.json")
DEPTH = 3
INTERNAL = ("compat", "python", "core", "tools", "contrib", "tf_decorator", "raw_ops", "v1")
"""Modules that are TensorFlow's own inside, or the same names again."""

OUT_OF_SCOPE = """autograph distribute estimator feature_column keras lite mixed_precision mlir
tpu types xla""".split()
"""Systems of their own beside graphs and sessions."""


def names(module: Any, path: str = "", depth: int = 0) -> dict[str, list[str]]:
    """Callables by namespace."""
    found: dict[str, list[str]] = {path: []}
    for name in sorted(vars(module).keys() | set(dir(module))):
        value = None if name.startswith("_") else getattr(module, name, None)
        if inspect.ismodule(value):
            # Keras loads late, and has no name before
            ours = "tensorflow" in getattr(value, "__name__", "") and name not in (
                *INTERNAL,
                *OUT_OF_SCOPE,
            )
            if ours and depth < DEPTH:
                found |= names(value, f"{path}.{name}".lstrip("."), depth + 1)
        elif callable(value):
            found[path].append(name)
    return found


def main() -> None:
    """Write the file."""
    import tensorflow.compat.v1 as tf

    spaces = {space: " ".join(listed) for space, listed in names(tf).items() if listed}
    lines = [
        f"{json.dumps(space)}: {json.dumps(textwrap.wrap(text, 96, break_on_hyphens=False))}"
        for space, text in sorted(spaces.items())
    ]
    body = ",\n".join(lines).replace('", "', '",\n "')
    FILE.write_text(f'{{"version": "{tf.__version__}",\n"names": {{\n{body}\n}}}}\n', "utf-8")


if __name__ == "__main__":
    main()
