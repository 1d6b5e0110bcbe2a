"""Dart bindings, compared with the header. No Dart compiler reads them here."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from weft_testing.lite_packages import check_sbom

from weft_lite.commands import main
from weft_lite.compiling import RUNTIME
from weft_lite.packaging import dart

HEADERS = (RUNTIME / "weft_lite.h").read_text("utf-8") + (RUNTIME / "threads.h").read_text("utf-8")


def test_the_bindings_have_the_functions_of_the_header(tmp_path: Path) -> None:
    assert main(["build", "--target", "dart", "-o", str(tmp_path)]) == 0
    package = tmp_path / "weft_lite"
    text = (package / "lib" / "src" / "bindings.dart").read_text("utf-8")
    declared = re.findall(r"^WL_API [^;]*?\b(wl_\w+)\(([^;]*)\);", HEADERS, re.MULTILINE)
    pattern = r"late final \S+ Function\(([^)]*)\) (wl_\w+) ="
    bound = {name: arguments for arguments, name in re.findall(pattern, text)}
    assert {name for name, _ in declared} == set(bound)
    for name, arguments in declared:
        count = 0 if arguments == "void" else len(split(arguments))
        assert len(split(bound[name])) == count, name
    wrapper = (package / "lib" / "weft_lite.dart").read_text("utf-8")
    assert set(re.findall(r"_bindings\.(wl_\w+)", wrapper)) <= set(bound)
    assert "ffi:" in (package / "pubspec.yaml").read_text("utf-8")
    assert {part["type"] for part in check_sbom(tmp_path)["components"]} == {"file"}


def split(arguments: str) -> list[str]:
    """Split a list of arguments at the commas outside parentheses."""
    flat = re.sub(r"\([^()]*\)", "", arguments)
    return [part for part in flat.split(",") if part.strip()]


@pytest.mark.parametrize(
    ("structure", "name"),
    [("wl_config", "WlConfig"), ("wl_info", "WlInfo"), ("wl_error", "WlError")],
)
def test_the_structures_have_the_fields_of_the_header(structure: str, name: str) -> None:
    (body,) = re.findall(rf"typedef struct {structure} {{(.*?)}} {structure};", HEADERS, re.DOTALL)
    body = re.sub(r"/\*.*?\*/", "", body, flags=re.DOTALL)
    fields = []
    for declaration in filter(str.strip, body.split(";")):
        if match := re.search(r"\(\*(\w+)\)", declaration):
            fields.append((match[1], "pointer"))
            continue
        kind = "pointer" if "*" in declaration else declaration.split()[0]
        kind = "pointer" if kind == "wl_parallel" else kind
        for part in declaration.split(","):
            fields.append((re.findall(r"(\w+)(?:\[\w+\])?\s*$", part)[0], kind))
    (found,) = re.findall(rf"class {name} extends Struct {{(.*?)^}}", dart.bindings_text(),
                          re.DOTALL | re.MULTILINE)  # fmt: skip
    names = re.findall(r"external .*? (\w+);", found)
    assert names == [dart._camel(field) for field, _ in fields]
    for field, kind in fields:
        before = found[: found.index(f" {dart._camel(field)};")].splitlines()[-2:]
        wide = "@Uint64()" in before[0]
        assert wide == (kind == "uint64_t"), field
