"""Write the public names of `tensorflow.compat.v1`: names, and no more.

Callables by namespace go to tensorflow_names.json; to raw_ops.txt what each of `tf.raw_ops` takes,
with "=" where it may be left out, and after "->" the names of its results where they have some.
"""

from __future__ import annotations

import inspect
import json
import os
import textwrap
from pathlib import Path
from typing import Any

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

FILE = Path(__file__).with_name("tensorflow_names.json")
RAW_OPS = Path(__file__).with_name("raw_ops.txt")
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


def raw_op(name: str, function: Any) -> str:
    """The line of one op."""
    parameters = inspect.signature(function).parameters.values()
    taken = [p.name + "=" * (p.default is not p.empty) for p in parameters if p.name != "name"]
    results = inspect.unwrap(function).__globals__.get(f"_{name}Output")
    named = ["->", *results._fields] if results is not None else []
    return " ".join([name, *taken, *named])


def main() -> None:
    """Write the files."""
    import tensorflow.compat.v1 as tf

    spaces = {space: " ".join(listed) for space, listed in names(tf).items() if listed}
    lines = [
        f"{json.dumps(space)}: {json.dumps(textwrap.wrap(text, 96, break_on_hyphens=False))}"
        for space, text in sorted(spaces.items())
    ]
    body = ",\n".join(lines).replace('", "', '",\n "')
    raw = [raw_op(name, f) for name, f in sorted(vars(tf.raw_ops).items()) if name[0].isupper()]
    RAW_OPS.write_text("\n".join(raw) + "\n", "utf-8")
    FILE.write_text(f'{{"version": "{tf.__version__}",\n"names": {{\n{body}\n}}}}\n', "utf-8")


if __name__ == "__main__":
    main()
