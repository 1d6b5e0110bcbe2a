"""Protobuf messages that `weft.summary` re-exports."""

from weft_graph.proto import (
    Event as Event,
    SessionLog as SessionLog,
    Summary as Summary,
    SummaryDescription as SummaryDescription,
    TaggedRunMetadata as TaggedRunMetadata,
)
