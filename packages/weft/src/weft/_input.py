"""Lazily loaded names of `weft`: files, readers and parsing."""

from weft_io.data.optional import OptionalSpec as OptionalSpec
from weft_io.input.parsing import *
from weft_io.input.py_function import *
from weft_io.input.readers import *
from weft_io.ops.files import *
from weft_io.ops.parsing import *
from weft_io.ops.sparse_serialization import *
