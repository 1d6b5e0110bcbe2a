"""Protobuf messages that `weft` re-exports."""

from weft_graph.proto import (
    AttrValue as AttrValue,
    ConfigProto as ConfigProto,
    Event as Event,
    GPUOptions as GPUOptions,
    GraphDef as GraphDef,
    GraphOptions as GraphOptions,
    HistogramProto as HistogramProto,
    LogMessage as LogMessage,
    MetaGraphDef as MetaGraphDef,
    NameAttrList as NameAttrList,
    NodeDef as NodeDef,
    OptimizerOptions as OptimizerOptions,
    RunMetadata as RunMetadata,
    RunOptions as RunOptions,
    SessionLog as SessionLog,
    Summary as Summary,
    SummaryMetadata as SummaryMetadata,
    TensorInfo as TensorInfo,
)
