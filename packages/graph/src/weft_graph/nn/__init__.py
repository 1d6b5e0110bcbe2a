"""The public `nn` namespace: single-node functions and the compositions of this package."""

from __future__ import annotations

from weft_graph.nn.activation import (
    crelu,
    dropout,
    relu_layer,
    swish,
    xw_plus_b,
    zero_fraction,
)
from weft_graph.nn.convolution import (
    atrous_conv2d,
    atrous_conv2d_transpose,
    avg_pool1d,
    avg_pool_v2,
    conv1d,
    conv1d_transpose,
    conv2d_transpose,
    convolution,
    depthwise_conv2d,
    max_pool1d,
    max_pool_v2,
    pool_nd,
    separable_conv2d,
)
from weft_graph.nn.cross_entropy import (
    log_poisson_loss,
    sigmoid_cross_entropy_with_logits,
    weighted_cross_entropy_with_logits,
)
from weft_graph.nn.embedding import (
    embedding_lookup,
    embedding_lookup_sparse,
)
from weft_graph.nn.sampling import (
    nce_loss,
    sampled_softmax_loss,
)
from weft_graph.nn.statistics import (
    batch_norm_with_global_normalization,
    batch_normalization,
    l2_normalize,
    moments,
    normalize_moments,
    sufficient_statistics,
    weighted_moments,
)
from weft_graph.ops.candidates import (
    all_candidate_sampler,
    compute_accidental_hits,
    fixed_unigram_candidate_sampler,
    learned_unigram_candidate_sampler,
    log_uniform_candidate_sampler,
    uniform_candidate_sampler,
)
from weft_graph.ops.conv import (
    conv2d,
    conv2d_backprop_filter,
    conv2d_backprop_input,
    conv3d,
    conv3d_backprop_filter_v2,
    conv3d_transpose,
    depthwise_conv2d_native,
    depthwise_conv2d_native_backprop_filter,
    depthwise_conv2d_native_backprop_input,
)
from weft_graph.ops.elementary import (
    log_sigmoid,
    sigmoid,
    tanh,
)
from weft_graph.ops.layout import (
    batch_to_space,
    depth_to_space,
    space_to_batch,
    space_to_depth,
)
from weft_graph.ops.nn import (
    bias_add,
    elu,
    l2_loss,
    leaky_relu,
    log_softmax,
    relu,
    relu6,
    selu,
    softmax,
    softmax_cross_entropy_with_logits,
    softmax_cross_entropy_with_logits_v2,
    softplus,
    softsign,
    sparse_softmax_cross_entropy_with_logits,
)
from weft_graph.ops.normalization import (
    fused_batch_norm,
    local_response_normalization,
)
from weft_graph.ops.pool import (
    avg_pool,
    avg_pool3d,
    max_pool,
    max_pool3d,
    max_pool_with_argmax,
)
from weft_graph.ops.search import (
    in_top_k,
    top_k,
)

conv3d_backprop_filter = conv3d_backprop_filter_v2
depthwise_conv2d_backprop_filter = depthwise_conv2d_native_backprop_filter
depthwise_conv2d_backprop_input = depthwise_conv2d_native_backprop_input
lrn = local_response_normalization
pool = pool_nd

__all__ = [
    "all_candidate_sampler",
    "atrous_conv2d",
    "atrous_conv2d_transpose",
    "avg_pool",
    "avg_pool1d",
    "avg_pool3d",
    "avg_pool_v2",
    "batch_norm_with_global_normalization",
    "batch_normalization",
    "batch_to_space",
    "bias_add",
    "compute_accidental_hits",
    "conv1d",
    "conv1d_transpose",
    "conv2d",
    "conv2d_backprop_filter",
    "conv2d_backprop_input",
    "conv2d_transpose",
    "conv3d",
    "conv3d_backprop_filter",
    "conv3d_backprop_filter_v2",
    "conv3d_transpose",
    "convolution",
    "crelu",
    "depth_to_space",
    "depthwise_conv2d",
    "depthwise_conv2d_backprop_filter",
    "depthwise_conv2d_backprop_input",
    "depthwise_conv2d_native",
    "depthwise_conv2d_native_backprop_filter",
    "depthwise_conv2d_native_backprop_input",
    "dropout",
    "elu",
    "embedding_lookup",
    "embedding_lookup_sparse",
    "fixed_unigram_candidate_sampler",
    "fused_batch_norm",
    "in_top_k",
    "l2_loss",
    "l2_normalize",
    "leaky_relu",
    "learned_unigram_candidate_sampler",
    "local_response_normalization",
    "log_poisson_loss",
    "log_sigmoid",
    "log_softmax",
    "log_uniform_candidate_sampler",
    "lrn",
    "max_pool",
    "max_pool1d",
    "max_pool3d",
    "max_pool_v2",
    "max_pool_with_argmax",
    "moments",
    "nce_loss",
    "normalize_moments",
    "pool",
    "relu",
    "relu6",
    "relu_layer",
    "sampled_softmax_loss",
    "selu",
    "separable_conv2d",
    "sigmoid",
    "sigmoid_cross_entropy_with_logits",
    "softmax",
    "softmax_cross_entropy_with_logits",
    "softmax_cross_entropy_with_logits_v2",
    "softplus",
    "softsign",
    "space_to_batch",
    "space_to_depth",
    "sparse_softmax_cross_entropy_with_logits",
    "sufficient_statistics",
    "swish",
    "tanh",
    "top_k",
    "uniform_candidate_sampler",
    "weighted_cross_entropy_with_logits",
    "weighted_moments",
    "xw_plus_b",
    "zero_fraction",
]
