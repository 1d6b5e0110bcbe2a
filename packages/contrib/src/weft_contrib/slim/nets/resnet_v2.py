"""Residual networks, version 2 (He et al. 2016)."""

from __future__ import annotations

__all__ = [
    "bottleneck",
    "resnet_arg_scope",
    "resnet_v2",
    "resnet_v2_50",
    "resnet_v2_101",
    "resnet_v2_152",
    "resnet_v2_200",
    "resnet_v2_block",
]

from collections.abc import Sequence
from typing import Any

from weft_contrib.arg_scope import add_arg_scope, arg_scope
from weft_contrib.layers.convolution import conv2d
from weft_contrib.layers.normalization import batch_norm
from weft_contrib.slim.nets.resnet_utils import (
    Block,
    block_of,
    conv2d_same,
    head,
    network_factory,
    network_scope,
    resnet_arg_scope as resnet_arg_scope,
    root,
    stack_blocks_dense,
    subsample,
)
from weft_contrib.utils import collect_named_outputs, last_dimension
from weft_graph.ops.nn import relu
from weft_graph.variables.scope import variable_scope


@add_arg_scope
def bottleneck(
    inputs: Any,
    depth: int,
    depth_bottleneck: int,
    stride: int,
    rate: int = 1,
    outputs_collections: Any = None,
    scope: Any = None,
) -> Any:
    """Build a unit: three convolutions after normalization, added to their input.

    Args:
      inputs: shape (B, H, W, C).
      depth: channels of the result.
      depth_bottleneck: channels of the first two convolutions.
      stride: stride of the unit.
      rate: dilation of the second convolution.
      outputs_collections: collections that the result is added to.
      scope: scope of the variables.
    Returns: shape (B, ceil(H / stride), ceil(W / stride), depth).

    Examples:
      >>> from weft_contrib.slim.nets import resnet_v2
      >>> resnet_v2.bottleneck(wf.zeros([1, 8, 8, 4]), 16, 4, stride=2).shape.as_list()
      [1, 4, 4, 16]
    """
    with variable_scope(scope, "bottleneck_v2", [inputs]) as var_scope:
        active = batch_norm(inputs, activation_fn=relu, scope="preact")
        plain = {"normalizer_fn": None, "activation_fn": None}
        if last_dimension(inputs.shape, min_rank=4) == depth:
            shortcut = subsample(inputs, stride, "shortcut")
        else:
            shortcut = conv2d(active, depth, [1, 1], stride, scope="shortcut", **plain)
        residual = conv2d(active, depth_bottleneck, [1, 1], 1, scope="conv1")
        residual = conv2d_same(residual, depth_bottleneck, 3, stride, rate, scope="conv2")
        output = shortcut + conv2d(residual, depth, [1, 1], 1, scope="conv3", **plain)
        return collect_named_outputs(outputs_collections, var_scope.name, output)


def resnet_v2(
    inputs: Any,
    blocks: Sequence[Block],
    num_classes: int | None = None,
    is_training: Any = True,
    global_pool: bool = True,
    output_stride: int | None = None,
    include_root_block: bool = True,
    reuse: Any = None,
    scope: Any = None,
) -> tuple[Any, dict[str, Any]]:
    """Build a residual network with these blocks.

    Args:
      inputs: floating, shape (B, H, W, 3).
      blocks: see `resnet_v2_block`.
      num_classes: number of logits; None for none.
      is_training: True to normalize by the batch.
      global_pool: True to average over the image.
      output_stride: maximum total stride up to the last block, a multiple of 4; later layers are
        dilated instead. None for no limit.
      include_root_block: True to start with a convolution and a pooling of stride 2.
      reuse: reuse mode of the variables.
      scope: scope of the variables.
    Returns: the last layer, shape (B, h, w, C), and all layers by name.
    Raises: InvalidArgumentError: `output_stride` is not possible.

    Examples:
      >>> from weft_contrib.slim.nets import resnet_v2
      >>> blocks = [resnet_v2.resnet_v2_block("block1", 4, num_units=2, stride=2)]
      >>> net, layers = resnet_v2.resnet_v2(wf.zeros([1, 32, 32, 3]), blocks, num_classes=10)
      >>> net.shape.as_list(), layers["resnet_v2/block1"].shape.as_list()
      ([1, 1, 1, 10], [1, 4, 4, 16])
    """
    with network_scope(scope, "resnet_v2", inputs, reuse, bottleneck, is_training) as collection:
        net = inputs
        if include_root_block:
            # what follows begins with a normalization
            with arg_scope([conv2d], activation_fn=None, normalizer_fn=None):
                net, output_stride = root(net, output_stride)
        net = stack_blocks_dense(net, blocks, output_stride)
        net = batch_norm(net, activation_fn=relu, scope="postnorm")
        return head(net, num_classes, global_pool, collection)


def resnet_v2_block(scope: str, base_depth: int, num_units: int, stride: int) -> Block:
    """Return a block whose last unit has a stride.

    Args:
      scope: its name.
      base_depth: channels of the bottlenecks; a quarter of the number of results.
      num_units: number of units.
      stride: stride of the last unit.

    Examples:
      >>> from weft_contrib.slim.nets import resnet_v2
      >>> resnet_v2.resnet_v2_block("block1", 64, 3, 2).args[-1]
      {'depth': 256, 'depth_bottleneck': 64, 'stride': 2}
    """
    return block_of(bottleneck, scope, base_depth, num_units, stride)


resnet_v2_50 = network_factory(resnet_v2, resnet_v2_block, 50, (3, 4, 6, 3))
resnet_v2_101 = network_factory(resnet_v2, resnet_v2_block, 101, (3, 4, 23, 3))
resnet_v2_152 = network_factory(resnet_v2, resnet_v2_block, 152, (3, 8, 36, 3))
resnet_v2_200 = network_factory(resnet_v2, resnet_v2_block, 200, (3, 24, 36, 3))
