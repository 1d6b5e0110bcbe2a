"""Session handles are state, so `CASES` is empty.

What these ops do is shown by tests/exec/session/test_session_handles.py.
"""

from __future__ import annotations

from weft_testing.cases import Case

CASES: list[Case] = []
