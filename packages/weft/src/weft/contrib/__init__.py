"""`wf.contrib`: what old programs import of `tf.contrib`; needs the package weftml-contrib."""

from importlib.util import find_spec as _find_spec

from weft import _lazy

if _find_spec("weft_contrib") is None:
    raise ModuleNotFoundError(
        "weft.contrib is in a package of its own: pip install weftml-contrib",
        name="weft_contrib",
    )

__getattr__, __dir__ = _lazy.attach(__name__)
