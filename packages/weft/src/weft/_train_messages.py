"""Protobuf messages that `weft.train` re-exports."""

from weft_graph.proto import (
    BytesList as BytesList,
    ClusterDef as ClusterDef,
    Example as Example,
    Feature as Feature,
    FeatureList as FeatureList,
    FeatureLists as FeatureLists,
    Features as Features,
    FloatList as FloatList,
    Int64List as Int64List,
    JobDef as JobDef,
    SaverDef as SaverDef,
    SequenceExample as SequenceExample,
    ServerDef as ServerDef,
)
