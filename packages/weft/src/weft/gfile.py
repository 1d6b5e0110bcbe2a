"""`wf.gfile`: files by their names, local or URLs."""

from weft_io.files.gfile import *
