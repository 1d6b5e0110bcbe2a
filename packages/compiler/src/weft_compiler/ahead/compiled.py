"""Ahead-of-time compilation of models to relocatable objects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from weft_compiler.ahead.header import (
    MISPLACED,
    Parameter,
    header,
    parameters,
    rename_distinct,
    require_name,
)
from weft_compiler.ahead.lowering import program_of, resolve_shapes
from weft_compiler.ahead.objects import require_allowed, undefined_symbols
from weft_compiler.ahead.targets import machine_options, require_instructions
from weft_compiler.codegen.memory import ALIGNMENT
from weft_compiler.codegen.module import ENTRY, Module, module_of
from weft_compiler.codegen.options import Options
from weft_compiler.codegen.targets import Target, data_layout, object_code, target_of
from weft_compiler.ir.canonical import canonical
from weft_compiler.ir.program import Check, Program, walk
from weft_compiler.routines.registry import library_of
from weft_graph.ir.node import Output
from weft_tensor import errors


@dataclass(frozen=True, slots=True)
class Compiled:
    """A model as machine code.

    Attributes:
      name: name of its C function.
      target: the machine that it was compiled for.
      object: the relocatable object, with the weights in read-only data.
      header: the C header.
      inputs, outputs: the parameters of the function, in order.
      arena: the number of bytes that a call needs for temporaries.
      alignment: alignment of the arena.
      undefined: the undefined symbols of the object: memory functions, and on 32-bit processors
        compiler helpers for 64-bit integers.
      messages: error messages; the function returns the 1-based index of one, or 0.
      weights: size of the constants, in bytes.
    """

    name: str
    target: str
    object: bytes
    header: str
    inputs: tuple[Parameter, ...]
    outputs: tuple[Parameter, ...]
    arena: int
    alignment: int
    undefined: tuple[str, ...]
    messages: tuple[str, ...]
    weights: int

    def write(self, folder: str | Path) -> list[Path]:
        """Write the object and the header, `name.o` and `name.h`.

        Args:
          folder: is created if it does not exist.
        Returns: the two files.
        """
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        files = [folder / f"{self.name}.o", folder / f"{self.name}.h"]
        files[0].write_bytes(self.object)
        files[1].write_text(self.header, "utf-8")
        return files


def compile_graph(
    inputs: Mapping[str, Output],
    outputs: Mapping[str, Output],
    target: str = "native",
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    name: str = "model",
    cpu: str = "",
    features: str = "",
    contract: bool = True,
) -> Compiled:
    """Compile a part of a graph without variables to an object that C programs link.

    Args:
      inputs: the inputs of the function, by their names in C.
      outputs: the results of the function, likewise.
      target: the machine, such as "aarch64-linux"; "native" is this one.
      shapes: shapes of inputs whose shape is not fully known in the graph.
      name: name of the function.
      cpu: an LLVM processor name; by default the baseline of the target.
      features: additional LLVM features, such as "+dotprod".
      contract: as in `weft_compiler.codegen.options.Options`.
    Returns: the object, its header, and their description.
    Raises:
      InvalidArgumentError: a shape is unknown or exceeds the address space, the target or the
        name is invalid, there are no outputs, or two inputs are the same tensor.
      UnimplementedError: something cannot be compiled; lists all nodes.

    Examples:
      >>> from weft_compiler.ahead import compile_graph
      >>> x = wf.placeholder(wf.float32, [None, 3], name="x")
      >>> made = compile_graph({"x": x}, {"y": wf.exp(x)}, "aarch64-linux", shapes={"x": [2, 3]})
      >>> "int32_t model(const float *x, float *y, void *arena);" in made.header
      True
      >>> made.arena, made.undefined
      (0, ())
    """
    require_name(name)
    _require_ends(inputs, outputs)
    options = machine_options(target, cpu, features, contract)
    sizes = resolve_shapes(inputs, shapes or {})
    program = program_of(name, list(inputs.values()), list(outputs.values()), sizes)
    input_parameters = parameters(
        list(inputs), [operand.dtype.base_dtype for operand in inputs.values()], sizes
    )
    computed = parameters(
        list(outputs), [b.dtype for b in program.outputs], [b.shape for b in program.outputs]
    )
    return compile_program(program, input_parameters, computed, options, name, target)


def compile_program(
    program: Program,
    inputs: Sequence[Parameter],
    outputs: Sequence[Parameter],
    options: Options,
    name: str,
    label: str,
) -> Compiled:
    """Compile a verified program to an object, as `compile_graph` does after lowering."""
    input_names = [buffer for buffer in program.inputs if buffer.name not in program.constants]
    assert (len(input_names), len(program.outputs)) == (len(inputs), len(outputs)), program.name
    parameters = rename_distinct(inputs, outputs)
    inputs, outputs = parameters[: len(inputs)], parameters[len(inputs) :]
    target = target_of(options)
    _require_room(parameters, 4 if "-p:32:32" in data_layout(target) else 8)
    anonymous = canonical(program)
    module = module_of(anonymous, options)
    constants = _constants(anonymous)
    text = "\n".join(module_texts(name, anonymous, module, target, constants))
    libraries = dict.fromkeys((library_of(name), dtype) for name, dtype in module.routines)
    other_texts = [library.text(dtype, target) for library, dtype in libraries]
    require_instructions([text, *other_texts], target, label)
    image = object_code(text, target, other_texts)
    missing = undefined_symbols(image)
    require_allowed(missing, label)
    arena = module.shared + module.thread
    messages = tuple(
        statement.message for statement in walk(program.body) if isinstance(statement, Check)
    )
    about = f"{label}, {options.cpu}" if options.cpu else label
    written = header(name, about, inputs, outputs, arena, ALIGNMENT, messages)
    return Compiled(
        name,
        label,
        image,
        written,
        tuple(inputs),
        tuple(outputs),
        arena,
        ALIGNMENT,
        tuple(missing),
        messages,
        sum(map(len, set(constants.values()))),
    )


def _require_ends(inputs: Mapping[str, Output], outputs: Mapping[str, Output]) -> None:
    if not outputs:
        raise errors.InvalidArgumentError("a model must have at least one output")
    keys: dict[Output, str] = {}
    for key, operand in inputs.items():
        first = keys.setdefault(operand, key)
        if first != key:
            raise errors.InvalidArgumentError(
                f"each input must be a different tensor, got {operand.name} as {first!r} "
                f"and as {key!r}"
            )


def _require_room(parameters: Sequence[Parameter], pointer: int) -> None:
    for parameter in parameters:
        size = parameter.size * parameter.dtype.size
        if size >= 1 << (8 * pointer - 1):
            raise errors.InvalidArgumentError(
                f"{parameter.key} has {size} bytes, which exceeds the address space of "
                f"{8 * pointer} bits"
            )


def _constants(program: Program) -> dict[str, bytes]:
    """Return the bytes of constants in memory, in little-endian order."""
    names = {}
    for buffer in program.inputs:
        if buffer.name in program.constants:
            value = np.ascontiguousarray(program.constants[buffer.name])
            names[buffer.name] = value.astype(value.dtype.newbyteorder("<"), copy=False).tobytes()
    return names


_FUNCTION: Final = """
define i32 @{name}({parameters}) {{
entry:
  %place = ptrtoint ptr %arena to i64
  %beyond = and i64 %place, {mask}
  %aligned = icmp eq i64 %beyond, 0
  br i1 %aligned, label %run, label %misplaced
misplaced:
  ret i32 {misplaced}
run:
  %buffers = alloca [{count} x ptr], align 16
{stores}
  %result = call i32 @{entry}(ptr %buffers, ptr %arena, ptr @weft.calm, ptr null, i64 1)
  ret i32 %result
}}
"""


def module_texts(
    name: str,
    program: Program,
    module: Module,
    target: Target,
    constants: Mapping[str, bytes],
) -> list[str]:
    """Return the LLVM modules of an object: the program, its constants, and the entry function."""
    symbols = {
        content: f"@weft.constant.{index}" for index, content in enumerate(constants.values())
    }
    stores, call_arguments = [], []
    for index, buffer in enumerate((*program.inputs, *program.outputs)):
        is_argument = buffer.name not in constants
        pointer = f"%given.{index}" if is_argument else symbols[constants[buffer.name]]
        if is_argument:
            call_arguments.append(f"ptr {pointer}")
        stores.append(f"  %place.{index} = getelementptr ptr, ptr %buffers, i64 {index}")
        stores.append(f"  store ptr {pointer}, ptr %place.{index}")
    data = [
        f"{symbol} = internal constant [{len(content)} x i8] "
        f'c"{_escape(content)}", align {ALIGNMENT}'
        for content, symbol in symbols.items()
    ]
    function = _FUNCTION.format(
        name=name,
        parameters=", ".join([*call_arguments, "ptr %arena"]),
        mask=ALIGNMENT - 1 if module.shared + module.thread else 0,  # none may be anywhere
        misplaced=MISPLACED,
        count=max(1, len(program.inputs) + len(program.outputs)),
        stores="\n".join(stores),
        entry=ENTRY,
    )
    return [
        f'source_filename = "{name}"',
        f'target datalayout = "{data_layout(target)}"',
        module.text.replace(f"define i32 @{ENTRY}(", f"define internal i32 @{ENTRY}("),
        "@weft.calm = internal constant i32 0",
        *data,
        function,
    ]


_ESCAPES: Final = [f"\\{byte:02X}" for byte in range(256)]


def _escape(content: bytes) -> str:
    """Return bytes as the content of an LLVM string constant."""
    return "".join([_ESCAPES[byte] for byte in content])
