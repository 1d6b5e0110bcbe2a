"""`wf.summary`: what TensorBoard shows."""

import typing as _typing

from weft_io.summary import (
    FileWriter as FileWriter,
    FileWriterCache as FileWriterCache,
    audio as audio,
    get_summary_description as get_summary_description,
    histogram as histogram,
    image as image,
    merge as merge,
    merge_all as merge_all,
    scalar as scalar,
    tensor_summary as tensor_summary,
    text as text,
)

if _typing.TYPE_CHECKING:
    from weft_graph.proto import (
        Event as Event,
        SessionLog as SessionLog,
        Summary as Summary,
        SummaryDescription as SummaryDescription,
        TaggedRunMetadata as TaggedRunMetadata,
    )
else:
    from weft import _lazy

    __getattr__, __dir__ = _lazy.attach(
        __name__,
        names={
            "weft_graph.proto": [
                "Event",
                "SessionLog",
                "Summary",
                "SummaryDescription",
                "TaggedRunMetadata",
            ]
        },
    )
