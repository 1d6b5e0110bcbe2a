"""Ctrl-C while modules register what they have."""

from __future__ import annotations

import signal
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from weft_graph.ir.registry import Registry

MODULES = {
    "__init__.py": "from weft_graph.ir.registry import Registry\n"
    "things = Registry('thing', __name__)\n",
    "first.py": "from interrupted import things\nthings.register('a', 1)\n"
    "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n",
    "second.py": "from interrupted import things\nthings.register('b', 2)\n",
}


@pytest.mark.skipif(sys.platform == "win32", reason="signals are sent otherwise there")
def test_an_interrupt_waits_until_all_is_registered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if threading.current_thread() is not threading.main_thread():
        pytest.skip("signals go to the main thread")
    (tmp_path / "interrupted").mkdir()
    for name, text in MODULES.items():
        (tmp_path / "interrupted" / name).write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    import importlib

    things: Any = importlib.import_module("interrupted").things
    assert isinstance(things, Registry)
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        things.get("b")
    assert (things.get("a"), things.get("b"), things.get("c")) == (1, 2, None)
    assert signal.getsignal(signal.SIGINT) is before
