"""weft: dataflow graphs in the style of the TensorFlow white paper.

`import weft as wf`.  The names are the paper's, and TensorFlow 1.15's where the paper is silent.
Core names are imported eagerly; namespaces (`wf.train`, `wf.layers`, ...), protocol messages
(`wf.ConfigProto`, ...) and the version load when first used.
"""

import typing as _typing

from weft.logging import get_logger as get_logger
from weft_autodiff import registry as _registry
from weft_autodiff.clipping import *
from weft_autodiff.custom_gradient import *
from weft_autodiff.gradients.backprop import *
from weft_autodiff.recompute_grad import *
from weft_autodiff.registry import *
from weft_exec.session.session import *
from weft_exec.tracing import api as _tracing
from weft_graph.control_flow.conditional import *
from weft_graph.control_flow.functional import *
from weft_graph.control_flow.loop import *
from weft_graph.control_flow.tensor_array import *
from weft_graph.functions.decorator import *
from weft_graph.functions.defun import *
from weft_graph.functions.function import *
from weft_graph.functions.type_spec import *
from weft_graph.functions.vectorized import *
from weft_graph.ir import constant_value as _constant_value, node as _node
from weft_graph.ir.builder import *
from weft_graph.ir.collections_keys import *
from weft_graph.ir.default_graph import *
from weft_graph.ir.device_spec import *
from weft_graph.ir.graph import *
from weft_graph.ir.indexed_slices import *
from weft_graph.ir.random_seed import *
from weft_graph.ir.tf2_switches import *
from weft_graph.ir.thread_stacks import *
from weft_graph.ir.transfers import *
from weft_graph.messages.allowed_ops import *
from weft_graph.messages.graph_def import *
from weft_graph.messages.import_graph_def import *
from weft_graph.messages.tensor_proto import *
from weft_graph.metrics.classes import confusion_matrix as confusion_matrix
from weft_graph.ops import gather as _gather, permutation as _permutation
from weft_graph.ops.arithmetic import *
from weft_graph.ops.arithmetic import clip_by_value as clip_by_value
from weft_graph.ops.array import *
from weft_graph.ops.batch_scatter import *
from weft_graph.ops.broadcasting import *
from weft_graph.ops.casting import *
from weft_graph.ops.checks import *
from weft_graph.ops.comparison import *
from weft_graph.ops.contraction import *
from weft_graph.ops.control import *
from weft_graph.ops.conv import (
    conv2d_backprop_filter_v2 as conv2d_backprop_filter_v2,
    conv2d_backprop_input_v2 as conv2d_backprop_input_v2,
)
from weft_graph.ops.conversion import *
from weft_graph.ops.diagonals import *
from weft_graph.ops.division import *
from weft_graph.ops.division import (
    div as div,
    div_no_nan as div_no_nan,
    floor_div as floor_div,
    realdiv as realdiv,
    truncatediv as truncatediv,
    truncatemod as truncatemod,
)
from weft_graph.ops.elementary import *
from weft_graph.ops.gather import *
from weft_graph.ops.identity import *
from weft_graph.ops.join import *
from weft_graph.ops.linalg import (
    cholesky as cholesky,
    cholesky_solve as cholesky_solve,
    matrix_determinant as matrix_determinant,
    matrix_inverse as matrix_inverse,
    matrix_solve as matrix_solve,
    matrix_solve_ls as matrix_solve_ls,
    matrix_triangular_solve as matrix_triangular_solve,
    qr as qr,
    self_adjoint_eig as self_adjoint_eig,
    self_adjoint_eigvals as self_adjoint_eigvals,
    svd as svd,
)
from weft_graph.ops.masks import *
from weft_graph.ops.matmul import *
from weft_graph.ops.matmul import sparse_matmul as sparse_matmul
from weft_graph.ops.norms import norm as norm
from weft_graph.ops.padding import *
from weft_graph.ops.permutation import *
from weft_graph.ops.powers import *
from weft_graph.ops.random import *
from weft_graph.ops.reduction import *
from weft_graph.ops.reduction import arg_max as arg_max, arg_min as arg_min
from weft_graph.ops.rounding import *
from weft_graph.ops.search import *
from weft_graph.ops.segments import *
from weft_graph.ops.segments import (
    sparse_segment_mean as sparse_segment_mean,
    sparse_segment_sqrt_n as sparse_segment_sqrt_n,
    sparse_segment_sum as sparse_segment_sum,
)
from weft_graph.ops.sequence import *
from weft_graph.ops.session_handles import *
from weft_graph.ops.shapes import *
from weft_graph.ops.slicing import *
from weft_graph.ops.space_to_batch import *
from weft_graph.ops.sparse import *
from weft_graph.ops.special import *
from weft_graph.ops.state import *
from weft_graph.ops.string_conversion import (
    as_string as as_string,
    decode_base64 as decode_base64,
    decode_raw as decode_raw,
    encode_base64 as encode_base64,
    fingerprint as fingerprint,
    string_to_hash_bucket as string_to_hash_bucket,
    string_to_hash_bucket_fast as string_to_hash_bucket_fast,
    string_to_hash_bucket_strong as string_to_hash_bucket_strong,
    string_to_number as string_to_number,
)
from weft_graph.ops.strings import (
    reduce_join as reduce_join,
    regex_replace as regex_replace,
    string_join as string_join,
    string_split as string_split,
    string_strip as string_strip,
    substr as substr,
)
from weft_graph.ops.trigonometry import *
from weft_graph.variables.base import *
from weft_graph.variables.creators import *
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
from weft_graph.variables.module import *
from weft_graph.variables.partitioning import *
from weft_graph.variables.reference import *
from weft_graph.variables.scope import *
from weft_graph.variables.template import *
from weft_tensor import dtypes as _dtypes
from weft_tensor.dtypes import *
from weft_tensor.errors import OpError as OpError
from weft_tensor.shape import *

