"""Record TensorFlow's results of all cases of this directory in expected.json.

    python tests/graph/control_flow/loops/record.py [name ...]

An interpreter with TensorFlow 2 and tf_keras is needed (weft's own environment has neither);
`tensorflow.compat.v1` without version 2 behavior is the reference.  Named cases are recorded anew
and the rest of the file is kept.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
from cases import CASES, results

EXPECTED = Path(__file__).parent / "expected.json"


def reference() -> Any:
    """The module that the cases run on."""
    os.environ.update(TF_USE_LEGACY_KERAS="1", CUDA_VISIBLE_DEVICES="", TF_CPP_MIN_LOG_LEVEL="3")
    import tensorflow.compat.v1 as tf

    tf.disable_v2_behavior()
    return tf


def plain(value: Any) -> Any:
    """`value` as JSON: seven digits of a float32, twelve of a float64."""
    if not isinstance(value, np.ndarray):
        return value
    if value.dtype.kind != "f":
        return value.tolist()
    digits = 7 if value.dtype == np.float32 else 12
    return np.vectorize(lambda v: float(f"{v:.{digits}g}"), otypes=[object])(value).tolist()


def text(found: dict[str, Any]) -> str:
    """A case as JSON, a line per array."""
    groups = []
    for key, values in found.items():
        if key in ("outputs", "gradients"):
            lines = ",\n   ".join(json.dumps(plain(value)) for value in values)
            groups.append(f'  "{key}": [\n   {lines}\n  ]')
        else:
            groups.append(f'  "{key}": {json.dumps(values)}')
    return "{\n" + ",\n".join(groups) + "\n }"


def main(names: list[str]) -> None:
    tf = reference()
    found = json.loads(EXPECTED.read_text())["cases"] if EXPECTED.exists() else {}
    for name in names or CASES:
        found[name] = results(tf, name)
    heading = {
        "generated_by": "tests/graph/control_flow/loops/record.py",
        "reference": f"tensorflow.compat.v1 of TensorFlow {tf.version.VERSION}, "
        f"NumPy {np.__version__}",
    }
    parts = [f'"{key}": {json.dumps(value)}' for key, value in heading.items()]
    cases = ",\n ".join(f'"{name}": {text(found[name])}' for name in CASES if name in found)
    parts.append(f'"cases": {{\n {cases}\n}}')
    EXPECTED.write_text("{\n" + ",\n".join(parts) + "\n}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
