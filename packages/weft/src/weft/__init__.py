"""weft: dataflow graphs in the style of the TensorFlow white paper.

`import weft as wf`.  The names are the paper's, and TensorFlow 1.15's where the paper is silent.
What is here is imported at once; namespaces (`wf.train`, `wf.layers`, ...) and protocol messages
(`wf.ConfigProto`, ...) load when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

from weft_autodiff.backprop import gradients as gradients
from weft_autodiff.clipping import clip_by_average_norm as clip_by_average_norm
from weft_autodiff.clipping import clip_by_global_norm as clip_by_global_norm
from weft_autodiff.clipping import clip_by_norm as clip_by_norm
from weft_autodiff.clipping import global_norm as global_norm
from weft_autodiff.custom_gradient import custom_gradient as custom_gradient
from weft_autodiff.registry import NotDifferentiable as NoGradient
from weft_autodiff.registry import NotDifferentiable as NotDifferentiable
from weft_autodiff.registry import RegisterGradient as RegisterGradient
from weft_autodiff.registry import NotDifferentiable as no_gradient
from weft_exec.session import InteractiveSession as InteractiveSession
from weft_exec.session import Session as Session
from weft_graph.builder import constant as constant
from weft_graph.builder import convert_to_tensor as convert_to_tensor
from weft_graph.builder import (
    register_tensor_conversion_function as register_tensor_conversion_function,
)
from weft_graph.collections_keys import GraphKeys as GraphKeys
from weft_graph.device_spec import DeviceSpec as DeviceSpec
from weft_graph.framework import add_to_collection as add_to_collection
from weft_graph.framework import add_to_collections as add_to_collections
from weft_graph.framework import colocate_with as colocate_with
from weft_graph.framework import container as container
from weft_graph.framework import control_dependencies as control_dependencies
from weft_graph.framework import device as device
from weft_graph.framework import disable_control_flow_v2 as disable_control_flow_v2
from weft_graph.framework import disable_eager_execution as disable_eager_execution
from weft_graph.framework import disable_tensor_equality as disable_tensor_equality
from weft_graph.framework import disable_v2_behavior as disable_v2_behavior
from weft_graph.framework import disable_v2_tensorshape as disable_v2_tensorshape
from weft_graph.framework import enable_eager_execution as enable_eager_execution
from weft_graph.framework import executing_eagerly as executing_eagerly
from weft_graph.framework import get_collection as get_collection
from weft_graph.framework import get_collection_ref as get_collection_ref
from weft_graph.framework import init_scope as init_scope
from weft_graph.framework import is_symbolic_tensor as is_symbolic_tensor
from weft_graph.framework import is_tensor as is_tensor
from weft_graph.framework import name_scope as name_scope
from weft_graph.framework import op_scope as op_scope
from weft_graph.graph import Graph as Graph
from weft_graph.graph_def import GRAPH_DEF_VERSION as GRAPH_DEF_VERSION
from weft_graph.import_graph_def import import_graph_def as import_graph_def
from weft_graph.indexed_slices import IndexedSlices as IndexedSlices
from weft_graph.indexed_slices import SparseTensor as SparseTensor
from weft_graph.indexed_slices import SparseTensorValue as SparseTensorValue
from weft_graph.indexed_slices import (
    convert_to_tensor_or_indexed_slices as convert_to_tensor_or_indexed_slices,
)
from weft_graph.indexed_slices import (
    convert_to_tensor_or_sparse_tensor as convert_to_tensor_or_sparse_tensor,
)
from weft_graph.initializers import constant_initializer as constant_initializer
from weft_graph.initializers import glorot_normal_initializer as glorot_normal_initializer
from weft_graph.initializers import glorot_uniform_initializer as glorot_uniform_initializer
from weft_graph.initializers import ones_initializer as ones_initializer
from weft_graph.initializers import orthogonal_initializer as orthogonal_initializer
from weft_graph.initializers import random_normal_initializer as random_normal_initializer
from weft_graph.initializers import random_uniform_initializer as random_uniform_initializer
from weft_graph.initializers import truncated_normal_initializer as truncated_normal_initializer
from weft_graph.initializers import (
    uniform_unit_scaling_initializer as uniform_unit_scaling_initializer,
)
from weft_graph.initializers import variance_scaling_initializer as variance_scaling_initializer
from weft_graph.initializers import zeros_initializer as zeros_initializer
from weft_graph.metrics.classes import confusion_matrix as confusion_matrix
from weft_graph.node import Node as Operation
from weft_graph.node import Output as Tensor
from weft_graph.ops.arithmetic import abs as abs
from weft_graph.ops.arithmetic import accumulate_n as accumulate_n
from weft_graph.ops.arithmetic import add as add
from weft_graph.ops.arithmetic import add_n as add_n
from weft_graph.ops.arithmetic import ceil as ceil
from weft_graph.ops.arithmetic import clip_by_value as clip_by_value
from weft_graph.ops.arithmetic import div as div
from weft_graph.ops.arithmetic import div_no_nan as div_no_nan
from weft_graph.ops.arithmetic import divide as divide
from weft_graph.ops.arithmetic import floor as floor
from weft_graph.ops.arithmetic import floor_div as floor_div
from weft_graph.ops.arithmetic import floordiv as floordiv
from weft_graph.ops.arithmetic import floormod as floormod
from weft_graph.ops.arithmetic import maximum as maximum
from weft_graph.ops.arithmetic import minimum as minimum
from weft_graph.ops.arithmetic import mod as mod
from weft_graph.ops.arithmetic import multiply as multiply
from weft_graph.ops.arithmetic import negative as negative
from weft_graph.ops.arithmetic import pow as pow
from weft_graph.ops.arithmetic import realdiv as realdiv
from weft_graph.ops.arithmetic import reciprocal as reciprocal
from weft_graph.ops.arithmetic import rint as rint
from weft_graph.ops.arithmetic import round as round
from weft_graph.ops.arithmetic import rsqrt as rsqrt
from weft_graph.ops.arithmetic import scalar_mul as scalar_mul
from weft_graph.ops.arithmetic import sign as sign
from weft_graph.ops.arithmetic import sqrt as sqrt
from weft_graph.ops.arithmetic import square as square
from weft_graph.ops.arithmetic import squared_difference as squared_difference
from weft_graph.ops.arithmetic import subtract as subtract
from weft_graph.ops.arithmetic import truediv as truediv
from weft_graph.ops.arithmetic import truncatediv as truncatediv
from weft_graph.ops.arithmetic import truncatemod as truncatemod
from weft_graph.ops.array import broadcast_dynamic_shape as broadcast_dynamic_shape
from weft_graph.ops.array import broadcast_static_shape as broadcast_static_shape
from weft_graph.ops.array import broadcast_to as broadcast_to
from weft_graph.ops.array import expand_dims as expand_dims
from weft_graph.ops.array import fill as fill
from weft_graph.ops.array import ones as ones
from weft_graph.ops.array import ones_like as ones_like
from weft_graph.ops.array import placeholder as placeholder
from weft_graph.ops.array import placeholder_with_default as placeholder_with_default
from weft_graph.ops.array import rank as rank
from weft_graph.ops.array import reshape as reshape
from weft_graph.ops.array import shape as shape
from weft_graph.ops.array import shape_n as shape_n
from weft_graph.ops.array import size as size
from weft_graph.ops.array import squeeze as squeeze
from weft_graph.ops.array import zeros as zeros
from weft_graph.ops.array import zeros_like as zeros_like
from weft_graph.ops.casting import angle as angle
from weft_graph.ops.casting import bitcast as bitcast
from weft_graph.ops.casting import cast as cast
from weft_graph.ops.casting import complex as complex
from weft_graph.ops.casting import conj as conj
from weft_graph.ops.casting import imag as imag
from weft_graph.ops.casting import real as real
from weft_graph.ops.casting import saturate_cast as saturate_cast
from weft_graph.ops.casting import to_bfloat16 as to_bfloat16
from weft_graph.ops.casting import to_complex128 as to_complex128
from weft_graph.ops.casting import to_complex64 as to_complex64
from weft_graph.ops.casting import to_double as to_double
from weft_graph.ops.casting import to_float as to_float
from weft_graph.ops.casting import to_int32 as to_int32
from weft_graph.ops.casting import to_int64 as to_int64
from weft_graph.ops.checks import assert_equal as assert_equal
from weft_graph.ops.checks import assert_greater as assert_greater
from weft_graph.ops.checks import assert_greater_equal as assert_greater_equal
from weft_graph.ops.checks import assert_integer as assert_integer
from weft_graph.ops.checks import assert_less as assert_less
from weft_graph.ops.checks import assert_less_equal as assert_less_equal
from weft_graph.ops.checks import assert_near as assert_near
from weft_graph.ops.checks import assert_negative as assert_negative
from weft_graph.ops.checks import assert_non_negative as assert_non_negative
from weft_graph.ops.checks import assert_non_positive as assert_non_positive
from weft_graph.ops.checks import assert_none_equal as assert_none_equal
from weft_graph.ops.checks import assert_positive as assert_positive
from weft_graph.ops.checks import assert_proper_iterable as assert_proper_iterable
from weft_graph.ops.checks import assert_rank as assert_rank
from weft_graph.ops.checks import assert_rank_at_least as assert_rank_at_least
from weft_graph.ops.checks import assert_rank_in as assert_rank_in
from weft_graph.ops.checks import assert_same_float_dtype as assert_same_float_dtype
from weft_graph.ops.checks import assert_scalar as assert_scalar
from weft_graph.ops.checks import assert_type as assert_type
from weft_graph.ops.checks import is_non_decreasing as is_non_decreasing
from weft_graph.ops.checks import is_numeric_tensor as is_numeric_tensor
from weft_graph.ops.checks import is_strictly_increasing as is_strictly_increasing
from weft_graph.ops.comparison import equal as equal
from weft_graph.ops.comparison import greater as greater
from weft_graph.ops.comparison import greater_equal as greater_equal
from weft_graph.ops.comparison import less as less
from weft_graph.ops.comparison import less_equal as less_equal
from weft_graph.ops.comparison import logical_and as logical_and
from weft_graph.ops.comparison import logical_not as logical_not
from weft_graph.ops.comparison import logical_or as logical_or
from weft_graph.ops.comparison import logical_xor as logical_xor
from weft_graph.ops.comparison import not_equal as not_equal
from weft_graph.ops.contraction import einsum as einsum
from weft_graph.ops.contraction import tensordot as tensordot
from weft_graph.ops.control import Assert as Assert
from weft_graph.ops.control import Print as Print
from weft_graph.ops.control import group as group
from weft_graph.ops.control import no_op as no_op
from weft_graph.ops.control import numpy_function as numpy_function
from weft_graph.ops.control import print as print
from weft_graph.ops.control import py_func as py_func
from weft_graph.ops.control import timestamp as timestamp
from weft_graph.ops.control import tuple as tuple
from weft_graph.ops.diagonals import diag as diag
from weft_graph.ops.diagonals import diag_part as diag_part
from weft_graph.ops.diagonals import eye as eye
from weft_graph.ops.diagonals import matrix_band_part as matrix_band_part
from weft_graph.ops.diagonals import matrix_diag as matrix_diag
from weft_graph.ops.diagonals import matrix_diag_part as matrix_diag_part
from weft_graph.ops.diagonals import matrix_set_diag as matrix_set_diag
from weft_graph.ops.elementary import acos as acos
from weft_graph.ops.elementary import acosh as acosh
from weft_graph.ops.elementary import asin as asin
from weft_graph.ops.elementary import asinh as asinh
from weft_graph.ops.elementary import atan as atan
from weft_graph.ops.elementary import atan2 as atan2
from weft_graph.ops.elementary import atanh as atanh
from weft_graph.ops.elementary import cos as cos
from weft_graph.ops.elementary import cosh as cosh
from weft_graph.ops.elementary import digamma as digamma
from weft_graph.ops.elementary import erf as erf
from weft_graph.ops.elementary import erfc as erfc
from weft_graph.ops.elementary import exp as exp
from weft_graph.ops.elementary import expm1 as expm1
from weft_graph.ops.elementary import igamma as igamma
from weft_graph.ops.elementary import igammac as igammac
from weft_graph.ops.elementary import is_finite as is_finite
from weft_graph.ops.elementary import is_inf as is_inf
from weft_graph.ops.elementary import is_nan as is_nan
from weft_graph.ops.elementary import lbeta as lbeta
from weft_graph.ops.elementary import lgamma as lgamma
from weft_graph.ops.elementary import log as log
from weft_graph.ops.elementary import log1p as log1p
from weft_graph.ops.elementary import log_sigmoid as log_sigmoid
from weft_graph.ops.elementary import polygamma as polygamma
from weft_graph.ops.elementary import sigmoid as sigmoid
from weft_graph.ops.elementary import sin as sin
from weft_graph.ops.elementary import sinh as sinh
from weft_graph.ops.elementary import tan as tan
from weft_graph.ops.elementary import tanh as tanh
from weft_graph.ops.elementary import zeta as zeta
from weft_graph.ops.gather import batch_gather as batch_gather
from weft_graph.ops.gather import dynamic_partition as dynamic_partition
from weft_graph.ops.gather import dynamic_stitch as dynamic_stitch
from weft_graph.ops.gather import gather as gather
from weft_graph.ops.gather import gather_nd as gather_nd
from weft_graph.ops.gather import one_hot as one_hot
from weft_graph.ops.gather import scatter_nd as scatter_nd
from weft_graph.ops.gather import tensor_scatter_nd_add as tensor_scatter_nd_add
from weft_graph.ops.gather import tensor_scatter_nd_sub as tensor_scatter_nd_sub
from weft_graph.ops.gather import tensor_scatter_nd_update as tensor_scatter_nd_update
from weft_graph.ops.identity import check_numerics as check_numerics
from weft_graph.ops.identity import ensure_shape as ensure_shape
from weft_graph.ops.identity import guarantee_const as guarantee_const
from weft_graph.ops.identity import identity as identity
from weft_graph.ops.identity import identity_n as identity_n
from weft_graph.ops.identity import stop_gradient as stop_gradient
from weft_graph.ops.join import concat as concat
from weft_graph.ops.join import split as split
from weft_graph.ops.join import stack as stack
from weft_graph.ops.join import tile as tile
from weft_graph.ops.join import unstack as unstack
from weft_graph.ops.layout import batch_to_space as batch_to_space
from weft_graph.ops.layout import batch_to_space_nd as batch_to_space_nd
from weft_graph.ops.layout import depth_to_space as depth_to_space
from weft_graph.ops.layout import extract_image_patches as extract_image_patches
from weft_graph.ops.layout import invert_permutation as invert_permutation
from weft_graph.ops.layout import matrix_transpose as matrix_transpose
from weft_graph.ops.layout import pad as pad
from weft_graph.ops.layout import reverse as reverse
from weft_graph.ops.layout import reverse_sequence as reverse_sequence
from weft_graph.ops.layout import roll as roll
from weft_graph.ops.layout import space_to_batch as space_to_batch
from weft_graph.ops.layout import space_to_batch_nd as space_to_batch_nd
from weft_graph.ops.layout import space_to_depth as space_to_depth
from weft_graph.ops.layout import transpose as transpose
from weft_graph.ops.linalg import cholesky as cholesky
from weft_graph.ops.linalg import cholesky_solve as cholesky_solve
from weft_graph.ops.linalg import matrix_determinant as matrix_determinant
from weft_graph.ops.linalg import matrix_inverse as matrix_inverse
from weft_graph.ops.linalg import matrix_solve as matrix_solve
from weft_graph.ops.linalg import matrix_solve_ls as matrix_solve_ls
from weft_graph.ops.linalg import matrix_triangular_solve as matrix_triangular_solve
from weft_graph.ops.linalg import norm as norm
from weft_graph.ops.linalg import qr as qr
from weft_graph.ops.linalg import self_adjoint_eig as self_adjoint_eig
from weft_graph.ops.linalg import self_adjoint_eigvals as self_adjoint_eigvals
from weft_graph.ops.linalg import svd as svd
from weft_graph.ops.masks import boolean_mask as boolean_mask
from weft_graph.ops.masks import meshgrid as meshgrid
from weft_graph.ops.masks import parallel_stack as parallel_stack
from weft_graph.ops.masks import repeat as repeat
from weft_graph.ops.masks import (
    required_space_to_batch_paddings as required_space_to_batch_paddings,
)
from weft_graph.ops.masks import sequence_mask as sequence_mask
from weft_graph.ops.masks import where as where
from weft_graph.ops.masks import where_v2 as where_v2
from weft_graph.ops.matmul import cross as cross
from weft_graph.ops.matmul import matmul as matmul
from weft_graph.ops.matmul import sparse_matmul as sparse_matmul
from weft_graph.ops.matmul import trace as trace
from weft_graph.ops.random import multinomial as multinomial
from weft_graph.ops.random import random_crop as random_crop
from weft_graph.ops.random import random_gamma as random_gamma
from weft_graph.ops.random import random_normal as random_normal
from weft_graph.ops.random import random_poisson as random_poisson
from weft_graph.ops.random import random_shuffle as random_shuffle
from weft_graph.ops.random import random_uniform as random_uniform
from weft_graph.ops.random import truncated_normal as truncated_normal
from weft_graph.ops.reduction import arg_max as arg_max
from weft_graph.ops.reduction import arg_min as arg_min
from weft_graph.ops.reduction import argmax as argmax
from weft_graph.ops.reduction import argmin as argmin
from weft_graph.ops.reduction import count_nonzero as count_nonzero
from weft_graph.ops.reduction import cumprod as cumprod
from weft_graph.ops.reduction import cumsum as cumsum
from weft_graph.ops.reduction import reduce_all as reduce_all
from weft_graph.ops.reduction import reduce_any as reduce_any
from weft_graph.ops.reduction import reduce_logsumexp as reduce_logsumexp
from weft_graph.ops.reduction import reduce_max as reduce_max
from weft_graph.ops.reduction import reduce_mean as reduce_mean
from weft_graph.ops.reduction import reduce_min as reduce_min
from weft_graph.ops.reduction import reduce_prod as reduce_prod
from weft_graph.ops.reduction import reduce_sum as reduce_sum
from weft_graph.ops.search import argsort as argsort
from weft_graph.ops.search import searchsorted as searchsorted
from weft_graph.ops.search import setdiff1d as setdiff1d
from weft_graph.ops.search import sort as sort
from weft_graph.ops.search import unique as unique
from weft_graph.ops.search import unique_with_counts as unique_with_counts
from weft_graph.ops.search import unravel_index as unravel_index
from weft_graph.ops.segments import segment_max as segment_max
from weft_graph.ops.segments import segment_mean as segment_mean
from weft_graph.ops.segments import segment_min as segment_min
from weft_graph.ops.segments import segment_prod as segment_prod
from weft_graph.ops.segments import segment_sum as segment_sum
from weft_graph.ops.segments import sparse_segment_mean as sparse_segment_mean
from weft_graph.ops.segments import sparse_segment_sqrt_n as sparse_segment_sqrt_n
from weft_graph.ops.segments import sparse_segment_sum as sparse_segment_sum
from weft_graph.ops.segments import unsorted_segment_max as unsorted_segment_max
from weft_graph.ops.segments import unsorted_segment_mean as unsorted_segment_mean
from weft_graph.ops.segments import unsorted_segment_min as unsorted_segment_min
from weft_graph.ops.segments import unsorted_segment_prod as unsorted_segment_prod
from weft_graph.ops.segments import unsorted_segment_sqrt_n as unsorted_segment_sqrt_n
from weft_graph.ops.segments import unsorted_segment_sum as unsorted_segment_sum
from weft_graph.ops.sequence import bincount as bincount
from weft_graph.ops.sequence import histogram_fixed_width as histogram_fixed_width
from weft_graph.ops.sequence import histogram_fixed_width_bins as histogram_fixed_width_bins
from weft_graph.ops.sequence import lin_space as lin_space
from weft_graph.ops.sequence import linspace as linspace
from weft_graph.ops.sequence import range as range
from weft_graph.ops.slicing import slice as slice
from weft_graph.ops.slicing import strided_slice as strided_slice
from weft_graph.ops.sparse import sparse_placeholder as sparse_placeholder
from weft_graph.ops.sparse import sparse_tensor_dense_matmul as sparse_tensor_dense_matmul
from weft_graph.ops.sparse import sparse_tensor_to_dense as sparse_tensor_to_dense
from weft_graph.ops.sparse import sparse_to_dense as sparse_to_dense
from weft_graph.ops.state import assign as assign
from weft_graph.ops.state import assign_add as assign_add
from weft_graph.ops.state import assign_sub as assign_sub
from weft_graph.ops.state import count_up_to as count_up_to
from weft_graph.ops.state import is_variable_initialized as is_variable_initialized
from weft_graph.ops.state import scatter_add as scatter_add
from weft_graph.ops.state import scatter_div as scatter_div
from weft_graph.ops.state import scatter_max as scatter_max
from weft_graph.ops.state import scatter_min as scatter_min
from weft_graph.ops.state import scatter_mul as scatter_mul
from weft_graph.ops.state import scatter_nd_add as scatter_nd_add
from weft_graph.ops.state import scatter_nd_sub as scatter_nd_sub
from weft_graph.ops.state import scatter_nd_update as scatter_nd_update
from weft_graph.ops.state import scatter_sub as scatter_sub
from weft_graph.ops.state import scatter_update as scatter_update
from weft_graph.ops.strings import as_string as as_string
from weft_graph.ops.strings import decode_base64 as decode_base64
from weft_graph.ops.strings import decode_raw as decode_raw
from weft_graph.ops.strings import encode_base64 as encode_base64
from weft_graph.ops.strings import reduce_join as reduce_join
from weft_graph.ops.strings import regex_replace as regex_replace
from weft_graph.ops.strings import string_join as string_join
from weft_graph.ops.strings import string_split as string_split
from weft_graph.ops.strings import string_strip as string_strip
from weft_graph.ops.strings import string_to_hash_bucket as string_to_hash_bucket
from weft_graph.ops.strings import string_to_hash_bucket_fast as string_to_hash_bucket_fast
from weft_graph.ops.strings import string_to_hash_bucket_strong as string_to_hash_bucket_strong
from weft_graph.ops.strings import string_to_number as string_to_number
from weft_graph.ops.strings import substr as substr
from weft_graph.partitioned_variables import (
    create_partitioned_variables as create_partitioned_variables,
)
from weft_graph.partitioned_variables import fixed_size_partitioner as fixed_size_partitioner
from weft_graph.partitioned_variables import (
    min_max_variable_partitioner as min_max_variable_partitioner,
)
from weft_graph.partitioned_variables import (
    variable_axis_size_partitioner as variable_axis_size_partitioner,
)
from weft_graph.random_seed import get_seed as get_seed
from weft_graph.random_seed import set_random_seed as set_random_seed
from weft_graph.stacks import get_default_graph as get_default_graph
from weft_graph.stacks import get_default_session as get_default_session
from weft_graph.stacks import reset_default_graph as reset_default_graph
from weft_graph.template import make_template as make_template
from weft_graph.tensor_proto import make_ndarray as make_ndarray
from weft_graph.tensor_proto import make_tensor_proto as make_tensor_proto
from weft_graph.variable_base import Variable as Variable
from weft_graph.variable_base import VariableAggregation as VariableAggregation
from weft_graph.variable_base import VariableSynchronization as VariableSynchronization
from weft_graph.variable_base import disable_resource_variables as disable_resource_variables
from weft_graph.variable_base import enable_resource_variables as enable_resource_variables
from weft_graph.variable_base import resource_variables_enabled as resource_variables_enabled
from weft_graph.variable_base import variable_creator_scope as variable_creator_scope
from weft_graph.variable_scope import AUTO_REUSE as AUTO_REUSE
from weft_graph.variable_scope import VariableScope as VariableScope
from weft_graph.variable_scope import get_local_variable as get_local_variable
from weft_graph.variable_scope import get_variable as get_variable
from weft_graph.variable_scope import get_variable_scope as get_variable_scope
from weft_graph.variable_scope import no_regularizer as no_regularizer
from weft_graph.variable_scope import variable_op_scope as variable_op_scope
from weft_graph.variable_scope import variable_scope as variable_scope
from weft_graph.variables import all_variables as all_variables
from weft_graph.variables import assert_variables_initialized as assert_variables_initialized
from weft_graph.variables import global_variables as global_variables
from weft_graph.variables import global_variables_initializer as global_variables_initializer
from weft_graph.variables import initialize_all_variables as initialize_all_variables
from weft_graph.variables import initialize_local_variables as initialize_local_variables
from weft_graph.variables import initialize_variables as initialize_variables
from weft_graph.variables import local_variables as local_variables
from weft_graph.variables import local_variables_initializer as local_variables_initializer
from weft_graph.variables import model_variables as model_variables
from weft_graph.variables import moving_average_variables as moving_average_variables
from weft_graph.variables import report_uninitialized_variables as report_uninitialized_variables
from weft_graph.variables import trainable_variables as trainable_variables
from weft_graph.variables import variables_initializer as variables_initializer
from weft_tensor.dtypes import DType as DType
from weft_tensor.dtypes import QUANTIZED_DTYPES as QUANTIZED_DTYPES
from weft_tensor.dtypes import as_dtype as as_dtype
from weft_tensor.dtypes import bfloat16 as bfloat16
from weft_tensor.dtypes import bool_ as bool
from weft_tensor.dtypes import complex128 as complex128
from weft_tensor.dtypes import complex64 as complex64
from weft_tensor.dtypes import double as double
from weft_tensor.dtypes import float16 as float16
from weft_tensor.dtypes import float32 as float32
from weft_tensor.dtypes import float64 as float64
from weft_tensor.dtypes import half as half
from weft_tensor.dtypes import int16 as int16
from weft_tensor.dtypes import int32 as int32
from weft_tensor.dtypes import int64 as int64
from weft_tensor.dtypes import int8 as int8
from weft_tensor.dtypes import qint16 as qint16
from weft_tensor.dtypes import qint32 as qint32
from weft_tensor.dtypes import qint8 as qint8
from weft_tensor.dtypes import quint16 as quint16
from weft_tensor.dtypes import quint8 as quint8
from weft_tensor.dtypes import resource as resource
from weft_tensor.dtypes import string as string
from weft_tensor.dtypes import uint16 as uint16
from weft_tensor.dtypes import uint32 as uint32
from weft_tensor.dtypes import uint64 as uint64
from weft_tensor.dtypes import uint8 as uint8
from weft_tensor.dtypes import variant as variant
from weft_tensor.errors import OpError as OpError
from weft_tensor.shape import Dimension as Dimension
from weft_tensor.shape import TensorShape as TensorShape
from weft_tensor.shape import dimension_at_index as dimension_at_index
from weft_tensor.shape import dimension_value as dimension_value

if _TYPE_CHECKING:
    from weft import app as app
    from weft import bitwise as bitwise
    from weft import compat as compat
    from weft import debugging as debugging
    from weft import dtypes as dtypes
    from weft import errors as errors
    from weft import flags as flags
    from weft import graph_util as graph_util
    from weft import initializers as initializers
    from weft import layers as layers
    from weft import linalg as linalg
    from weft import logging as logging
    from weft import losses as losses
    from weft import manip as manip
    from weft import math as math
    from weft import metrics as metrics
    from weft import nn as nn
    from weft import random as random
    from weft import sets as sets
    from weft import sparse as sparse
    from weft import strings as strings
    from weft import test as test
    from weft import train as train
    from weft_graph.proto import ConfigProto as ConfigProto
    from weft_graph.proto import RunOptions as RunOptions
    from weft_graph.proto import RunMetadata as RunMetadata
    from weft_graph.proto import GraphDef as GraphDef
    from weft_graph.proto import NodeDef as NodeDef
    from weft_graph.proto import AttrValue as AttrValue
    from weft_graph.proto import GPUOptions as GPUOptions
    from weft_graph.proto import GraphOptions as GraphOptions
    from weft_graph.proto import OptimizerOptions as OptimizerOptions
    from weft_graph.proto import MetaGraphDef as MetaGraphDef
    from weft_graph.proto import Summary as Summary
    from weft_graph.proto import Event as Event
    from weft_graph.proto import HistogramProto as HistogramProto
    from weft_graph.proto import NameAttrList as NameAttrList
    from weft_graph.proto import SessionLog as SessionLog
    from weft_graph.proto import SummaryMetadata as SummaryMetadata
    from weft_graph.proto import TensorInfo as TensorInfo
    from weft_graph.proto import LogMessage as LogMessage

newaxis = None

_NAMESPACES = frozenset(
    {
        "app",
        "bitwise",
        "compat",
        "debugging",
        "dtypes",
        "errors",
        "flags",
        "graph_util",
        "initializers",
        "layers",
        "linalg",
        "logging",
        "losses",
        "manip",
        "math",
        "metrics",
        "nn",
        "random",
        "sets",
        "sparse",
        "strings",
        "test",
        "train",
    }
)
_MESSAGES = frozenset(
    {
        "ConfigProto",
        "RunOptions",
        "RunMetadata",
        "GraphDef",
        "NodeDef",
        "AttrValue",
        "GPUOptions",
        "GraphOptions",
        "OptimizerOptions",
        "MetaGraphDef",
        "Summary",
        "Event",
        "HistogramProto",
        "NameAttrList",
        "SessionLog",
        "SummaryMetadata",
        "TensorInfo",
        "LogMessage",
    }
)


def __getattr__(name: str) -> _Any:
    if name in _NAMESPACES:
        from importlib import import_module

        return import_module(f"weft.{name}")
    if name in _MESSAGES:
        from weft_graph import proto

        message = globals()[name] = getattr(proto, name)
        return message
    if name in ("__version__", "VERSION"):
        from importlib.metadata import version

        return version("weft")
    raise AttributeError(f"module 'weft' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_NAMESPACES, *_MESSAGES, "VERSION", "__version__"})
