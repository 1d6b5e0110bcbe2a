"""Build and check the release of one package: `hatch run release PACKAGE`.

    hatch run release tensor                  builds and checks, and prints the release notes
    hatch run release tensor --out DIR        into this empty folder
    hatch run release tensor --tag            also creates the tag <distribution>-v<version>

It builds the sdist, and the wheel from the sdist, in an isolated environment; runs `twine check`
and `check-wheel-contents`; and writes the notes, which are the version's section of the changelog,
to <distribution>-<version>.md. The files are in dist/<distribution>-<version>/, which it empties
first. Nothing is uploaded. A tag needs a clean checkout and a dated section.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]


class ReleaseError(Exception):
    """A release that cannot be made, with the reason and what to do."""


class Release(NamedTuple):
    """A version of a package."""

    distribution: str
    version: str
    package: Path
    """Folder of the package."""

    @property
    def tag(self) -> str:
        """Name of its tag."""
        return f"{self.distribution}-v{self.version}"

    @property
    def stem(self) -> str:
        """Name of its folder and its notes."""
        return f"{self.distribution}-{self.version}"


class Section(NamedTuple):
    """A version's section of a changelog."""

    date: str
    """ISO date, or "unreleased"."""

    notes: str


def find_release(name: str, root: Path) -> Release:
    """Return the release of a package by the name of its folder or of its distribution.

    Raises: ReleaseError: there is no such package.
    """
    known = []
    for path in sorted(root.glob("packages/*/pyproject.toml")):
        project = tomllib.loads(path.read_text(encoding="utf-8"))["project"]
        if name in (path.parent.name, project["name"]):
            return Release(project["name"], project["version"], path.parent)
        known.append(path.parent.name)
    raise ReleaseError(f"there is no package {name!r}; choose one of {', '.join(known)}")


def read_section(changelog: str, version: str) -> Section:
    """Return a version's section of a changelog.

    Raises: ReleaseError: the section is missing, has another form, or has no entries.
    """
    sections = re.split(r"^(?=## )", changelog, flags=re.M)
    for section in sections[1:]:
        heading, _, notes = section.partition("\n")
        if heading.split()[1:2] != [version]:
            continue
        match = re.fullmatch(r"## \S+ \((unreleased|\d{4}-\d\d-\d\d)\)", heading)
        if match is None:
            raise ReleaseError(
                f"the changelog's heading must be '## {version} (YYYY-MM-DD)' or "
                f"'## {version} (unreleased)', got {heading!r}"
            )
        if not re.search(r"^- ", notes, re.M):
            raise ReleaseError(f"the changelog has no entries for {version}; add them")
        return Section(match[1], notes.strip() + "\n")
    raise ReleaseError(f"the changelog has no section '## {version} (…)'; add it, with its entries")


def release_notes(release: Release, section: Section) -> str:
    """Return the notes of a release in Markdown."""
    headings = re.sub(r"^###", "##", section.notes, flags=re.M)
    return f"# {release.distribution} {release.version} ({section.date})\n\n{headings}"


def tag_refusal(release: Release, section: Section, tags: Sequence[str], status: str) -> str | None:
    """Return the reason why a release cannot be tagged, or None if it can.

    Args:
      tags: the repository's tags.
      status: output of `git status --porcelain`.
    """
    if section.date == "unreleased":
        return f"the changelog still says '## {release.version} (unreleased)'; write the date"
    if release.tag in tags:
        return f"the tag {release.tag} exists; raise the version in pyproject.toml"
    if status.strip():
        return f"the checkout has changes that are not committed:\n{status.rstrip()}"
    return None


def expected_files(release: Release, names: Sequence[str]) -> tuple[str, str]:
    """Return the sdist and the wheel of a release among the files that were built.

    Raises: ReleaseError: there is not exactly one of each.
    """
    stem = re.escape(f"{release.distribution.replace('-', '_')}-{release.version}")
    found = []
    for ending in (r"\.tar\.gz", r"-.*\.whl"):
        matching = [name for name in names if re.fullmatch(stem + ending, name)]
        if len(matching) != 1:
            raise ReleaseError(f"expected one file {stem}{ending}, got {sorted(names)}")
        found += matching
    return found[0], found[1]


def git(*arguments: str) -> str:
    """Run git in the checkout and return its output."""
    command = ["git", *arguments]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout


def build(release: Release, folder: Path) -> None:
    """Build the sdist and, from it, the wheel, and check both.

    Raises:
      ReleaseError: the folder has files already, or other files were built.
      CalledProcessError: a build or a check failed; it has printed the reason.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise ReleaseError(f"{folder} is not empty; choose another --out")
    call("build", "--outdir", folder, release.package)
    files = expected_files(release, [path.name for path in folder.iterdir()])
    sdist, wheel = (folder / name for name in files)
    call("twine", "check", "--strict", sdist, wheel)
    call("check_wheel_contents", wheel)


def call(module: str, *arguments: str | Path) -> None:
    """Run a module of this environment as a program."""
    subprocess.run([sys.executable, "-m", module, *map(str, arguments)], check=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("package", help="a folder of packages/, or its distribution")
    parser.add_argument("--out", type=Path, help="empty folder for the files")
    parser.add_argument("--tag", action="store_true", help="create the tag after the checks")
    options = parser.parse_args(arguments)
    try:
        run(options.package, options.out, tag=options.tag)
    except ReleaseError as error:
        sys.exit(f"release: {error}")
    except subprocess.CalledProcessError as error:
        sys.exit(f"release: this failed: {' '.join(map(str, error.cmd))}\n{error.stderr or ''}")


def run(name: str, out: Path | None, *, tag: bool) -> None:
    """Build, check and describe a release, and tag it if `tag` is set."""
    release = find_release(name, ROOT)
    changelog = (release.package / "CHANGELOG.md").read_text(encoding="utf-8")
    section = read_section(changelog, release.version)
    if tag:
        tags = git("tag", "--list").split()
        reason = tag_refusal(release, section, tags, git("status", "--porcelain"))
        if reason is not None:
            raise ReleaseError(reason)
    folder = out or ROOT / "dist" / release.stem
    if out is None and folder.exists():
        shutil.rmtree(folder)
    build(release, folder)
    notes = release_notes(release, section)
    (folder / f"{release.stem}.md").write_text(notes, encoding="utf-8")
    print(notes)
    print(f"The files are in {folder}.")
    if tag:
        git("tag", "--annotate", "--cleanup=verbatim", "--message", notes, release.tag)
        print(f"Created the tag {release.tag}; push it with: git push origin {release.tag}")
    elif section.date == "unreleased":
        print("Before --tag, write the date into the changelog instead of (unreleased).")


if __name__ == "__main__":
    main()
