"""Compiled models behind `weft_lite.h`: libraries that apps link instead of the runtime."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final, NamedTuple

from weft_graph.ir.node import Output
from weft_lite.compiling import RUNTIME, system_compiler
from weft_lite.convert.graphs import graph_of
from weft_lite.convert.lowered import TYPES
from weft_lite.errors import LiteError
from weft_lite.interpreter import Interpreter
from weft_lite.schema import tables
from weft_lite.schema.codec import HEADER, decode
from weft_lite.targets import HEADERS, call, parts_of, zig, zig_target
from weft_lite.watching import verify_weights
from weft_tensor import errors

if TYPE_CHECKING:
    from weft_compiler.ahead import Compiled
    from weft_compiler.ahead.header import Parameter

SHIM: Final = RUNTIME.parent / "compiled" / "model.c"

_FLAGS: Final = ["-std=c11", "-O2", "-fvisibility=hidden", "-g0"]


class Library(NamedTuple):
    """A model compiled to a library.

    Attributes:
      files: the static library, the shared library if the system supports it, and the headers.
      compiled: the compiled model.
    """

    files: list[Path]
    compiled: Compiled


def build_compiled(
    model: Path,
    target: str,
    out: Path,
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    cpu: str = "",
    features: str = "",
) -> Library:
    """Build a library of a single model with the interface `weft_lite.h`.

    Args:
      model: a `.weftlite` file, or any source of `weft compile`.
      target: as for `weft_lite.targets.build`, on Linux, Android and WASI; "native" is this
        machine.
      out: the folder to write to.
      shapes: shapes of inputs with open sizes.
      cpu, features: as for `weft_compiler.ahead.compile_graph`.
    Returns: the library and the compiled model.
    Raises:
      InvalidArgumentError: the target is unknown, or a shape is open.
      UnimplementedError: some nodes cannot be compiled; the message lists them.
      LiteError: there is no C compiler for the target.
    """
    from weft_compiler.ahead import compile_graph
    from weft_compiler.ahead.sources import read_model

    content = _content(model) if model.suffix == ".weftlite" else b""
    key = "serving_default"
    if content:
        signatures = decode(content).model.signatures
        key = signatures[0].key if signatures else key
    inputs, outputs = read_model(model)
    compiled = compile_graph(
        inputs, outputs, machine_of(target), shapes=shapes, name="wl_model", cpu=cpu,
        features=features,
    )  # fmt: skip
    out.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=out) as folder:
        path = Path(folder)
        compiled.write(path)
        (path / "weft_lite_model.inc").write_text(
            _tables(compiled, inputs, content, key, cpu or target), "utf-8"
        )
        files = _link(target, path, out)
    headers = [out / name for name in HEADERS]
    for header in headers:
        shutil.copy(RUNTIME / header.name, header)
    return Library([*files, *headers], compiled)


def machine_of(target: str) -> str:
    """Return the compiler's name for a target.

    Raises: InvalidArgumentError: its system is not supported.
    """
    if target == "native":
        return target
    processor, system = parts_of(target)
    if system not in ("linux", "android", "wasi"):
        raise errors.InvalidArgumentError(
            f"models can be compiled for Linux, Android and WASI, got target {target!r}"
        )
    return f"{processor}-{system}"


def weftlite(
    path: Path,
    inputs: Sequence[str],
    outputs: Sequence[str],
    signature: str | None,
    tags: Sequence[str],
) -> tuple[dict[str, Output], dict[str, Output]]:
    """Return the source for `weft compile` from a `.weftlite` file."""
    if inputs or outputs or signature or tags:
        raise errors.InvalidArgumentError(
            f"{path} is read as a whole: names and a signature are not supported"
        )
    source = graph_of(_content(path))
    return source.inputs, source.outputs


def _content(path: Path) -> bytes:
    """Read and verify a `.weftlite` file, and return its bytes.

    Raises: DataLossError: the file is damaged.
    """
    content = path.read_bytes()
    try:
        verify_weights(Interpreter(model_content=content))
    except LiteError as error:
        raise errors.from_code(error.code)(f"{path}: {error}") from error
    return content


def _link(target: str, folder: Path, out: Path) -> list[Path]:
    """Link the static and the shared library of an object and its shim."""
    native_compiler = system_compiler() if target == "native" else None
    compiler = native_compiler or [
        *zig(),
        "cc",
        *([] if target == "native" else ["-target", zig_target(target)]),
    ]
    archiver = ["ar"] if native_compiler and shutil.which("ar") else [*zig(), "ar"]
    flags = [*_FLAGS, "-I", str(folder), "-I", str(RUNTIME)]
    system = "linux" if target == "native" else parts_of(target)[1]
    flags += [] if system == "wasi" else ["-fPIC"]
    if system == "android":
        flags += ["-nostdinc", "-isystem", str(RUNTIME / "bare"), "-fno-stack-protector"]
    sources = [SHIM] + (
        [RUNTIME / "threads.c"] if system == "linux" else []
    )  # apps may have a pool
    objects = [folder / "wl_model.o"]
    for source in sources:
        objects.append(folder / f"{source.stem}.o")
        call([*compiler, *flags, "-c", str(source), "-o", str(objects[-1])])
    archive = out / "libweft_lite.a"
    archive.unlink(missing_ok=True)
    call([*archiver, "rcs", str(archive), *map(str, objects)])
    if system != "linux":
        return [archive]
    shared = out / "libweft_lite.so"
    call([*compiler, "-shared", "-s", *map(str, objects), "-o", str(shared), "-lpthread"])
    return [archive, shared]


# ------------------------------------------------------------------------------ tables in C


def _tables(
    compiled: Compiled, inputs: Mapping[str, Output], content: bytes, key: str, processor: str
) -> str:
    """Return the C source of the tables that the shim includes."""
    from weft_compiler.ahead.header import quote

    interval = [*compiled.inputs, *compiled.outputs]
    count = len(compiled.inputs)
    rows = "\n".join(_row(item) for item in interval)
    data_arguments = ", ".join(
        [
            *[
                f"(const {p.c_type} *)(const void *)data[{index}]"
                for index, p in enumerate(compiled.inputs)
            ],
            *[
                f"({p.c_type} *)(void *)data[{count + index}]"
                for index, p in enumerate(compiled.outputs)
            ],
            "arena",
        ]
    )
    header = ", ".join(map(str, content[: HEADER.size + 4])) or "0"
    return f"""#include "{compiled.name}.h"

