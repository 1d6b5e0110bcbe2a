"""The process-wide number of BLAS threads."""

from __future__ import annotations

import logging
import threading
from typing import Any

_log = logging.getLogger("weft")
_lock = threading.Lock()
_limit: int | None = None
_limiter: Any = None


def limit_once(threads: int) -> None:
    """Set the number of BLAS threads; only the first session of the process can do so.

    A change while kernels run would slow them all down. A later session that requests another
    number therefore keeps the first number, which is logged.
    """
    from threadpoolctl import threadpool_limits

    global _limit, _limiter
    with _lock:
        if _limit is None:
            _limiter = threadpool_limits(limits=threads, user_api="blas")
            _limit = threads
        elif _limit != threads:
            _log.info(
                "BLAS uses %d threads as set by the first session; a later session requested %d",
                _limit,
                threads,
            )