# Names that differ in TensorFlow 1.15
no_gradient = _registry.NotDifferentiable
NoGradient = _registry.NotDifferentiable
get_static_value = _constant_value.get_static_value
Operation = _node.Node
Tensor = _node.Output
tensor_scatter_add = _gather.tensor_scatter_nd_add
tensor_scatter_sub = _gather.tensor_scatter_nd_sub
tensor_scatter_update = _gather.tensor_scatter_nd_update
reverse_v2 = _permutation.reverse
trace = _tracing.trace
bool = _dtypes.bool_

newaxis = None
"""Index element that inserts a new axis of size 1."""

if _typing.TYPE_CHECKING:
    from weft import (
        app as app,
        audio as audio,
        bitwise as bitwise,
        compat as compat,
        config as config,
        contrib as contrib,
        data as data,
        debugging as debugging,
        distributions as distributions,
        dtypes as dtypes,
        errors as errors,
        feature_column as feature_column,
        flags as flags,
        gfile as gfile,
        graph_util as graph_util,
        image as image,
        initializers as initializers,
        io as io,
        layers as layers,
        linalg as linalg,
        lite as lite,
        logging as logging,
        lookup as lookup,
        losses as losses,
        manip as manip,
        math as math,
        metrics as metrics,
        nest as nest,
        nn as nn,
        onnx as onnx,
        porting as porting,
        profiler as profiler,
        python_io as python_io,
        quantization as quantization,
        queue as queue,
        ragged as ragged,
        random as random,
        raw_ops as raw_ops,
        resource_loader as resource_loader,
        saved_model as saved_model,
        sets as sets,
        signal as signal,
        sparse as sparse,
        spectral as spectral,
        strings as strings,
        summary as summary,
        sysconfig as sysconfig,
        test as test,
        timeline as timeline,
        train as train,
        version as version,
        xla as xla,
    )
    from weft._input import *
    from weft._maths import *
    from weft._messages import *
    from weft._quantization import *
    from weft._queues import *
    from weft._ragged import *
    from weft._sparse import *
    from weft.version import VERSION as VERSION, __version__ as __version__
else:
    from weft import _lazy

    __getattr__, __dir__ = _lazy.attach(
        __name__,
        "weft._messages",
        "weft._queues",
        "weft._input",
        "weft._quantization",
        "weft._maths",
        "weft._sparse",
        "weft._ragged",
        "weft.version",
    )
