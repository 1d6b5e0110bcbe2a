"""`wf.version`: versions of weft and of its GraphDefs."""

from importlib.metadata import version as _version

from weft import _lazy
from weft_graph.messages.graph_def import *

VERSION = __version__ = _version("weftml")

_lazy.hint(__name__)
