"""Record TensorFlow's results of all rows of the table in expected.json.

    python tests/integration/control_flow/record.py [--output FILE] [--scale FACTOR] [name ...]

An interpreter with TensorFlow 2 and tf_keras is needed (weft's own environment has none);
`tensorflow.compat.v1` without version 2 behavior and with the old control flow is the reference,
and the new control flow where the old one cannot. Named rows are recorded anew and the rest of the
file is kept. `--scale` multiplies all floating inputs.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

HERE = Path(__file__).parent
EXPECTED = HERE / "expected.json"


def load() -> ModuleType:
    """This directory as a package, which holds the table."""
    spec = importlib.util.spec_from_file_location(
        "control_flow_programs", HERE / "__init__.py", submodule_search_locations=[str(HERE)]
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def reference() -> ModuleType:
    """The module that the programs run on."""
    os.environ.update(TF_USE_LEGACY_KERAS="1", CUDA_VISIBLE_DEVICES="", TF_CPP_MIN_LOG_LEVEL="3")
    import tensorflow.compat.v1 as tf

    tf.disable_v2_behavior()
    return tf  # type: ignore[no-any-return]


def plain(value: Any) -> Any:
    """A value as JSON: its type, and its elements with as many digits as the type has."""
    array = np.asarray(value, object) if isinstance(value, bytes) else np.asarray(value)
    kind = array.dtype.name
    if kind == "object":
        return [
            "string",
            np.vectorize(lambda v: v.decode("latin-1"), otypes=[object])(array).tolist(),
        ]
    if array.dtype.kind == "c":
        return [kind, np.stack([array.real, array.imag], -1).astype(np.float64).tolist()]
    if array.dtype.kind in "fV":
        digits = 17 if kind == "float64" else 9
        return [
            kind,
            np.vectorize(lambda v: float(f"{v:.{digits}g}"), otypes=[object])(
                array.astype(np.float64)
            ).tolist()
            if array.size
            else array.tolist(),
        ]
    return [kind, array.tolist()]


def record(package: ModuleType, tf: ModuleType, row: Any) -> dict[str, Any]:
    """A row's values, and its derivatives as far as TensorFlow has them."""
    found: dict[str, Any] = {}
    for order in range(row.order + 1):
        attempts: dict[int, dict[str, Any]] = {}
        for version in versions(row, order):
            (tf.enable_control_flow_v2 if version == 2 else tf.disable_control_flow_v2)()
            attempts[version] = attempt(package, tf, row, order)
            if "error" not in attempts[version]:
                break
        best = next((v for v in attempts if "error" not in attempts[v]), max(attempts))
        found[f"order {order}"] = {"control_flow": best, **attempts[best]}
        if len(attempts) == 2:
            print(row.name, order, {k: v.get("message", "") for k, v in attempts.items()})  # noqa: T201 - progress
    tf.disable_control_flow_v2()
    return found


def versions(row: Any, order: int) -> tuple[int, ...]:
    """Return the versions of control flow to try; the first one that works is used.

    The old one has no second gradients of loops: it says so, or leaves terms out.
    """
    if row.refused:
        return (1,)
    return (1, 2) if order + row.hidden < 2 else (2,)


def attempt(package: ModuleType, tf: ModuleType, row: Any, order: int) -> dict[str, Any]:
    """One way to record one order: the runs, or the error that came instead."""
    try:
        built = package.build(tf, row, order)
        if len(built.derivatives) < order:
            return {"error": "NotDifferentiable", "message": "nothing to differentiate"}
        runs = package.run(tf, row, built)
    except (tf.errors.OpError, ValueError, TypeError, LookupError, AttributeError) as error:
        return {"error": type(error).__name__, "message": str(error).partition("\n")[0][:200]}
    return {"kinds": built.kinds, "runs": [_plain_run(each) for each in runs]}


def _plain_run(run: Mapping[str, Any]) -> dict[str, Any]:
    return {key: {name: plain(v) for name, v in values.items()} for key, values in run.items()}


def scaled(row: Any, factor: float) -> Any:
    """A row with other floating inputs."""
    feeds = [
        {k: v * v.dtype.type(factor) if v.dtype.kind in "fc" else v for k, v in feed.items()}
        for feed in row.feeds
    ]
    return type(row)(**{**vars(row), "feeds": feeds})


def text(found: Mapping[str, Any]) -> str:
    """Rows as JSON, a line for each order."""
    rows = []
    for name, orders in found.items():
        lines = ",\n".join(f'   "{key}": {json.dumps(value)}' for key, value in orders.items())
        rows.append(f'  "{name}": {{\n{lines}\n  }}')
    return "{\n" + ",\n".join(rows) + "\n }"


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", type=Path, default=EXPECTED)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("names", nargs="*")
    options = parser.parse_args(arguments)
    package, tf = load(), reference()
    found = json.loads(options.output.read_text())["rows"] if options.output.exists() else {}
    for name in options.names or package.TABLE:
        found[name] = record(package, tf, scaled(package.TABLE[name], options.scale))
        print(name, {k: v.get("error", v["control_flow"]) for k, v in found[name].items()})  # noqa: T201 - progress
    kept = {name: found[name] for name in package.TABLE if name in found}
    version = f"tensorflow.compat.v1 of TensorFlow {tf.version.VERSION}, NumPy {np.__version__}"
    options.output.write_text(
        '{\n "generated_by": "tests/integration/control_flow/record.py",\n'
        f' "reference": "{version}",\n "rows": {text(kept)}\n}}\n'
    )


if __name__ == "__main__":
    main(sys.argv[1:])
