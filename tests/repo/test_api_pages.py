"""The API pages: every public function and class is on one, with its defaults and methods."""

from __future__ import annotations

import inspect
import re
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import griffe
import pytest

ROOT = Path(__file__).parents[2]
api: dict[str, Any] = runpy.run_path(str(ROOT / "tests" / "weft" / "write_api.py"))

THROUGH_NEW = {"type_enum", "value", "x", "name"}
"""Parameters of enumerations, of DType and of `wf.trace`, which have no `__init__`."""


@pytest.fixture(scope="module")
def pages() -> Iterator[ModuleType]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "docs"))
        import api_pages

        yield api_pages
    del sys.modules["api_pages"], sys.modules["message_page"]


def expected(namespace: str) -> set[str]:
    """The functions and classes of a namespace that weft defines, except messages."""
    names = set()
    for name in api["public"](namespace):
        value = getattr(api["find"](namespace), name)
        is_described = inspect.isroutine(value) or isinstance(value, type)
        is_message = hasattr(value, "DESCRIPTOR")
        module = getattr(value, "__module__", None) or ""
        if is_described and not is_message and module.startswith("weft"):
            names.add(name)
    return names


def test_every_public_function_and_class_is_on_a_page(pages: ModuleType) -> None:
    namespaces = sorted({namespace for namespace, _ in api["read"]()})
    assert len(namespaces) > 60
    missing = {}
    for namespace in namespaces:
        if api["find"](namespace) is not None:
            shown = {entry.name for entry in pages.entries().get(namespace, [])}
            missing[namespace] = sorted(expected(namespace) - shown)
    assert {namespace: names for namespace, names in missing.items() if names} == {}


def test_every_entry_has_a_heading_with_its_name(pages: ModuleType) -> None:
    blocks = {title: "\n".join(texts) for _, title, texts in pages.pages()}
    assert "::: weft.train.MonitoredTrainingSession\n" in blocks["wf.train"]
    assert "::: weft.RaggedTensor\n" in blocks["Input"] + blocks["Ragged tensors"]
    for namespace, entries in pages.entries().items():
        text = "\n".join(blocks.values()) if namespace == "wf" else blocks[namespace]
        for entry in entries:
            name = re.escape(f"{namespace}.{entry.name}")
            assert re.search(rf"(heading: |## ){name}$", text, re.MULTILINE), entry


def test_the_first_page_lists_every_namespace(pages: ModuleType) -> None:
    assert pages.LIST in (ROOT / "docs" / "api" / "index.md").read_text("utf-8")
    table = pages.namespaces()
    assert "| [wf.layers](wf.layers.md) | layers that create their variables |" in table
    listed = set(re.findall(r"^\| \[(wf[\w.]*)\]", table, re.MULTILINE))
    assert listed == pages.entries().keys() - {"wf"}


def test_short_names_have_more_weight_in_searches(pages: ModuleType) -> None:
    def boost(title: str) -> float:
        return float(pages.boost(f"api/page/#{title}", title))

    assert boost("wf.layers.conv2d") > boost("wf.layers.separable_conv2d")
    assert boost("wf.layers.conv2d") > boost("wf.layers.Conv2DTranspose")
    assert boost("wf.data.Dataset") > boost("wf.data.experimental.DatasetStructure")
    assert boost("wf.train.Saver") > boost("Saver") > pages.boost("api/messages/#s", "Savers")


def test_inherited_methods_are_on_the_page_of_a_class(pages: ModuleType) -> None:
    session = pages.load()["Session"]
    assert {"run", "make_callable", "close"} <= session.all_members.keys()


def described(pages: ModuleType) -> Iterator[Any]:
    """The functions and classes of all pages, and the methods of the classes."""
    collection = pages.load().modules_collection
    for path in sorted({entry.path for listed in pages.entries().values() for entry in listed}):
        target = collection[path]
        target = target.final_target if target.is_alias else target
        yield target
        if target.is_class:
            yield from (m for m in target.members.values() if m.is_function and m.is_public)


def test_described_parameters_are_those_of_the_signature(pages: ModuleType) -> None:
    """A row without its parameter says "required", even if there is a default."""
    unknown, rows = [], 0
    for target in described(pages):
        if target.docstring is None or target.is_attribute:
            continue
        names = {parameter.name for parameter in target.parameters}
        for section in target.docstring.parse("google", warnings=False):
            if section.kind is griffe.DocstringSectionKind.parameters:
                rows += len(section.value)
                documented = {row.name.lstrip("*") for row in section.value}
                unknown += [f"{target.path}: {name}" for name in documented - names - THROUGH_NEW]
    assert rows > 3000
    assert sorted(set(unknown)) == []


def test_names_described_together_have_a_row_each(pages: ModuleType) -> None:
    from house_form import rewritten

    text = "Do.\n\nArgs:\n  x, y: tensors\n    of one type.\n  a, ..., c:\n    a scale."
    rows = ["  x: tensors", "    of one type.", "  y: tensors", "    of one type."]
    rows += [line for name in "abc" for line in (f"  {name}:", "    a scale.")]
    assert rewritten(text, ["x", "y", "a", "b", "c"]).splitlines()[-len(rows) :] == rows
