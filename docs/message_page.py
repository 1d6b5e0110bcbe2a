"""Makes the page of messages, from their descriptors and the comments in the `.proto` files.

A comment above a message or a field, or behind a field, says what it means in weft.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool

PROTO = Path(__file__).parents[1] / "packages" / "graph" / "src" / "weft_graph" / "proto"
SECTIONS = {  # file and title, in the order of the page
    "config": "Sessions and Runs",
    "rewriter": "Memory of steps",
    "step_stats": "Traces and costs",
    "graph": "Graphs",
    "tensor": "Tensors and shapes",
    "variable": "Variables",
    "meta_graph": "Savers, graphs with their collections, saved models",
    "summary": "Summaries and events",
    "example": "Examples",
    "cluster": "Clusters and devices",
}
OPTIONS = {  # a field of these without a comment is accepted and does nothing
    "ConfigProto",
    "FlightRecorderOptions",
    "GPUOptions",
    "GraphOptions",
    "OptimizerOptions",
    "RewriterConfig",
    "RunOptions",
}
NOTHING = "*no effect*"
INTRODUCTION = f"""\
Protocol buffer messages, with TensorFlow's field numbers. Many have a name in `wf`; all of them are
in `weft_graph.proto`. Where a field says {NOTHING}, it is accepted, so that programs for TensorFlow
run, and ignored.
"""
_BLOCK = re.compile(r"(message|enum|oneof) (\w+) \{")
_ITEM = re.compile(r"(?:.*\s)?(\w+) = -?\d+[^;]*;(?:\s*// (.*))?")


def blocks(names: Mapping[str, str]) -> list[str]:
    """The blocks of the page.

    Args:
      names: message to its public name, such as "wf.ConfigProto".
    """
    pool: Any = DescriptorPool()
    for file in FileDescriptorSet.FromString((PROTO / "weft.binpb").read_bytes()).file:
        pool.Add(file)
    files = {stem: pool.FindFileByName(f"{stem}.proto") for stem in SECTIONS}
    messages = {stem: list(_walk(file.message_types_by_name)) for stem, file in files.items()}
    there = {_path(message) for found in messages.values() for message in found}
    made = [INTRODUCTION]
    for stem, file in files.items():
        said = comments((PROTO / f"{stem}.proto").read_text(encoding="utf-8"))
        made.append(f"## {SECTIONS[stem]}\n")
        for message in sorted(messages[stem], key=lambda m: _root(m) not in names):
            made.append(_message(message, said, there, names.get(_path(message), "")))
        made += [_enum(enum, said) for enum in file.enum_types_by_name.values()]
    return made


def comments(text: str) -> dict[str, str]:
    """Return the comments in a `.proto` file on its messages, enums, fields and values."""
    said: dict[str, str] = {}
    path: list[str] = []
    above: list[str] = []
    for line in map(str.strip, text.splitlines()):
        if line.startswith("// "):
            above.append(line[3:])
            continue
        block, item = _BLOCK.match(line), _ITEM.match(line)
        if block:
            path.append("" if block[1] == "oneof" else block[2])
        elif line == "}":
            path.pop()
        words = " ".join([*above, *([item[2]] if item and item[2] else [])])
        if words and (block or item):
            said[".".join(filter(None, [*path, item[1] if item else ""]))] = words
        above = []
    return said


def _walk(messages: Mapping[str, Any]) -> Iterator[Any]:
    """Return messages with their nested messages, without map entries."""
    for message in messages.values():
        if not message.GetOptions().map_entry:
            yield message
            yield from _walk(message.nested_types_by_name)


def _path(descriptor: Any) -> str:
    return str(descriptor.full_name.removeprefix("weft."))


def _root(message: Any) -> str:
    return _path(message).partition(".")[0]


def _message(message: Any, said: Mapping[str, str], there: set[str], name: str) -> str:
    path = _path(message)
    about = filter(None, [f"`{name}`" if name else "", said.get(path)])
    lines = [f"{'#' * (3 + path.count('.'))} {path} {{ #{path} }}", "", ": ".join(about), ""]
    if message.fields:
        lines += ["| Field | Type | Default | Meaning |", "|---|---|---|---|"]
    nothing = NOTHING if _root(message) in OPTIONS else ""
    meanings = {field: said.get(f"{path}.{field.name}", nothing) for field in message.fields}
    for field, meaning in sorted(meanings.items(), key=lambda item: item[1] == NOTHING):
        kind = _type(field, there)
        lines.append(f"| `{field.name}` | {kind} | {_default(field)} | {meaning} |")
    return "\n".join([*lines, "", *(_enum(enum, said) for enum in message.enum_types)])


def _type(field: Any, there: set[str]) -> str:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        key, value = (_type(part, there) for part in field.message_type.fields)
        return f"map from {key} to {value}"
    kind = _element(field)
    shown = f"[{kind}](#{kind})" if kind in there else kind
    return f"list of {shown}" if field.is_repeated else shown


def _element(field: Any) -> str:
    described = field.message_type or field.enum_type
    if described is not None:
        return _path(described)
    return str(FieldDescriptorProto.Type.Name(field.type).removeprefix("TYPE_").lower())


def _default(field: Any) -> str:
    if field.is_repeated:
        return "empty"
    if field.containing_oneof is not None:
        return f"one of `{field.containing_oneof.name}`"
    if field.enum_type is not None:
        return f"`{field.enum_type.values[0].name}`"
    return "not set" if field.message_type is not None else f"`{field.default_value!r}`"


def _enum(enum: Any, said: Mapping[str, str]) -> str:
    path = _path(enum)
    values = []
    for value in enum.values:
        meaning = said.get(f"{path}.{value.name}")
        values.append(f"`{value.name}` = {value.number}" + (f" ({meaning})" if meaning else ""))
    about = f"{said[path]} " if path in said else ""
    return f"`{path}`: {about}{', '.join(values)}.\n"
