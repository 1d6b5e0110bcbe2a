"""`wf.contrib`: the parts of `tf.contrib` that older programs import; requires weftml-contrib."""

from importlib.util import find_spec as _find_spec

from weft import _lazy

if _find_spec("weft_contrib") is None:
    raise ModuleNotFoundError(
        "weft.contrib is in a separate package: pip install weftml-contrib",
        name="weft_contrib",
    )

__getattr__, __dir__ = _lazy.attach(__name__)
