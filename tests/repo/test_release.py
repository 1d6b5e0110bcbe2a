"""`hatch run release`: which package, which notes, and when a tag is refused."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest
from weft_testing.workspace import PACKAGES, ROOT, distribution, project

release: dict[str, Any] = runpy.run_path(str(ROOT / ".ci" / "release.py"))
ReleaseError: type[Exception] = release["ReleaseError"]

CHANGELOG = """# Changelog

## 0.2.0 (unreleased)

### Added

- A new function.

### Fixed

- An old one.

## 0.1.0 (2026-01-02)

### Added

- The first.
"""
THIS = release["Release"]("weftml-x", "0.1.0", Path("packages/x"))
DATED = release["Section"]("2026-01-02", "### Added\n\n- The first.\n")


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.name)
def test_every_package_can_be_released(package: Path) -> None:
    found = release["find_release"](package.name, ROOT)
    assert found == release["find_release"](distribution(package.name), ROOT)
    assert found.tag == f"{distribution(package.name)}-v{project(package)['version']}"
    changelog = (package / "CHANGELOG.md").read_text(encoding="utf-8")
    section = release["read_section"](changelog, found.version)
    notes = release["release_notes"](found, section)
    assert notes.startswith(f"# {found.distribution} {found.version} ({section.date})\n\n## ")
    assert "\n- " in notes


def test_an_unknown_package_is_refused_with_those_that_exist() -> None:
    with pytest.raises(ReleaseError, match=r"no package 'tensors'; choose one of autodiff, .*weft"):
        release["find_release"]("tensors", ROOT)


def test_notes_are_those_of_the_version() -> None:
    section = release["read_section"](CHANGELOG, "0.1.0")
    assert section == DATED
    assert release["release_notes"](THIS, section) == (
        "# weftml-x 0.1.0 (2026-01-02)\n\n## Added\n\n- The first.\n"
    )
    newer = release["read_section"](CHANGELOG, "0.2.0")
    assert newer.date == "unreleased"
    assert newer.notes == "### Added\n\n- A new function.\n\n### Fixed\n\n- An old one.\n"


@pytest.mark.parametrize(
    ("changelog", "message"),
    [
        (CHANGELOG.replace("0.1.0", "0.1.10"), "no section '## 0.1.0"),
        (CHANGELOG.replace(" (2026-01-02)", ""), "must be '## 0.1.0 .*, got '## 0.1.0'"),
        (CHANGELOG.replace("2026-01-02", "soon"), "must be '## 0.1.0"),
        (CHANGELOG.replace("- The first.\n", ""), "no entries for 0.1.0"),
    ],
    ids=["missing", "no date", "no such date", "empty"],
)
def test_a_changelog_without_the_section_is_refused(changelog: str, message: str) -> None:
    with pytest.raises(ReleaseError, match=message):
        release["read_section"](changelog, "0.1.0")


def test_a_dated_release_of_a_clean_checkout_can_be_tagged() -> None:
    assert release["tag_refusal"](THIS, DATED, ["weftml-x-v0.0.9", "weftml-y-v0.1.0"], "") is None


@pytest.mark.parametrize(
    ("date", "tags", "status", "message"),
    [
        ("unreleased", [], "", "write the date"),
        ("2026-01-02", ["weftml-x-v0.1.0"], "", "the tag weftml-x-v0.1.0 exists"),
        ("2026-01-02", [], " M README.md\n", "not committed:\n M README.md"),
    ],
    ids=["unreleased", "tag exists", "changes"],
)
def test_a_tag_is_refused(date: str, tags: list[str], status: str, message: str) -> None:
    reason = release["tag_refusal"](THIS, DATED._replace(date=date), tags, status)
    assert message in reason


def test_one_sdist_and_one_wheel_are_expected() -> None:
    sdist, wheel = "weftml_x-0.1.0.tar.gz", "weftml_x-0.1.0-py3-none-any.whl"
    assert release["expected_files"](THIS, [wheel, sdist]) == (sdist, wheel)
    for names in ([sdist], [wheel], [sdist, wheel, "weftml_x-0.1.0-cp311-any.whl"], ["x-0.2.whl"]):
        with pytest.raises(ReleaseError, match="expected one file"):
            release["expected_files"](THIS, names)


def test_a_folder_with_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "old.whl").touch()
    with pytest.raises(ReleaseError, match="is not empty"):
        release["build"](THIS, tmp_path)
