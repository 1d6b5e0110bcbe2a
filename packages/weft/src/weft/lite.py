"""`wf.lite`: models for small devices, and their interpreter; requires weftml-lite."""

from importlib.util import find_spec as _find_spec

from weft import _lazy

if _find_spec("weft_lite") is None:
    raise ModuleNotFoundError(
        "weft.lite is in a separate package: pip install 'weftml-lite[convert]'",
        name="weft_lite",
    )

from weft_lite.convert.converter import *
from weft_lite.interpreter import *

_lazy.hint(__name__)
