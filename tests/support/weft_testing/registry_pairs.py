"""Load pairs of registries from two threads, each pair in a process where nothing is loaded yet.

Run as a program with the number of pairs to draw, or 0 for all. Pairs that import the same package
or entry-point group always take part.
"""

from __future__ import annotations

import faulthandler
import gc
import importlib
import itertools
import operator
import os
import random
import re
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from weft_graph.ir.lazy_modules import EntryPointModules, LazyModules, PackageModules
from weft_graph.ir.registry import Registry
from weft_testing.workspace import ROOT, module_name

_SECONDS = 60  # that a pair may take

_TABLE = re.compile(r"\b(Registry|PackageModules|EntryPointModules)(\[.*\])?\(")


class Source:
    """Something that is loaded on demand.

    Attributes:
      name: its kind, and the packages and groups that it imports.
      parts: these packages and groups.
      load: loads it and returns the number of its keys.
    """

    def __init__(self, name: str, modules: Sequence[LazyModules], load: Callable[[], int]) -> None:
        self.parts = {part for each in modules for part in _parts(each)}
        self.name = f"{name} of {', '.join(sorted(self.parts))}"
        self.load = load


def _parts(modules: LazyModules) -> Sequence[str]:
    if isinstance(modules, PackageModules):
        return modules._packages
    assert isinstance(modules, EntryPointModules)
    return [modules._group]


def sources() -> list[Source]:
    """Return all registries of all packages and all other tables, none of them loaded."""
    for path in sorted(ROOT.glob("packages/*/src/**/*.py")):
        if _TABLE.search(path.read_text("utf-8")):
            importlib.import_module(module_name(path))
    return sorted(_sources(gc.get_objects()), key=lambda source: source.name)


def _sources(objects: Sequence[Any]) -> Iterator[Source]:
    registries = [thing for thing in objects if isinstance(thing, Registry)]
    used: set[LazyModules] = set()
    for registry in registries:
        modules = [
            part for part in (registry._package_modules, registry._entry_points) if part is not None
        ]
        used.update(modules)
        yield Source(registry.kind, modules, lambda registry=registry: len(registry.keys()))
    for thing in objects:
        if isinstance(thing, LazyModules) and thing not in used:
            yield Source("modules", [thing], lambda thing=thing: thing.load() or 0)


def load_together(*group: Source, in_turn: bool = False) -> list[int]:
    """Load sources in threads of a new process.

    Args:
      in_turn: load one after the other instead.
    Returns: the number of keys that each thread saw, then those of each source in the end, when
      another source may have registered more.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        faulthandler.dump_traceback_later(_SECONDS, exit=True)
        os.write(writer, " ".join(map(str, _counts(group, in_turn))).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as answer:
        counts = [int(count) for count in answer.read().split()]
    _, status = os.waitpid(child, 0)
    names = " and ".join(source.name for source in group)
    assert status == 0, f"{names} do not load together: status {status}"
    return counts


def _counts(group: Sequence[Source], in_turn: bool) -> list[int]:
    sys.setswitchinterval(1e-5)
    barrier = threading.Barrier(1 if in_turn else len(group))
    counts = [-1] * len(group)

    def load(index: int) -> None:
        barrier.wait()
        counts[index] = group[index].load()

    threads = [threading.Thread(target=load, args=(i,), daemon=True) for i in range(len(group))]
    for thread in threads:
        thread.start()
        if in_turn:
            thread.join()
    for thread in threads:
        thread.join()  # the dump of tracebacks ends the process if this takes too long
    return [*counts, *[source.load() for source in group]]


def main(drawn: int) -> None:
    """Load pairs, and check that each registry has as many keys as when it is loaded in turn."""
    known = sources()
    assert len(known) > 20, [source.name for source in known]
    pairs = list(itertools.combinations(known, 2))
    close = [pair for pair in pairs if pair[0].parts & pair[1].parts]
    others = [pair for pair in pairs if pair not in close]
    if drawn:
        others = random.Random("pairs").sample(others, drawn)
    alone = {source: load_together(source)[0] for source in {s for p in close + others for s in p}}
    for pair in close + others:
        names = " and ".join(source.name for source in pair)
        least = [alone[source] for source in pair]
        counts = load_together(*pair)
        seen, found = counts[:2], counts[2:]
        expected = least if found == least else load_together(*pair, in_turn=True)[2:]
        assert found == expected, f"{names} have {found} keys, not {expected}"
        assert all(map(operator.ge, seen, least)), f"{names} saw {seen} keys, not {least}"
    sys.stdout.write(f"{len(close)} {len(others)}\n")


if __name__ == "__main__":
    main(int(sys.argv[1]))
