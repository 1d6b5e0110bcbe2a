"""Dart packages with bindings (dart:ffi) of the functions and structures of the runtime.

The bindings are generated from the declarations of `weft_lite.library`, which Python uses itself.
"""

from __future__ import annotations

import ctypes
import shutil
from pathlib import Path
from typing import Any, Final, NamedTuple

from weft_lite import library
from weft_lite.compiling import RUNTIME
from weft_lite.packaging.sbom import package_version
from weft_lite.targets import BuildResult

SOURCE: Final = RUNTIME.parent / "dart" / "interpreter.dart"

_PUBSPEC: Final = """name: weft_lite
description: Runs neural networks converted by weft.
version: {version}
environment:
  sdk: ">=3.0.0 <4.0.0"
dependencies:
  ffi: ^2.0.0
"""
_HEAD: Final = """// Bindings of weft_lite.h, written by `weft-lite build`.
// ignore_for_file: non_constant_identifier_names

import 'dart:ffi';

"""


class _Type(NamedTuple):
    """A C type in Dart: in native signatures, and in Dart's own."""

    native: str
    dart: str


_TYPES: Final[dict[Any, _Type]] = {
    None: _Type("Void", "void"),
    ctypes.c_int: _Type("Int", "int"),
    ctypes.c_uint: _Type("UnsignedInt", "int"),
    ctypes.c_char: _Type("Char", "int"),
    ctypes.c_uint8: _Type("Uint8", "int"),
    ctypes.c_int32: _Type("Int32", "int"),
    ctypes.c_size_t: _Type("Size", "int"),
    ctypes.c_void_p: _Type("Pointer<Void>", "Pointer<Void>"),
    ctypes.c_char_p: _Type("Pointer<Char>", "Pointer<Char>"),
    ctypes.POINTER(ctypes.c_float): _Type("Pointer<Float>", "Pointer<Float>"),
    ctypes.POINTER(ctypes.c_int32): _Type("Pointer<Int32>", "Pointer<Int32>"),
}
_UINT64: Final = _Type("Uint64", "int")
_WIDE_FIELDS: Final = frozenset({"work_limit"})
"""Fields of 64 bits on all machines; on some, ctypes has one type for these and `size_t`."""

STRUCTURES: Final = {
    "WlError": library.Error,
    "WlConfig": library.Config,
    "WlInfo": library.Info,
    "WlOpInfo": library.OpInfo,
}
"""Structures by their names in Dart."""


def build(out: Path) -> BuildResult:
    """Write the folder `weft_lite`, a Dart package that needs the library of another build.

    Args: out: the folder to write to.
    Returns: the folder; its size is that of the bindings.
    """
    package = out / "weft_lite"
    if package.exists():
        shutil.rmtree(package)
    bindings = package / "lib" / "src" / "bindings.dart"
    bindings.parent.mkdir(parents=True)
    bindings.write_text(bindings_text(), "utf-8")
    shutil.copyfile(SOURCE, package / "lib" / "weft_lite.dart")
    pubspec = _PUBSPEC.format(version=package_version())
    (package / "pubspec.yaml").write_text(pubspec, "utf-8")
    return BuildResult([package], bindings.stat().st_size, [])


def bindings_text() -> str:
    """Return the source of the bindings."""
    structures = [_structure(name, kind) for name, kind in STRUCTURES.items()]
    functions = "\n".join(
        _function(name, result, arguments)
        for name, (result, arguments) in library.FUNCTIONS.items()
    )
    head = "/// The functions of weft_lite.h.\nclass WeftLiteBindings {\n"
    head += "  WeftLiteBindings(this._library);\n\n  final DynamicLibrary _library;\n\n"
    return _HEAD + "\n".join(structures) + "\n" + head + functions + "}\n"


def _function(name: str, result: Any, arguments: list[Any]) -> str:
    """Return the source of a function, which is looked up at its first use."""
    types = [_type_of(argument) for argument in arguments]
    native = ", ".join(kind.native for kind in types)
    dart = ", ".join(kind.dart for kind in types)
    back = _type_of(result)
    return (
        f"  late final {back.dart} Function({dart}) {name} = _library\n"
        f"      .lookupFunction<{back.native} Function({native}), {back.dart} Function({dart})>(\n"
        f"          '{name}');\n"
    )


def _structure(name: str, structure: type[ctypes.Structure]) -> str:
    """Return the source of a structure."""
    lines = [f"final class {name} extends Struct {{"]
    for field in structure._fields_:
        lines += _field(field[0], field[1])
    return "\n".join(lines) + "\n}\n"


def _field(name: str, kind: Any) -> list[str]:
    """Return the lines of a field of a structure."""
    if issubclass(kind, ctypes.Array):
        element = _type_of(kind._type_).native
        return [f"  @Array({kind._length_})", f"  external Array<{element}> {_camel(name)};"]
    dart_type = _UINT64 if name in _WIDE_FIELDS else _type_of(kind)
    note = [] if dart_type.native.startswith("Pointer") else [f"  @{dart_type.native}()"]
    return [*note, f"  external {dart_type.dart} {_camel(name)};"]


def _type_of(kind: Any) -> _Type:
    if kind in _TYPES:
        return _TYPES[kind]
    raise TypeError(f"{kind} has no type in Dart")


def _camel(name: str) -> str:
    """Return a name in Dart's style: zero_points becomes zeroPoints."""
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)


__all__ = ["STRUCTURES", "bindings_text", "build"]
