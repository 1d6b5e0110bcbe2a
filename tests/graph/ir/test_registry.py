"""Registries that several threads load at the same time, from real packages and entry points."""

from __future__ import annotations

import faulthandler
import importlib
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from weft_testing.waiting import in_threads, wait_until

from weft import errors
from weft_graph.ir.registry import Registry

SECONDS = 30

HEAD = "from weft_graph.ir.registry import Registry\n"


class Tree:
    """Packages and distributions that a test writes, and events that their modules can name.

    Attributes:
      events: `from tree_events import <name>` gives a module the same object.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.events = SimpleNamespace(
            started=threading.Event(), proceed=threading.Event(), seen=[], threading=threading
        )

    def package(self, name: str, **modules: str) -> Any:
        """Write a package and import it; `init` is its own text."""
        folder = self.path / name
        folder.mkdir()
        for module, text in {"init": "", **modules}.items():
            file = "__init__" if module == "init" else module
            (folder / f"{file}.py").write_text(HEAD + text)
        importlib.invalidate_caches()
        return importlib.import_module(name)

    def entry_points(self, group: str, **values: str) -> None:
        """Write a distribution with entry points."""
        folder = self.path / f"{group.replace('.', '_')}-1.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {group}\nVersion: 1\n")
        lines = [f"{name} = {value}\n" for name, value in values.items()]
        (folder / "entry_points.txt").write_text(f"[{group}]\n{''.join(lines)}")
        importlib.invalidate_caches()


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tree]:
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(tmp_path))
    packages = Tree(tmp_path)
    monkeypatch.setitem(sys.modules, "tree_events", packages.events)  # type: ignore[arg-type]
    faulthandler.dump_traceback_later(2 * SECONDS, exit=False)
    yield packages
    faulthandler.cancel_dump_traceback_later()
    packages.events.proceed.set()
    for name in set(sys.modules) - before:
        file = getattr(sys.modules[name], "__file__", None)
        if file is not None and file.startswith(str(tmp_path)):
            del sys.modules[name]


PAUSE = f"from tree_events import started, proceed\nstarted.set()\nassert proceed.wait({SECONDS})\n"
"""A module that waits, half executed, until the test lets it proceed."""


def waits_for_an_import(thread: threading.Thread) -> bool:
    """Return True if a thread is blocked by Python's import system, or has ended."""
    frame = sys._current_frames().get(thread.ident or 0)
    if frame is None:
        return not thread.is_alive()
    return frame.f_code.co_filename == "<frozen importlib._bootstrap>"


def outcomes(tree: Tree, first: Callable[[], Any], second: Callable[[], Any]) -> list[Any]:
    """Results or errors of two functions, where `first` runs into PAUSE.

    The second begins when the first is paused, and the first proceeds when the second waits for an
    import, or has ended.
    """
    with in_threads(first, second, start=False) as threads:
        threads[0].start()
        assert tree.events.started.wait(SECONDS)
        threads[1].start()
        wait_until(lambda: waits_for_an_import(threads[1]))
        tree.events.proceed.set()
    return [thread.outcome for thread in threads]


# ------------------------------------------------------------------- two threads


def test_lookups_wait_for_modules_that_another_thread_executes(tree: Tree) -> None:
    pack = tree.package(
        "pack",
        init="things = Registry('thing', 'pack')\n",
        a=PAUSE + "from pack import things\nthings.register('a', 1)\n",
        b="from pack import things\nthings.register('b', 2)\n",
    )
    results = outcomes(tree, lambda: pack.things.get("a"), lambda: pack.things.get("b"))
    assert results == [1, 2]


def test_two_registries_of_one_package_load_from_two_threads(tree: Tree) -> None:
    """Each held its lock while it imported the module that registers in the other."""
    pack = tree.package(
        "both",
        init="some, others = Registry('some', 'both'), Registry('other', 'both')\n",
        a=PAUSE + "from both import *\nsome.register('a', 1)\nothers.register('a', 2)\n",
    )
    assert outcomes(tree, lambda: pack.some.get("a"), lambda: pack.others.get("a")) == [1, 2]


def test_a_module_registers_in_a_registry_that_waits_for_it(tree: Tree) -> None:
    """The program imports the module itself while a lookup of another thread loads all."""
    pack = tree.package(
        "plain",
        init="things = Registry('thing', 'plain')\n",
        a=PAUSE + "from plain import things\nthings.register('a', 1)\n",
    )

    def program() -> Any:
        return importlib.import_module("plain.a").things.get("a")

    assert outcomes(tree, program, lambda: pack.things.get("a")) == [1, 1]


def test_entry_points_that_another_thread_imports_are_waited_for(tree: Tree) -> None:
    tree.package(
        "plugin",
        a=PAUSE + "from tree_events import things\nthings.register('late', 1)\n",
    )
    tree.entry_points("weft_tests.late", plugin="plugin")
    things: Registry[int] = Registry("thing", group="weft_tests.late")
    tree.events.things = things
    assert outcomes(tree, lambda: things.get("late"), lambda: things.get("late")) == [1, 1]


