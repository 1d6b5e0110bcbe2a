"""Zip files whose bytes depend only on the names and contents of their members."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

_DATE: Final = (1980, 1, 1, 0, 0, 0)
_REGULAR_FILE: Final = 0o100644 << 16
_UNIX: Final = 3


def write_zip(path: Path, members: Mapping[str, bytes]) -> None:
    """Write a zip file with sorted members, a fixed date and fixed permissions.

    Args:
      path: the file to write.
      members: content by name.
    """
    with zipfile.ZipFile(path, "w") as archive:
        for name in sorted(members):
            info = zipfile.ZipInfo(name, _DATE)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = _REGULAR_FILE
            info.create_system = _UNIX  # otherwise that of the building machine
            archive.writestr(info, members[name], compresslevel=9)


__all__ = ["write_zip"]
