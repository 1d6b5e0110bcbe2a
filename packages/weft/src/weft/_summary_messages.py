"""Messages that `weft.summary` shows; they load protobuf."""

from weft_graph.proto import (
    Event as Event,
    SessionLog as SessionLog,
    Summary as Summary,
    SummaryDescription as SummaryDescription,
    TaggedRunMetadata as TaggedRunMetadata,
)
