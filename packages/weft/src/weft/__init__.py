"""weft: dataflow graphs in the style of the TensorFlow white paper.

`import weft as wf`.  The names are the paper's, and TensorFlow 1.15's where the paper is silent.
What is here is imported at once; namespaces (`wf.train`, `wf.layers`, ...), protocol messages
(`wf.ConfigProto`, ...) and the version load when first used.
"""

import typing as _typing

# Gradients
from weft_autodiff import registry as _registry
from weft_autodiff.backprop import (
    AggregationMethod as AggregationMethod,
    UnconnectedGradients as UnconnectedGradients,
    gradients as gradients,
)
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
from weft_autodiff.registry import (
    NotDifferentiable as NotDifferentiable,
    RegisterGradient as RegisterGradient,
)

# Sessions
from weft_exec.session import InteractiveSession as InteractiveSession, Session as Session

# Graphs and what they hold
from weft_graph import constant_value as _constant_value, node as _node
from weft_graph.builder import (
    constant as constant,
    convert_to_tensor as convert_to_tensor,
    register_tensor_conversion_function as register_tensor_conversion_function,
)
from weft_graph.collections_keys import GraphKeys as GraphKeys
from weft_graph.control_flow.conditional import (
    case as case,
    cond as cond,
    switch_case as switch_case,
)
from weft_graph.control_flow.loop import while_loop as while_loop
from weft_graph.device_spec import DeviceSpec as DeviceSpec
from weft_graph.framework import (
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
from weft_graph.graph import Graph as Graph
from weft_graph.graph_def import GRAPH_DEF_VERSION as GRAPH_DEF_VERSION
from weft_graph.import_graph_def import import_graph_def as import_graph_def
from weft_graph.indexed_slices import (
    IndexedSlices as IndexedSlices,
    SparseTensor as SparseTensor,
    SparseTensorValue as SparseTensorValue,
    convert_to_tensor_or_indexed_slices as convert_to_tensor_or_indexed_slices,
    convert_to_tensor_or_sparse_tensor as convert_to_tensor_or_sparse_tensor,
)
from weft_graph.initializers import (
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
from weft_graph.metrics.classes import confusion_matrix as confusion_matrix
from weft_graph.ops import gather as _gather, layout as _layout

# Operations, by family
from weft_graph.ops.arithmetic import (
    abs as abs,
    accumulate_n as accumulate_n,
    add as add,
    add_n as add_n,
    ceil as ceil,
    clip_by_value as clip_by_value,
    div as div,
    div_no_nan as div_no_nan,
    divide as divide,
    floor as floor,
    floor_div as floor_div,
    floordiv as floordiv,
    floormod as floormod,
    maximum as maximum,
    minimum as minimum,
    mod as mod,
    multiply as multiply,
    negative as negative,
    pow as pow,
    realdiv as realdiv,
    reciprocal as reciprocal,
    rint as rint,
    round as round,
    rsqrt as rsqrt,
    scalar_mul as scalar_mul,
    sign as sign,
    sqrt as sqrt,
    square as square,
    squared_difference as squared_difference,
    subtract as subtract,
    truediv as truediv,
    truncatediv as truncatediv,
    truncatemod as truncatemod,
)
from weft_graph.ops.array import (
    broadcast_dynamic_shape as broadcast_dynamic_shape,
    broadcast_static_shape as broadcast_static_shape,
    broadcast_to as broadcast_to,
    expand_dims as expand_dims,
    fill as fill,
    ones as ones,
    ones_like as ones_like,
    placeholder as placeholder,
    placeholder_with_default as placeholder_with_default,
    rank as rank,
    reshape as reshape,
    shape as shape,
    shape_n as shape_n,
    size as size,
    squeeze as squeeze,
    zeros as zeros,
    zeros_like as zeros_like,
)
from weft_graph.ops.casting import (
    angle as angle,
    bitcast as bitcast,
    cast as cast,
    complex as complex,
    conj as conj,
    imag as imag,
    real as real,
    saturate_cast as saturate_cast,
    to_bfloat16 as to_bfloat16,
    to_complex64 as to_complex64,
    to_complex128 as to_complex128,
    to_double as to_double,
    to_float as to_float,
    to_int32 as to_int32,
    to_int64 as to_int64,
)
from weft_graph.ops.checks import (
    assert_equal as assert_equal,
    assert_greater as assert_greater,
    assert_greater_equal as assert_greater_equal,
    assert_integer as assert_integer,
    assert_less as assert_less,
    assert_less_equal as assert_less_equal,
    assert_near as assert_near,
    assert_negative as assert_negative,
    assert_non_negative as assert_non_negative,
    assert_non_positive as assert_non_positive,
    assert_none_equal as assert_none_equal,
    assert_positive as assert_positive,
    assert_proper_iterable as assert_proper_iterable,
    assert_rank as assert_rank,
    assert_rank_at_least as assert_rank_at_least,
    assert_rank_in as assert_rank_in,
    assert_same_float_dtype as assert_same_float_dtype,
    assert_scalar as assert_scalar,
    assert_type as assert_type,
    is_non_decreasing as is_non_decreasing,
    is_numeric_tensor as is_numeric_tensor,
    is_strictly_increasing as is_strictly_increasing,
)
from weft_graph.ops.comparison import (
    equal as equal,
    greater as greater,
    greater_equal as greater_equal,
    less as less,
    less_equal as less_equal,
    logical_and as logical_and,
    logical_not as logical_not,
    logical_or as logical_or,
    logical_xor as logical_xor,
    not_equal as not_equal,
)
from weft_graph.ops.contraction import einsum as einsum, tensordot as tensordot
from weft_graph.ops.control import (
    Assert as Assert,
    Print as Print,
    group as group,
    no_op as no_op,
    numpy_function as numpy_function,
    print as print,
    py_func as py_func,
    timestamp as timestamp,
    tuple as tuple,
)
from weft_graph.ops.diagonals import (
    diag as diag,
    diag_part as diag_part,
    eye as eye,
    matrix_band_part as matrix_band_part,
    matrix_diag as matrix_diag,
    matrix_diag_part as matrix_diag_part,
    matrix_set_diag as matrix_set_diag,
)
from weft_graph.ops.elementary import (
    acos as acos,
    acosh as acosh,
    asin as asin,
    asinh as asinh,
    atan as atan,
    atan2 as atan2,
    atanh as atanh,
    cos as cos,
    cosh as cosh,
    digamma as digamma,
    erf as erf,
    erfc as erfc,
    exp as exp,
    expm1 as expm1,
    igamma as igamma,
    igammac as igammac,
    is_finite as is_finite,
    is_inf as is_inf,
    is_nan as is_nan,
    lbeta as lbeta,
    lgamma as lgamma,
    log as log,
    log1p as log1p,
    log_sigmoid as log_sigmoid,
    polygamma as polygamma,
    sigmoid as sigmoid,
    sin as sin,
    sinh as sinh,
    tan as tan,
    tanh as tanh,
    zeta as zeta,
)
from weft_graph.ops.gather import (
    batch_gather as batch_gather,
    dynamic_partition as dynamic_partition,
    dynamic_stitch as dynamic_stitch,
    gather as gather,
    gather_nd as gather_nd,
    one_hot as one_hot,
    scatter_nd as scatter_nd,
    tensor_scatter_nd_add as tensor_scatter_nd_add,
    tensor_scatter_nd_sub as tensor_scatter_nd_sub,
    tensor_scatter_nd_update as tensor_scatter_nd_update,
)
from weft_graph.ops.identity import (
    add_check_numerics_ops as add_check_numerics_ops,
    check_numerics as check_numerics,
    ensure_shape as ensure_shape,
    guarantee_const as guarantee_const,
    identity as identity,
    identity_n as identity_n,
    stop_gradient as stop_gradient,
    verify_tensor_all_finite as verify_tensor_all_finite,
)
from weft_graph.ops.join import (
    concat as concat,
    split as split,
    stack as stack,
    tile as tile,
    unstack as unstack,
)
from weft_graph.ops.layout import (
    batch_to_space as batch_to_space,
    batch_to_space_nd as batch_to_space_nd,
    depth_to_space as depth_to_space,
    extract_image_patches as extract_image_patches,
    invert_permutation as invert_permutation,
    matrix_transpose as matrix_transpose,
    pad as pad,
    reverse as reverse,
    reverse_sequence as reverse_sequence,
    roll as roll,
    space_to_batch as space_to_batch,
    space_to_batch_nd as space_to_batch_nd,
    space_to_depth as space_to_depth,
    transpose as transpose,
)
from weft_graph.ops.linalg import (
    cholesky as cholesky,
    cholesky_solve as cholesky_solve,
    matrix_determinant as matrix_determinant,
    matrix_inverse as matrix_inverse,
    matrix_solve as matrix_solve,
    matrix_solve_ls as matrix_solve_ls,
    matrix_triangular_solve as matrix_triangular_solve,
    norm as norm,
    qr as qr,
    self_adjoint_eig as self_adjoint_eig,
    self_adjoint_eigvals as self_adjoint_eigvals,
    svd as svd,
)
from weft_graph.ops.masks import (
    boolean_mask as boolean_mask,
    meshgrid as meshgrid,
    parallel_stack as parallel_stack,
    repeat as repeat,
    required_space_to_batch_paddings as required_space_to_batch_paddings,
    sequence_mask as sequence_mask,
    where as where,
    where_v2 as where_v2,
)
from weft_graph.ops.matmul import (
    cross as cross,
    matmul as matmul,
    sparse_matmul as sparse_matmul,
    trace as trace,
)
from weft_graph.ops.random import (
    multinomial as multinomial,
    random_crop as random_crop,
    random_gamma as random_gamma,
    random_normal as random_normal,
    random_poisson as random_poisson,
    random_shuffle as random_shuffle,
    random_uniform as random_uniform,
    truncated_normal as truncated_normal,
)
from weft_graph.ops.reduction import (
    arg_max as arg_max,
    arg_min as arg_min,
    argmax as argmax,
    argmin as argmin,
    count_nonzero as count_nonzero,
    cumprod as cumprod,
    cumsum as cumsum,
    reduce_all as reduce_all,
    reduce_any as reduce_any,
    reduce_logsumexp as reduce_logsumexp,
    reduce_max as reduce_max,
    reduce_mean as reduce_mean,
    reduce_min as reduce_min,
    reduce_prod as reduce_prod,
    reduce_sum as reduce_sum,
)
from weft_graph.ops.search import (
    argsort as argsort,
    searchsorted as searchsorted,
    setdiff1d as setdiff1d,
    sort as sort,
    unique as unique,
    unique_with_counts as unique_with_counts,
    unravel_index as unravel_index,
)
from weft_graph.ops.segments import (
    segment_max as segment_max,
    segment_mean as segment_mean,
    segment_min as segment_min,
    segment_prod as segment_prod,
    segment_sum as segment_sum,
    sparse_segment_mean as sparse_segment_mean,
    sparse_segment_sqrt_n as sparse_segment_sqrt_n,
    sparse_segment_sum as sparse_segment_sum,
    unsorted_segment_max as unsorted_segment_max,
    unsorted_segment_mean as unsorted_segment_mean,
    unsorted_segment_min as unsorted_segment_min,
    unsorted_segment_prod as unsorted_segment_prod,
    unsorted_segment_sqrt_n as unsorted_segment_sqrt_n,
    unsorted_segment_sum as unsorted_segment_sum,
)
from weft_graph.ops.sequence import (
    bincount as bincount,
    histogram_fixed_width as histogram_fixed_width,
    histogram_fixed_width_bins as histogram_fixed_width_bins,
    lin_space as lin_space,
    linspace as linspace,
    range as range,
)
from weft_graph.ops.slicing import slice as slice, strided_slice as strided_slice
from weft_graph.ops.sparse import (
    sparse_placeholder as sparse_placeholder,
    sparse_retain as sparse_retain,
    sparse_tensor_dense_matmul as sparse_tensor_dense_matmul,
    sparse_tensor_to_dense as sparse_tensor_to_dense,
    sparse_to_dense as sparse_to_dense,
)
from weft_graph.ops.state import (
    assign as assign,
    assign_add as assign_add,
    assign_sub as assign_sub,
    count_up_to as count_up_to,
    scatter_add as scatter_add,
    scatter_div as scatter_div,
    scatter_max as scatter_max,
    scatter_min as scatter_min,
    scatter_mul as scatter_mul,
    scatter_nd_add as scatter_nd_add,
    scatter_nd_sub as scatter_nd_sub,
    scatter_nd_update as scatter_nd_update,
    scatter_sub as scatter_sub,
    scatter_update as scatter_update,
)
from weft_graph.ops.strings import (
    as_string as as_string,
    decode_base64 as decode_base64,
    decode_raw as decode_raw,
    encode_base64 as encode_base64,
    reduce_join as reduce_join,
    regex_replace as regex_replace,
    string_join as string_join,
    string_split as string_split,
    string_strip as string_strip,
    string_to_hash_bucket as string_to_hash_bucket,
    string_to_hash_bucket_fast as string_to_hash_bucket_fast,
    string_to_hash_bucket_strong as string_to_hash_bucket_strong,
    string_to_number as string_to_number,
    substr as substr,
)

# Default graphs, variables and their scopes
from weft_graph.partitioned_variables import (
    create_partitioned_variables as create_partitioned_variables,
    fixed_size_partitioner as fixed_size_partitioner,
    min_max_variable_partitioner as min_max_variable_partitioner,
    variable_axis_size_partitioner as variable_axis_size_partitioner,
)
from weft_graph.random_seed import get_seed as get_seed, set_random_seed as set_random_seed
from weft_graph.stacks import (
    get_default_graph as get_default_graph,
    get_default_session as get_default_session,
    reset_default_graph as reset_default_graph,
)
from weft_graph.template import make_template as make_template
from weft_graph.tensor_array import TensorArray as TensorArray
from weft_graph.tensor_proto import (
    make_ndarray as make_ndarray,
    make_tensor_proto as make_tensor_proto,
)
from weft_graph.variable_base import (
    Variable as Variable,
    VariableAggregation as VariableAggregation,
    VariableSynchronization as VariableSynchronization,
    disable_resource_variables as disable_resource_variables,
    enable_resource_variables as enable_resource_variables,
    resource_variables_enabled as resource_variables_enabled,
    variable_creator_scope as variable_creator_scope,
)
from weft_graph.variable_scope import (
    AUTO_REUSE as AUTO_REUSE,
    VariableScope as VariableScope,
    get_local_variable as get_local_variable,
    get_variable as get_variable,
    get_variable_scope as get_variable_scope,
    no_regularizer as no_regularizer,
    variable_op_scope as variable_op_scope,
    variable_scope as variable_scope,
)
from weft_graph.variables import (
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
        debugging as debugging,
        dtypes as dtypes,
        errors as errors,
        flags as flags,
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
        random as random,
        raw_ops as raw_ops,
        sparse as sparse,
        strings as strings,
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
else:
    from weft import _lazy

    __getattr__, __dir__ = _lazy.attach(
        __name__,
        namespaces=[
            "app",
            "bitwise",
            "compat",
            "debugging",
            "dtypes",
            "errors",
            "flags",
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
            "random",
            "raw_ops",
            "sparse",
            "strings",
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
        },
    )
