"""Execution: devices, kernels, the executor and sessions."""

from __future__ import annotations

from weft_exec.session.session import InteractiveSession, Session

__all__ = ["InteractiveSession", "Session"]
