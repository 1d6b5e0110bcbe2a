"""Resource files next to a module, and joined paths."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from weft_io.files import gfile, resource_loader
from weft_tensor import errors


def test_files_beside_a_module(tmp_path: Path) -> None:
    here = Path(__file__).parent
    assert resource_loader.get_data_files_path() == str(here)
    assert resource_loader.get_root_dir_with_all_resources() == str(here)
    assert resource_loader.get_path_to_datafile("a/b") == str(here / "a" / "b")
    assert resource_loader.load_resource(Path(__file__).name) == Path(__file__).read_bytes()
    with pytest.raises(errors.NotFoundError):
        resource_loader.load_resource("nothing_of_this_name")


@pytest.mark.parametrize(
    ("parts", "joined"),
    [
        (("a", "b", "c"), "a/b/c"),
        (("a", "/b", "c"), "/b/c"),
        (("a/", "b"), "a/b"),
        (("s3://x", "y", "z"), "s3://x/y/z"),
        (("a", "s3://x", "y"), "s3://x/y"),
        ((b"a", b"b"), "a/b"),
        (("", "b"), "b"),
        (("a",), "a"),
    ],
)
def test_parts_of_paths_are_joined(parts: Any, joined: Any) -> None:
    assert gfile.join(*parts) == joined
