"""Writes the golden graphs that are not there yet; see README.md."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
sys.path.insert(0, str(FOLDER.parents[2] / "support"))


def main() -> None:
    """Write each missing file."""
    from weft_testing.graphs import declared, looped_graph, sample_graph, segmented_graph

    from weft_graph import serialize
    from weft_graph.passes.prune import prune

    with declared():
        everything = FOLDER / "everything_v1.weft"
        if not everything.exists():
            everything.write_bytes(serialize.graph_to_bytes(_anonymous(sample_graph())))
        segments = FOLDER / "segments_v1.weft"
        if not segments.exists():
            graph, count = segmented_graph()
            _anonymous(graph)
            with segments.open("xb") as file:
                serialize.write_graph(prune([], [], graph.nodes[:count]).graph, file)
                serialize.write_graph(graph, file, from_node=count)

        loops = FOLDER / "loops_v2.weft"
        if not loops.exists():
            loops.write_bytes(serialize.graph_to_bytes(_anonymous(looped_graph())))


def _anonymous(graph: Any) -> Any:
    """Take the folders of this machine out of the nodes' source lines."""
    from weft_graph.serialize.layout import SourceCode

    for node in graph.nodes:
        file = "/".join(Path(node._code.co_filename).parts[-2:])
        node._code = SourceCode(file, node._code.co_qualname)
    return graph


if __name__ == "__main__":
    main()
