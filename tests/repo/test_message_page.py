"""The page of messages: all that are public are on it, and options have the effects it tells of."""

from __future__ import annotations

import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import weft as wf
from weft_graph import proto

ROOT = Path(__file__).parents[2]
page: dict[str, Any] = runpy.run_path(str(ROOT / "docs" / "message_page.py"))
api: dict[str, Any] = runpy.run_path(str(ROOT / "tests" / "weft" / "write_api.py"))
SAID = {
    stem: page["comments"]((page["PROTO"] / f"{stem}.proto").read_text(encoding="utf-8"))
    for stem in page["SECTIONS"]
}


def within(message: Any) -> Iterator[Any]:
    """A message's descriptor and those of messages inside of it, entries of maps included."""
    yield message
    for inner in message.nested_types:
        yield from within(inner)


def named(stem: str) -> set[str]:
    """Return all names that comments of a file may document."""
    file = proto.descriptor_pool().FindFileByName(f"{stem}.proto")
    found = [m for top in file.message_types_by_name.values() for m in within(top)]
    enums = [*file.enum_types_by_name.values(), *(e for m in found for e in m.enum_types)]
    values = {f"{enum.full_name}.{value.name}" for enum in enums for value in enum.values}
    fields = {field.full_name for message in found for field in message.fields}
    names = values | fields | {each.full_name for each in (*found, *enums)}
    return {name.removeprefix("weft.") for name in names}


def public_messages() -> dict[str, str]:
    """Message to one of its public names."""
    found = {}
    for space in api["namespaces"]():
        for name in api["public"](space):
            value = getattr(api["find"](space), name)
            if isinstance(value, type) and hasattr(value, "DESCRIPTOR"):
                found[value.DESCRIPTOR.full_name.removeprefix("weft.")] = f"{space}.{name}"
    return found


def test_comments_are_found_above_and_behind() -> None:
    text = (
        "// A.\nmessage M {\n  oneof kind {\n    // b\n    int32 x = 1;  // c\n  }\n\n  E e = 2;\n}"
    )
    assert page["comments"](text) == {"M": "A.", "M.x": "b c"}


def test_every_comment_is_about_something() -> None:
    assert sum(map(len, SAID.values())) > 200
    for stem, said in SAID.items():
        assert set(said) <= named(stem)


def test_public_messages_are_on_the_page_under_their_names() -> None:
    public = public_messages()
    text = "\n".join(page["blocks"](public))
    assert len(public) > 30
    for message, name in public.items():
        assert name.endswith(f".{message}")  # by which the pages find it
        assert f"### {message} {{ #{message} }}\n\n`{name}`: " in text


READ_FOR_SERVERS = {"ConfigProto.Experimental.credentials"}
"""Options that sessions of this process alone have no use for."""


class Watched:
    """A message that notes which of its fields are read."""

    def __init__(self, message: Any, seen: set[str]) -> None:
        self._message = message
        self._seen = seen

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._message, name)
        descriptor = self._message.DESCRIPTOR
        if name in descriptor.fields_by_name:
            self._seen.add(f"{descriptor.full_name.removeprefix('weft.')}.{name}")
        return Watched(value, self._seen) if hasattr(value, "SerializeToString") else value


def test_options_are_told_to_have_an_effect_where_they_are_read() -> None:
    seen: set[str] = set()
    with wf.Graph().as_default():
        one = wf.constant(1)
    with wf.Session(graph=one.graph, config=Watched(wf.ConfigProto(), seen)) as session:
        options = Watched(wf.RunOptions(output_partition_graphs=True), seen)
        session.run(one, options=options, run_metadata=wf.RunMetadata())
    fields = {
        f"{message.full_name.removeprefix('weft.')}.{field.name}"
        for top in page["OPTIONS"]
        for message in within(getattr(proto, top).DESCRIPTOR)
        for field in message.fields
    }
    said = {name for words in SAID.values() for name in words}
    assert seen | READ_FOR_SERVERS == fields & said
