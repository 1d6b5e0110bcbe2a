"""Record TensorFlow's results of all programs of this directory in expected.json.

    python tests/integration/programs/record.py [name ...]

An interpreter with TensorFlow 2 and tf_keras is needed (weft's own environment has neither);
`tensorflow.compat.v1` without version 2 behavior is the reference.  Named programs are recorded
anew and the rest of the file is kept.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

HERE = Path(__file__).parent
EXPECTED = HERE / "expected.json"


def reference() -> tuple[ModuleType, str]:
    """The module that the programs run on, and its version."""
    os.environ.update(TF_USE_LEGACY_KERAS="1", CUDA_VISIBLE_DEVICES="", TF_CPP_MIN_LOG_LEVEL="3")
    import tensorflow.compat.v1 as tf

    tf.disable_v2_behavior()
    return tf, tf.version.VERSION


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def plain(value: Any) -> Any:
    """`value` as JSON: seven digits of a float are all that float32 has."""
    array = np.asarray(value)
    if array.dtype.kind == "f":
        return np.vectorize(lambda v: float(f"{v:.7g}"), otypes=[object])(array).tolist()
    return array.tolist()


def main(names: list[str]) -> None:
    tf, version = reference()
    recorded = json.loads(EXPECTED.read_text()) if EXPECTED.exists() else {}
    programs = recorded.get("programs", {})
    for path in sorted(HERE.glob("*.py")):
        if path.name != Path(__file__).name and (not names or path.stem in names):
            results = load(path).program(tf)
            programs[path.stem] = {key: plain(value) for key, value in sorted(results.items())}
    recorded = {
        "generated_by": "tests/integration/programs/record.py",
        "reference": f"tensorflow.compat.v1 of TensorFlow {version}, NumPy {np.__version__}",
        "programs": dict(sorted(programs.items())),
    }
    lines = json.dumps(recorded, indent=1).splitlines()
    EXPECTED.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
