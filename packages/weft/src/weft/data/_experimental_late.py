"""Lazily loaded names of `weft.data.experimental`."""

from weft_io.data.cardinality import *
from weft_io.data.elements import *
from weft_io.data.grouping import *
from weft_io.data.interleaving import *
from weft_io.data.lookup_tables import *
from weft_io.data.optional import *
from weft_io.data.options import (
    AutoShardPolicy as AutoShardPolicy,
    AutotuneAlgorithm as AutotuneAlgorithm,
    AutotuneOptions as AutotuneOptions,
    DistributeOptions as DistributeOptions,
    ExternalStatePolicy as ExternalStatePolicy,
    MapVectorizationOptions as MapVectorizationOptions,
    OptimizationOptions as OptimizationOptions,
    ThreadingOptions as ThreadingOptions,
)
from weft_io.data.structures import *
from weft_io.data.tabular import *
from weft_io.data.transformations import *
from weft_io.training.input_hooks import *
