"""weft: dataflow graphs in the style of the TensorFlow white paper.

`import weft as wf`.  The names are the paper's, and TensorFlow 1.15's where the paper is silent.
What is here is imported at once; namespaces (`wf.train`, `wf.layers`, ...), protocol messages
(`wf.ConfigProto`, ...) and the version load when first used.
"""

import typing as _typing

# Operations
from weft._operations import *  # noqa: F403 - the whole module under another name

# Gradients
from weft_autodiff import registry as _registry
from weft_autodiff.clipping import (
    clip_by_average_norm as clip_by_average_norm,
    clip_by_global_norm as clip_by_global_norm,
    clip_by_norm as clip_by_norm,
    global_norm as global_norm,
)
from weft_autodiff.custom_gradient import (
    custom_gradient as custom_gradient,
    grad_pass_through as grad_pass_through,
)
from weft_autodiff.gradients.backprop import (
    AggregationMethod as AggregationMethod,
    UnconnectedGradients as UnconnectedGradients,
    gradients as gradients,
)
from weft_autodiff.recompute_grad import recompute_grad as recompute_grad
from weft_autodiff.registry import (
    NotDifferentiable as NotDifferentiable,
    RegisterGradient as RegisterGradient,
)

# Sessions
from weft_exec.session.session import InteractiveSession as InteractiveSession, Session as Session
from weft_graph.control_flow.conditional import (
    case as case,
    cond as cond,
    switch_case as switch_case,
)
from weft_graph.control_flow.functional import (
    foldl as foldl,
    foldr as foldr,
    map_fn as map_fn,
    scan as scan,
)
from weft_graph.control_flow.loop import while_loop as while_loop
from weft_graph.control_flow.tensor_array import TensorArray as TensorArray
from weft_graph.functions.call import call_function as call_function
from weft_graph.functions.decorator import TensorSpec as TensorSpec, function as function
from weft_graph.functions.defun import Declare as Declare, Defun as Defun

# Graphs and what they hold
from weft_graph.ir import constant_value as _constant_value, node as _node
from weft_graph.ir.builder import (
    constant as constant,
    convert_to_tensor as convert_to_tensor,
    register_tensor_conversion_function as register_tensor_conversion_function,
)
from weft_graph.ir.collections_keys import GraphKeys as GraphKeys
from weft_graph.ir.device_spec import DeviceSpec as DeviceSpec
from weft_graph.ir.framework import (
    add_to_collection as add_to_collection,
    add_to_collections as add_to_collections,
    colocate_with as colocate_with,
    container as container,
    control_dependencies as control_dependencies,
    control_flow_v2_enabled as control_flow_v2_enabled,
    device as device,
    disable_control_flow_v2 as disable_control_flow_v2,
    disable_eager_execution as disable_eager_execution,
    disable_tensor_equality as disable_tensor_equality,
    disable_v2_behavior as disable_v2_behavior,
    disable_v2_tensorshape as disable_v2_tensorshape,
    enable_control_flow_v2 as enable_control_flow_v2,
    enable_eager_execution as enable_eager_execution,
    enable_tensor_equality as enable_tensor_equality,
    enable_v2_behavior as enable_v2_behavior,
    enable_v2_tensorshape as enable_v2_tensorshape,
    executing_eagerly as executing_eagerly,
    get_collection as get_collection,
    get_collection_ref as get_collection_ref,
    init_scope as init_scope,
    is_symbolic_tensor as is_symbolic_tensor,
    is_tensor as is_tensor,
    name_scope as name_scope,
    op_scope as op_scope,
)
from weft_graph.ir.graph import Graph as Graph
from weft_graph.ir.indexed_slices import (
    IndexedSlices as IndexedSlices,
    SparseTensor as SparseTensor,
    SparseTensorValue as SparseTensorValue,
    convert_to_tensor_or_indexed_slices as convert_to_tensor_or_indexed_slices,
    convert_to_tensor_or_sparse_tensor as convert_to_tensor_or_sparse_tensor,
)
from weft_graph.ir.random_seed import get_seed as get_seed, set_random_seed as set_random_seed
from weft_graph.ir.stacks import (
    get_default_graph as get_default_graph,
    get_default_session as get_default_session,
    reset_default_graph as reset_default_graph,
)
from weft_graph.ir.transfers import lossy_transfers as lossy_transfers
from weft_graph.messages.graph_def import GRAPH_DEF_VERSION as GRAPH_DEF_VERSION
from weft_graph.messages.import_graph_def import import_graph_def as import_graph_def
from weft_graph.messages.tensor_proto import (
    make_ndarray as make_ndarray,
    make_tensor_proto as make_tensor_proto,
)
from weft_graph.metrics.classes import confusion_matrix as confusion_matrix
from weft_graph.ops import gather as _gather, layout as _layout
from weft_graph.variables.base import (
    Variable as Variable,
    VariableAggregation as VariableAggregation,
    VariableSynchronization as VariableSynchronization,
    disable_resource_variables as disable_resource_variables,
    enable_resource_variables as enable_resource_variables,
    resource_variables_enabled as resource_variables_enabled,
    variable_creator_scope as variable_creator_scope,
)
from weft_graph.variables.initializers import (
    constant_initializer as constant_initializer,
    glorot_normal_initializer as glorot_normal_initializer,
    glorot_uniform_initializer as glorot_uniform_initializer,
    ones_initializer as ones_initializer,
    orthogonal_initializer as orthogonal_initializer,
    random_normal_initializer as random_normal_initializer,
    random_uniform_initializer as random_uniform_initializer,
    truncated_normal_initializer as truncated_normal_initializer,
    uniform_unit_scaling_initializer as uniform_unit_scaling_initializer,
    variance_scaling_initializer as variance_scaling_initializer,
    zeros_initializer as zeros_initializer,
)

