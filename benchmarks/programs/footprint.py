"""The cost of a framework before it computes anything: import time and size on disk."""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import re
import time
from pathlib import Path
from urllib.parse import urlparse
from urllib.request import url2pathname

import timing
from timing import Timer

arguments = None


def imports(timer: Timer) -> None:
    """Measure the import in a new process."""
    started = time.perf_counter()
    importlib.import_module("numpy")
    middle = time.perf_counter()
    importlib.import_module(arguments.module)
    end = time.perf_counter()
    timer.report("import", [end - started])
    timer.report("import_above_numpy", [end - middle])


def with_requirements(root: str) -> dict[str, importlib.metadata.Distribution]:
    """Return the distribution and its transitive requirements, without extras."""
    found: dict[str, importlib.metadata.Distribution] = {}
    waiting = [root]
    while waiting:
        name = re.sub(r"[-_.]+", "-", waiting.pop()).lower()
        if name in found:
            continue
        try:
            found[name] = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue  # its marker excludes this platform
        for text in found[name].requires or []:
            if "extra ==" not in text:
                waiting.append(re.match(r"[\w.-]+", text).group())
    return found


def size_of(distribution: importlib.metadata.Distribution) -> int:
    origin = json.loads(distribution.read_text("direct_url.json") or "{}")
    if origin.get("dir_info", {}).get("editable"):
        sources = Path(url2pathname(urlparse(origin["url"]).path)) / "src"
        files = [path for path in sources.rglob("*") if path.suffix != ".pyc"]
    else:
        files = [Path(str(path.locate())) for path in distribution.files or []]
    return sum(path.stat().st_size for path in files if path.is_file())


def size(timer: Timer) -> None:
    distributions = with_requirements(arguments.distribution)
    timer.report("installed_size", [sum(map(size_of, distributions.values()))])


if __name__ == "__main__":
    parser = timing.parser()
    parser.add_argument("--module", default="weft")
    parser.add_argument("--distribution", default="weftml")
    arguments = parser.parse_args()
    timing.main({"import": imports, "size": size}, arguments)
