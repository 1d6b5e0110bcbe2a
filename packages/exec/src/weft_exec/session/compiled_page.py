"""Reports about the compiled code of a step, as text and as a self-contained HTML page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import Any, Final

from weft_exec.session.graph_picture import graph_picture
from weft_graph.ir.compiled_function import CompiledFunction, FusedKernel, Roofline

HEADER: Final = ("kernel", "nodes", "MFLOP", "KB", "µs", "GFLOP/s", "GB/s", "of limit")
_NAME: Final = 44
_STYLE: Final = """
body{font:14px sans-serif;margin:1.5em;color:#222}table{border-collapse:collapse;margin:.6em 0}
th,td{padding:2px 9px;text-align:right;border-bottom:1px solid #ddd}td:first-child,th:first-child{
text-align:left}pre{background:#f6f6f6;padding:.7em;overflow:auto;max-height:40em}
tr.chosen{background:#fff2b8}.picture{overflow:auto;border:1px solid #ccc;max-height:85vh}
rect.chosen{stroke:#d1495b;stroke-width:3}summary{cursor:pointer}
"""
_SCRIPT: Final = """
document.addEventListener('click', event => {
  const of = event.target.closest('[data-kernel]');
  if (!of) return;
  const key = of.dataset.kernel;
  document.querySelectorAll('.chosen').forEach(each => each.classList.remove('chosen'));
  document.querySelectorAll(`[data-kernel="${key}"]`).forEach(each => each.classList.add('chosen'));
  document.querySelectorAll('pre[data-of]').forEach(each => each.hidden = each.dataset.of !== key);
});
"""


def text_of(
    functions: Sequence[CompiledFunction], limits: Roofline | None, remarks: bool = False
) -> Iterator[str]:
    """Yield lines about functions and their kernels.

    Args:
      remarks: True to add the remarks of the compiler's passes.
    """
    for function in functions:
        yield f"function {function.name}: {summary(function)}"
        function_limits = function.limits or limits
        rows = [HEADER, *[cells(kernel, function_limits) for kernel in function.kernels]]
        names = [row[0] if len(row[0]) <= _NAME else f"…{row[0][1 - _NAME :]}" for row in rows]
        width = max(map(len, names))
        for name, (_, *remaining) in zip(names, rows, strict=True):
            yield f"  {name:{width}}" + "".join(f"{cell:>10}" for cell in remaining)
        if remarks:
            yield from (f"  {remark}" for remark in function.remarks)
    of_processor = [function.arena_bytes for function in functions if function.limits is None]
    if len(of_processor) > 1:
        yield f"the functions work in one arena of {max(of_processor):,} bytes"
    yield from map(machine, all_limits(functions, limits))


def all_limits(
    functions: Sequence[CompiledFunction], limits: Roofline | None
) -> Sequence[Roofline]:
    """Return the distinct limits of functions: those of the CPU, if given, and of devices."""
    return list(dict.fromkeys(filter(None, [limits, *(function.limits for function in functions)])))


def summary(function: CompiledFunction) -> str:
    """Return a one-line summary of a function's size and times."""
    count = len(function.kernels)
    often = f" in each of {function.calls} calls" if function.calls != 1 else ""
    origin = "read from the disk" if function.from_disk else "compiled"
    return (
        f"{len(function.members)} nodes in {count} kernel{'s' if count != 1 else ''}, "
        f"{function.seconds * 1e6:.1f} µs{often}, arena of {function.arena_bytes:,} bytes, "
        f"lowered in {function.lowering_seconds * 1e3:.0f} ms, "
        f"machine code {origin} in {function.compile_seconds * 1e3:.0f} ms"
    )


def machine(limits: Roofline) -> str:
    """Return the limits as one line."""
    return (
        f"limits, {limits.said}: {limits.bandwidth / 1e9:.1f} GB/s of memory, "
        f"{limits.float32 / 1e9:.1f} GFLOP/s of float32, {limits.float64 / 1e9:.1f} of float64"
    )


def cells(kernel: FusedKernel, limits: Roofline | None) -> tuple[str, ...]:
    """Return the cells of a kernel's row under `HEADER`; unknown values are shown as a dash."""
    seconds, flops = kernel.seconds, kernel.flops
    share = None if limits is None else kernel.least_seconds(limits)
    return (
        kernel.name,
        str(len(kernel.nodes)),
        "–" if flops is None else f"{flops / 1e6:.3f}",
        f"{kernel.bytes / 1e3:.1f}",
        "–" if seconds is None else f"{seconds * 1e6:.2f}",
        _rate(flops, seconds, 1e-9, 1),
        _rate(kernel.bytes, seconds, 1e-9, 1),
        _rate(share, seconds, 1, 2),
    )


def _rate(amount: float | None, seconds: float | None, scale: float, digits: int) -> str:
    if amount is None or not seconds:
        return "–"
    return f"{amount * scale / seconds:.{digits}f}"


def page(
    parts: Sequence[Any], functions: Sequence[CompiledFunction], limits: Roofline | None, text: str
) -> str:
    """Return an HTML document with tables, the picture of the graph, loops and assembly.

    Args:
      parts: the partitions as `GraphDef`s.
      text: the text report.
    """
    body: list[str] = []
    for index, function in enumerate(functions):
        body += _function(index, function, limits)
    return "\n".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
            "style-src 'unsafe-inline'; script-src 'unsafe-inline'\">",
            f"<title>A step, explained</title><style>{_STYLE}</style></head><body>",
            "<h1>A step, explained</h1>",
            *[f"<p>{escape(machine(limit))}</p>" for limit in all_limits(functions, limits)],
            "<p>A kernel of the table or the picture shows its loops when it is clicked.</p>",
            *body,
            "<h2>Graph</h2>",
            f'<div class="picture">{graph_picture(parts, functions)}</div>',
            f"<h2>Report</h2><pre>{escape(text)}</pre>",
            f"<script>{_SCRIPT}</script></body></html>\n",
        ]
    )


def _function(index: int, function: CompiledFunction, limits: Roofline | None) -> Iterator[str]:
    yield f"<h2>{escape(function.name)}</h2><p>{escape(summary(function))}</p><table>"
    yield "<tr>" + "".join(f"<th>{escape(cell)}</th>" for cell in HEADER) + "</tr>"
    for number, kernel in enumerate(function.kernels):
        row = "".join(
            f"<td>{escape(cell)}</td>" for cell in cells(kernel, function.limits or limits)
        )
        yield f'<tr data-kernel="{index}-{number}">{row}</tr>'
    yield "</table>"
    for number, kernel in enumerate(function.kernels):
        yield f'<pre data-of="{index}-{number}" hidden>{escape(kernel.text)}</pre>'
    yield f"<details><summary>program</summary><pre>{escape(function.program)}</pre></details>"
    notes = escape("\n".join(function.remarks))
    yield f"<details><summary>remarks</summary><pre>{notes}</pre></details>"
    code = escape(function.assembly())
    yield f"<details><summary>assembly</summary><pre>{code}</pre></details>"
