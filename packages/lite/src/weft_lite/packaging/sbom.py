"""Software bills of materials in the format CycloneDX 1.6."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

from weft_lite.targets import call, zig

NAME: Final = "sbom.cdx.json"
"""The file name of a bill of materials."""

_LICENSE: Final = "Apache-2.0"


def write_sbom(
    out: Path, files: Sequence[Path], target: str, kernels: Sequence[str], linked: Sequence[str]
) -> Path:
    """Write the bill of materials of a build.

    It has no date, and its serial number is derived from its content, so equal builds have equal
    bills.

    Args:
      out: the output folder.
      files: the files of the build; folders count with all their files.
      target: the target, for the name of the described component.
      kernels: the kinds of ops that the build computes.
      linked: parts of zig that are linked into the files: "compiler-rt", "musl", "mingw-w64" or
        "wasi-libc".
    Returns: the path of the bill.
    """
    root = f"weft-lite-{target}"
    parts = [_library(name) for name in linked]
    bill: dict[str, Any] = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "tools": {"components": [_tool()]},
            "component": {
                "type": "library",
                "bom-ref": root,
                "name": "weft-lite",
                "version": package_version(),
                "purl": f"pkg:pypi/weftml-lite@{package_version()}",
                "licenses": [{"license": {"id": _LICENSE}}],
                "properties": [
                    {"name": "weft:target", "value": target},
                    {"name": "weft:kernels", "value": " ".join(kernels)},
                ],
            },
        },
        "components": [*[_file(path, out) for path in _all_files(files)], *parts],
        "dependencies": [
            {"ref": root, "dependsOn": [part["bom-ref"] for part in parts]},
            *[{"ref": part["bom-ref"]} for part in parts],
        ],
    }
    digest = json.dumps(bill, sort_keys=True)
    bill["serialNumber"] = f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, digest)}"
    path = out / NAME
    path.write_text(json.dumps(bill, indent=2, sort_keys=True) + "\n", "utf-8")
    return path


def package_version() -> str:
    """Return the version of the package weftml-lite."""
    try:
        return version("weftml-lite")
    except PackageNotFoundError:  # sources that are not installed
        return "0"


def _tool() -> dict[str, Any]:
    """Return the component of the compiler."""
    return {"type": "application", "name": "zig", "version": call([*zig(), "version"]).strip()}


def _library(name: str) -> dict[str, Any]:
    """Return the component of a library that zig contains and links statically."""
    licenses = {
        "compiler-rt": {"license": {"id": "MIT"}},
        "musl": {"license": {"id": "MIT"}},
        "mingw-w64": {"license": {"id": "ZPL-2.1"}},
        "wasi-libc": {"expression": "Apache-2.0 WITH LLVM-exception OR Apache-2.0 OR MIT"},
    }
    supplier = {"name": "zig"}
    return {
        "type": "library",
        "bom-ref": name,
        "name": name,
        "version": call([*zig(), "version"]).strip(),
        "supplier": supplier,
        "licenses": [licenses[name]],
    }


def _file(path: Path, out: Path) -> dict[str, Any]:
    """Return the component of a file of the build."""
    name = path.relative_to(out).as_posix()
    content = hashlib.sha256(path.read_bytes()).hexdigest()
    return {
        "type": "file",
        "bom-ref": f"file:{name}",
        "name": name,
        "hashes": [{"alg": "SHA-256", "content": content}],
    }


def _all_files(files: Sequence[Path]) -> list[Path]:
    """Return files, and the files in folders, in a fixed order."""
    result: set[Path] = set()
    for path in files:
        inside = path.rglob("*") if path.is_dir() else [path]
        result.update(item for item in inside if item.is_file())
    return sorted(result)


__all__ = ["NAME", "package_version", "write_sbom"]
