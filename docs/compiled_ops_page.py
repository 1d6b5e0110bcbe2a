"""Writes compiled-ops.md: which ops are compiled, and why the others are not.

    python docs/compiled_ops_page.py

It asks the code generator for every op of the conformance table. The suite checks that the page is
current.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

PAGE = Path(__file__).with_name("compiled-ops.md")
sys.path.insert(0, str(PAGE.parents[1] / "tests" / "support"))

from weft_testing.case_graph import CaseGraph  # noqa: E402
from weft_testing.cases import INTEGERS, SIGNED, Case, load_cases  # noqa: E402

from weft_compiler.generator import LlvmGenerator  # noqa: E402
from weft_compiler.lower.registry import update_of  # noqa: E402
from weft_graph.ir.node import Node  # noqa: E402
from weft_graph.ir.op_def import declaring_module, registered_ops  # noqa: E402

INTRODUCTION = """\
# Ops that are compiled

After reading this page you know which ops [the compiler](compiler.md) compiles to machine code. All
other ops run by their kernels, in the same steps.

- A compiled op is compiled for bool and all real types that it accepts.
- Complex numbers are compiled in Fourier transforms, arithmetic, and ops that move elements.
- Text and quantized types always use kernels.
- Values that decide a shape, such as axes, must be known before the step runs.

`docs/compiled_ops_page.py` generates this page from the conformance table.
"""
IN_PART = """
## Compiled in part

| Op | Runs with kernels for | Reason |
|---|---|---|
"""
BY_KERNELS = """
## By kernels

| Reason | Ops |
|---|---|
"""
NO_RULE = "it has no lowering rule"
OF_COMPLEX = "it has complex numbers"
OF_TEXT = "it has strings"
Reasons = dict[str, dict[str, set[str]]]
"""By op, and by why it is not compiled, or "", the types or forms."""


def text() -> str:
    """The page."""
    families: dict[str, list[str]] = defaultdict(list)
    in_part: list[str] = []
    others: dict[str, list[str]] = defaultdict(list)
    for family, cases in load_cases().items():
        for op, reasons in _reasons(cases).items():
            if "" not in reasons:
                others[_main_reason(reasons)].append(op)
                continue
            always = ("", OF_COMPLEX, OF_TEXT)
            left = {why: forms for why, forms in reasons.items() if why not in always}
            families[family].append(op)
            in_part += [f"| `{op}` | {_types(forms)} | {why} |\n" for why, forms in left.items()]
    parts = [INTRODUCTION, "\n## Compiled\n\n| Family | Ops |\n|---|---|\n"]
    parts += [f"| {family} | {_listed(ops)} |\n" for family, ops in sorted(families.items())]
    own = [name for name in registered_ops() if declaring_module(name).startswith("weft_")]
    updates = [name for name in own if update_of(name) is not None]
    parts += [f"| updates of variables | {_listed(updates)} |\n"]
    parts += [*([IN_PART, *sorted(in_part)] if in_part else ()), BY_KERNELS]
    parts += [f"| {why} | {_listed(ops)} |\n" for why, ops in sorted(others.items())]
    return "".join(parts)


def _listed(ops: Iterable[str]) -> str:
    return ", ".join(f"`{op}`" for op in sorted(set(ops)))


def _types(names: set[str]) -> str:
    """Element types, all integers in one word."""
    if names >= set(SIGNED):
        names = (names - set(INTEGERS)) | {"integers"}
    return ", ".join(sorted(names))


def _reasons(cases: Iterable[Case]) -> Reasons:
    """Return the answers of the generator for each op of a family."""
    found: Reasons = {}
    for case in cases:
        made = CaseGraph(case)
        for dtype, node in zip(case.dtypes, made.nodes, strict=True):
            why = unsupported_reason(node)
            form = dtype if len(case.dtypes) > 1 or not case.label else case.label
            found.setdefault(case.op, {}).setdefault(why, set()).add(form)
    return found


def unsupported_reason(node: Node) -> str:
    """Why a node is not compiled, in words that fit all ops that share the reason; or ""."""
    generator = LlvmGenerator()
    traits, values = node.traits, (*node.inputs, *node.outputs)
    names = {value.dtype.base_dtype.name for value in values}
    if "string" in names:
        return OF_TEXT
    if any(value.dtype.is_complex for value in values):
        return OF_COMPLEX if generator.unsupported_reason(node) else ""
    if any(re.match(r"qu?int", name) for name in names):
        return "it has quantized types"
    if not (generator.changes(node) or generator.reads(node)):
        if not node.outputs or traits.routes:
            return "it returns no values, or only routes them"
        if names & {"resource", "variant"}:
            return "it reads or returns a handle"
        if traits.stateful and not generator.uses_rng(node):
            return "it has state"
    why = generator.unsupported_reason(node)
    if not why.startswith("there is no lowering rule"):
        why = re.sub(r"machine code for .*", "machine code of its function", why)
        return re.sub(r" of b?u?[a-z]+\d+$", "", why)
    unknown = any(dims is None or None in dims for dims in (each.dims for each in node.outputs))
    return "the shapes of its results depend on values" if unknown else NO_RULE


def _main_reason(reasons: dict[str, set[str]]) -> str:
    """Return the reason that applies to most types."""
    return max(reasons, key=lambda why: (len(reasons[why]), why))


if __name__ == "__main__":
    PAGE.write_text(text(), encoding="utf-8")
