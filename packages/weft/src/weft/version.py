"""`wf.version`: of weft, and of the GraphDefs that it writes and reads."""

from importlib.metadata import version as _version

from weft_graph.messages.graph_def import (
    GRAPH_DEF_VERSION as GRAPH_DEF_VERSION,
    GRAPH_DEF_VERSION_MIN_CONSUMER as GRAPH_DEF_VERSION_MIN_CONSUMER,
    GRAPH_DEF_VERSION_MIN_PRODUCER as GRAPH_DEF_VERSION_MIN_PRODUCER,
)

VERSION = __version__ = _version("weftml")