def test_a_half_executed_module_is_not_a_definitive_miss(tree: Tree) -> None:
    """A module that looks something up before it registers leaves the registry incomplete."""
    pack = tree.package(
        "half",
        init="things = Registry('thing', 'half')\n",
        a="from half import things\nassert things.get('none') is None\n"
        + PAUSE
        + "things.register('a', 1)\n",
    )

    def program() -> Any:
        return importlib.import_module("half.a").things.get("a")

    assert outcomes(tree, program, lambda: pack.things.get("a")) == [1, 1]
    assert pack.things.get("none") is None


def test_single_modules_that_another_thread_imports_are_waited_for(tree: Tree) -> None:
    pack = tree.package(
        "near",
        init="things = Registry('thing', 'near')\n",
        a=PAUSE + "from near import things\nthings.register('a', 1)\n",
    )

    def near() -> Any:
        pack.things.load_near(["near.a", "near.none", "gone.none"])
        return pack.things.loaded("a")

    assert outcomes(tree, near, near) == [1, 1]


def test_modules_that_depend_on_each_other_do_not_hang(tree: Tree) -> None:
    """Thread 1 executes a, which imports b; thread 2 executes b, which looks a's entry up."""
    pack = tree.package(
        "ring",
        init="things = Registry('thing', 'ring')\n",
        a=PAUSE + "import ring.b\nring.things.register('a', 1)\n",
        b="import ring\nfrom tree_events import seen\n"
        "seen.append(ring.things.get('a'))\nring.things.register('b', 2)\n",
    )
    outcomes(
        tree, lambda: importlib.import_module("ring.a"), lambda: importlib.import_module("ring.b")
    )
    assert [pack.things.get(key) for key in ("a", "b", "c")] == [1, 2, None]
    assert pack.things.keys() == ["a", "b"]


# ------------------------------------------------------------------- failures


def test_a_failing_module_gives_both_threads_its_own_error(tree: Tree) -> None:
    """Executed a second time, it would only be told that its first entry exists."""
    pack = tree.package(
        "bad",
        init="things = Registry('thing', 'bad')\n",
        a="from bad import things\nthings.register('a', 1)\n" + PAUSE + "import no_such_module\n",
    )
    results = outcomes(tree, lambda: pack.things.get("b"), lambda: pack.things.get("b"))
    assert [str(error) for error in results] == ["No module named 'no_such_module'"] * 2
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        pack.things.keys()


def test_a_module_that_fails_at_first_can_be_imported_later(tree: Tree) -> None:
    pack = tree.package(
        "again",
        init="things = Registry('thing', 'again')\n",
        a="from tree_events import value\nfrom again import things\nthings.register('a', value)\n",
    )
    with pytest.raises(ImportError):
        pack.things.get("a")
    tree.events.value = 3
    assert pack.things.get("a") == 3


def test_a_broken_entry_point_does_not_hide_those_after_it(tree: Tree) -> None:
    tree.package("works", a="from tree_events import things\nthings.register('here', 1)\n")
    tree.entry_points("weft_tests.some", a="no_such_module", b="works")
    things: Registry[int] = Registry("thing", group="weft_tests.some")
    tree.events.things = things
    with pytest.raises(errors.InternalError, match="a = no_such_module"):
        things.get("here")
    assert things.get("here") == 1
    with pytest.raises(errors.NotFoundError, match=r"a = no_such_module \(ModuleNotFoundError"):
        things.lookup("elsewhere")


# ------------------------------------------------------------------- one thread


def test_modules_being_loaded_may_look_entries_up(tree: Tree) -> None:
    tree.package(
        "asks",
        a="from tree_events import seen, things\n"
        "seen.append(things.get('late'))\nthings.register('late', 1)\n",
    )
    tree.entry_points("weft_tests.asks", plugin="asks")
    things: Registry[int] = Registry("thing", group="weft_tests.asks")
    tree.events.things = things
    assert things.get("late") == 1
    assert tree.events.seen == [None]


def test_packages_with_a_module_for_each_family_are_loaded_on_demand(tree: Tree) -> None:
    tree.package(
        "families",
        init="BY_FAMILY = True\n",
        a="from tree_events import things\nthings.register('a', 1)\n",
    )
    tree.entry_points("weft_tests.families", plugin="families")
    things: Registry[int] = Registry("thing", group="weft_tests.families")
    tree.events.things = things
    things.load_near([])
    assert things.loaded("a") is None
    assert things.get("a") == 1


def test_an_interrupt_waits_until_all_is_registered(tree: Tree) -> None:
    if sys.platform == "win32" or threading.current_thread() is not threading.main_thread():
        pytest.skip("signals go to the main thread, and are sent otherwise on Windows")
    things = tree.package(
        "interrupted",
        init="things = Registry('thing', __name__)\n",
        a="from interrupted import things\nthings.register('a', 1)\n"
        "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n",
        b="from interrupted import things\nthings.register('b', 2)\n",
    ).things
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        things.get("b")
    assert (things.get("a"), things.get("b"), things.get("c")) == (1, 2, None)
    assert signal.getsignal(signal.SIGINT) is before
