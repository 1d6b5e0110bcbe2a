"""`wf.gfile`: files by their names, local or URLs."""

from weft_io.files.gfile import (
    Copy as Copy,
    DeleteRecursively as DeleteRecursively,
    Exists as Exists,
    FastGFile as FastGFile,
    GFile as GFile,
    Glob as Glob,
    IsDirectory as IsDirectory,
    ListDirectory as ListDirectory,
    MakeDirs as MakeDirs,
    MkDir as MkDir,
    Open as Open,
    Remove as Remove,
    Rename as Rename,
    Stat as Stat,
    Walk as Walk,
)