# Default graphs, variables and their scopes
from weft_graph.variables.partitioned import (
    create_partitioned_variables as create_partitioned_variables,
    fixed_size_partitioner as fixed_size_partitioner,
    min_max_variable_partitioner as min_max_variable_partitioner,
    variable_axis_size_partitioner as variable_axis_size_partitioner,
)
from weft_graph.variables.reference import (
    all_variables as all_variables,
    assert_variables_initialized as assert_variables_initialized,
    global_variables as global_variables,
    global_variables_initializer as global_variables_initializer,
    initialize_all_tables as initialize_all_tables,
    initialize_all_variables as initialize_all_variables,
    initialize_local_variables as initialize_local_variables,
    initialize_variables as initialize_variables,
    is_variable_initialized as is_variable_initialized,
    local_variables as local_variables,
    local_variables_initializer as local_variables_initializer,
    model_variables as model_variables,
    moving_average_variables as moving_average_variables,
    report_uninitialized_variables as report_uninitialized_variables,
    tables_initializer as tables_initializer,
    trainable_variables as trainable_variables,
    variables_initializer as variables_initializer,
)
from weft_graph.variables.scope import (
    AUTO_REUSE as AUTO_REUSE,
    VariableScope as VariableScope,
    get_local_variable as get_local_variable,
    get_variable as get_variable,
    get_variable_scope as get_variable_scope,
    no_regularizer as no_regularizer,
    variable_op_scope as variable_op_scope,
    variable_scope as variable_scope,
)
from weft_graph.variables.template import make_template as make_template

# Types, shapes and errors
from weft_tensor import dtypes as _dtypes
from weft_tensor.dtypes import (
    QUANTIZED_DTYPES as QUANTIZED_DTYPES,
    DType as DType,
    as_dtype as as_dtype,
    bfloat16 as bfloat16,
    complex64 as complex64,
    complex128 as complex128,
    double as double,
    float16 as float16,
    float32 as float32,
    float64 as float64,
    half as half,
    int8 as int8,
    int16 as int16,
    int32 as int32,
    int64 as int64,
    qint8 as qint8,
    qint16 as qint16,
    qint32 as qint32,
    quint8 as quint8,
    quint16 as quint16,
    resource as resource,
    string as string,
    uint8 as uint8,
    uint16 as uint16,
    uint32 as uint32,
    uint64 as uint64,
    variant as variant,
)
from weft_tensor.errors import OpError as OpError
from weft_tensor.shape import (
    Dimension as Dimension,
    TensorShape as TensorShape,
    dimension_at_index as dimension_at_index,
    dimension_value as dimension_value,
)

# What has another name in TensorFlow 1.15
no_gradient = _registry.NotDifferentiable
NoGradient = _registry.NotDifferentiable
get_static_value = _constant_value.constant_value
Operation = _node.Node
Tensor = _node.Output
tensor_scatter_add = _gather.tensor_scatter_nd_add
tensor_scatter_sub = _gather.tensor_scatter_nd_sub
tensor_scatter_update = _gather.tensor_scatter_nd_update
reverse_v2 = _layout.reverse
bool = _dtypes.bool_

newaxis = None
"""In an index: a new axis of size 1."""