enum {{ INPUTS = {count}, OUTPUTS = {len(interval) - count}, FORMAT = {tables.VERSION} }};
#define ARENA ((size_t){compiled.arena})
#define FILE_SIZE ((size_t){len(content)})
#define FILE_HEADER {{{header}}}
#define SIGNATURE {quote(key)}
#define MODEL_NAME {quote(compiled.name)}
#define MODEL_ERROR {compiled.name}_error
#define PROCESSOR {quote(processor)}

static const wl_info TENSOR[] = {{
{rows}
}};

static int32_t compute(uint8_t *const *data, void *arena) {{
  return {compiled.name}({data_arguments});
}}
"""


def _row(parameter: Parameter) -> str:
    """Return the C initializer of a parameter's tensor description."""
    from weft_compiler.ahead.header import quote

    if parameter.dtype.name not in TYPES or len(parameter.shape) > 8:
        raise errors.UnimplementedError(
            f"weft_lite.h does not support the tensor {parameter.key}: {parameter.dtype.name} "
            f"{list(parameter.shape)}"
        )
    dims = ", ".join(map(str, parameter.shape)) or "0"
    size = parameter.size * parameter.dtype.size
    return (
        f"  {{.name = {quote(parameter.key)}, .dtype = {int(TYPES[parameter.dtype.name])}, "
        f".rank = {len(parameter.shape)}, .dims = {{{dims}}}, .declared = {{{dims}}}, .bytes = "
        f"{size}}},"
    )
