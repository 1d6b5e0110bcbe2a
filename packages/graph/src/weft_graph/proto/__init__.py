"""The protobuf messages of the public API, with TensorFlow's field numbers.

`proto.GraphDef`, `proto.RunOptions.FULL_TRACE`, `proto.DT_FLOAT`: every message, enum and enum
value of the `.proto` files in this directory. They are in a separate descriptor pool, under the
package name `weft`, so TensorFlow can be imported in the same process. protobuf itself is imported
when the first name is used.
"""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    value = None
    if not name.startswith("_"):
        from weft_graph.proto._pool import find

        value = find(name)
    if value is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    from weft_graph.proto._pool import names

    return sorted(names())
