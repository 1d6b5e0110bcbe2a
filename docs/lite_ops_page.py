"""Writes lite-ops.md: the operations of lite's runtime, and the ops of graphs that become them.

    python docs/lite_ops_page.py

Types are what the runtime's kernels say; families, operands and the rest are read from the comments
of `OpKind`. The suite checks that the page is current.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from ctypes import byref, c_int, c_uint32
from pathlib import Path

from weft_graph.ir.op_def import declaring_module, registered_ops
from weft_lite.convert.registry import rules
from weft_lite.convert.scalars import find_rule
from weft_lite.library import load
from weft_lite.schema import enums

PAGE = Path(__file__).with_name("lite-ops.md")
PACKED = {  # operands that are packed, by operation
    "Conv2D": "filter: PANELS; PANELS4 with int8",
    "FullyConnected": "weights: PANELS; PANELS4 of int8 with int8 or float32",
    "LstmCell": "weights: PANELS; PANELS4 of int8",
    "GruCell": "weights: PANELS; PANELS4 of int8",
}
INTRODUCTION = """\
# Operations of lite

After reading this page you know which operations the runtime of [lite](lite.md) has, and which ops
of graphs are converted to them.

- *Types* are the element types of the first operand. int8, uint8 and int16 are quantized, except in
  operations that only move or compare values.
- *Layout* names the operands that the converter packs. Others are stored in row-major order, images
  as (batch, height, width, channels).
- *In place* means that the result may reuse the buffer of an operand.

`docs/lite_ops_page.py` generates this page from the runtime.
"""
RULES = """\
## Ops of graphs

These ops of a graph are converted to operations of lite. For others, the conversion raises an error
that lists all of them with the lines that created them.
"""


def text() -> str:
    """The page."""
    parts = [INTRODUCTION]
    for family, kinds in families():
        parts.append(f"\n## {family}\n\n| Operation | Operands | Types | Layout | In place |\n")
        parts.append("|---|---|---|---|---|\n")
        parts += [f"| {name} | {operands} | {about(name)} |\n" for name, operands in kinds]
    names = ", ".join(f"`{name}`" for name in registered_ops() if is_listed(name))
    return "".join([*parts, f"\n{RULES}\n{names}\n"])


def is_listed(op: str) -> bool:
    """Return True if an op of weft converts, by a rule or by its scalar definition."""
    return op in rules or (
        declaring_module(op).startswith("weft_graph.") and find_rule(op) is not None
    )


def families() -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Each family with its operations and what is said of their operands."""
    source = Path(enums.__file__).read_text(encoding="utf-8").partition("class OpKind")[2]
    for block in re.split(r"^    # ", source, flags=re.MULTILINE)[1:]:
        title, _, lines = block.partition("\n")
        found = re.findall(r"^    (\w+) = \d+(?:  # (.*))?$", lines, re.MULTILINE)
        yield title.partition(":")[0], found


def about(name: str) -> str:
    """The cells for types, layout and place."""
    types, in_place = c_uint32(), c_int()
    if load().wl_kernel_name(int(enums.OpKind[name]), byref(types), byref(in_place)) is None:
        raise LookupError(f"the runtime has no kernel for {name}")
    taken = [each.name.lower() for each in enums.DataType if types.value >> each & 1]
    every = not types.value or len(taken) == len(enums.DataType)
    said = "all" if every else ", ".join(taken)
    return f"{said} | {PACKED.get(name, '')} | {'yes' if in_place.value else ''}"


if __name__ == "__main__":
    PAGE.write_text(text(), encoding="utf-8")
