"""`wf.io.gfile`: files by their names, local or URLs."""

from weft import _lazy
from weft_io.files.gfile import (
    GFile as GFile,
    copy as copy,
    exists as exists,
    glob as glob,
    isdir as isdir,
    listdir as listdir,
    makedirs as makedirs,
    mkdir as mkdir,
    remove as remove,
    rename as rename,
    rmtree as rmtree,
    stat as stat,
    walk as walk,
)

_lazy.hint(__name__)