if _typing.TYPE_CHECKING:
    from weft import (
        app as app,
        bitwise as bitwise,
        compat as compat,
        config as config,
        data as data,
        debugging as debugging,
        dtypes as dtypes,
        errors as errors,
        flags as flags,
        gfile as gfile,
        graph_util as graph_util,
        initializers as initializers,
        io as io,
        layers as layers,
        linalg as linalg,
        logging as logging,
        losses as losses,
        manip as manip,
        math as math,
        metrics as metrics,
        nest as nest,
        nn as nn,
        python_io as python_io,
        queue as queue,
        random as random,
        raw_ops as raw_ops,
        saved_model as saved_model,
        sparse as sparse,
        strings as strings,
        summary as summary,
        test as test,
        train as train,
        version as version,
    )
    from weft.logging import get_logger as get_logger
    from weft.version import (
        GRAPH_DEF_VERSION_MIN_CONSUMER as GRAPH_DEF_VERSION_MIN_CONSUMER,
        GRAPH_DEF_VERSION_MIN_PRODUCER as GRAPH_DEF_VERSION_MIN_PRODUCER,
        VERSION as VERSION,
        __version__ as __version__,
    )
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
    from weft_io.coordination.critical_section import (
        CriticalSection as CriticalSection,
    )
    from weft_io.input.parsing import (
        FixedLenFeature as FixedLenFeature,
        FixedLenSequenceFeature as FixedLenSequenceFeature,
        SparseFeature as SparseFeature,
        VarLenFeature as VarLenFeature,
        decode_compressed as decode_compressed,
        decode_csv as decode_csv,
        decode_json_example as decode_json_example,
        parse_example as parse_example,
        parse_single_example as parse_single_example,
        parse_single_sequence_example as parse_single_sequence_example,
        parse_tensor as parse_tensor,
        serialize_tensor as serialize_tensor,
    )
    from weft_io.input.readers import (
        FixedLengthRecordReader as FixedLengthRecordReader,
        IdentityReader as IdentityReader,
        ReaderBase as ReaderBase,
        TextLineReader as TextLineReader,
        TFRecordReader as TFRecordReader,
        WholeFileReader as WholeFileReader,
    )
    from weft_io.ops.files import (
        matching_files as matching_files,
        read_file as read_file,
        write_file as write_file,
    )
    from weft_io.queues.accumulators import (
        ConditionalAccumulator as ConditionalAccumulator,
        ConditionalAccumulatorBase as ConditionalAccumulatorBase,
        SparseConditionalAccumulator as SparseConditionalAccumulator,
    )
    from weft_io.queues.queue_ops import (
        FIFOQueue as FIFOQueue,
        PaddingFIFOQueue as PaddingFIFOQueue,
        PriorityQueue as PriorityQueue,
        QueueBase as QueueBase,
        RandomShuffleQueue as RandomShuffleQueue,
    )
else:
    from weft import _lazy

    __getattr__, __dir__ = _lazy.attach(
        __name__,
        namespaces=[
            "app",
            "bitwise",
            "compat",
            "config",
            "data",
            "debugging",
            "dtypes",
            "errors",
            "flags",
            "gfile",
            "graph_util",
            "initializers",
            "io",
            "layers",
            "linalg",
            "logging",
            "losses",
            "manip",
            "math",
            "metrics",
            "nest",
            "nn",
            "python_io",
            "queue",
            "random",
            "raw_ops",
            "saved_model",
            "sparse",
            "strings",
            "summary",
            "test",
            "train",
            "version",
        ],
        names={
            "weft.logging": ["get_logger"],
            "weft.version": [
                "GRAPH_DEF_VERSION_MIN_CONSUMER",
                "GRAPH_DEF_VERSION_MIN_PRODUCER",
                "VERSION",
                "__version__",
            ],
            "weft_graph.proto": [
                "AttrValue",
                "ConfigProto",
                "Event",
                "GPUOptions",
                "GraphDef",
                "GraphOptions",
                "HistogramProto",
                "LogMessage",
                "MetaGraphDef",
                "NameAttrList",
                "NodeDef",
                "OptimizerOptions",
                "RunMetadata",
                "RunOptions",
                "SessionLog",
                "Summary",
                "SummaryMetadata",
                "TensorInfo",
            ],
            "weft_io.queues.accumulators": [
                "ConditionalAccumulator",
                "ConditionalAccumulatorBase",
                "SparseConditionalAccumulator",
            ],
            "weft_io.coordination.critical_section": [
                "CriticalSection",
            ],
            "weft_io.ops.files": [
                "matching_files",
                "read_file",
                "write_file",
            ],
            "weft_io.input.parsing": [
                "FixedLenFeature",
                "FixedLenSequenceFeature",
                "SparseFeature",
                "VarLenFeature",
                "decode_compressed",
                "decode_csv",
                "decode_json_example",
                "parse_example",
                "parse_single_example",
                "parse_single_sequence_example",
                "parse_tensor",
                "serialize_tensor",
            ],
            "weft_io.queues.queue_ops": [
                "FIFOQueue",
                "PaddingFIFOQueue",
                "PriorityQueue",
                "QueueBase",
                "RandomShuffleQueue",
            ],
            "weft_io.input.readers": [
                "FixedLengthRecordReader",
                "IdentityReader",
                "ReaderBase",
                "TextLineReader",
                "TFRecordReader",
                "WholeFileReader",
            ],
        },
    )
