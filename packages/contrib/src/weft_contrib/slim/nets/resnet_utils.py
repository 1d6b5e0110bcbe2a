"""Building blocks of residual networks."""

from __future__ import annotations

__all__ = ["Block", "conv2d_same", "resnet_arg_scope", "stack_blocks_dense", "subsample"]

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from weft_contrib.arg_scope import add_arg_scope, arg_scope
from weft_contrib.initializers import variance_scaling_initializer
from weft_contrib.layers.convolution import conv2d, max_pool2d
from weft_contrib.layers.dense import softmax
from weft_contrib.layers.normalization import batch_norm
from weft_contrib.utils import collect_named_outputs, convert_collection_to_dict
from weft_graph.ir.collections_keys import GraphKeys
from weft_graph.layers.regularizers import l2_regularizer
from weft_graph.ops import reduction
from weft_graph.ops.nn import relu
from weft_graph.ops.padding import pad
from weft_graph.variables.scope import variable_scope
from weft_tensor import errors


class Block(NamedTuple):
    """A sequence of units of the same width.

    Attributes:
      scope: its name.
      unit_fn: function that builds a unit from its input and its arguments.
      args: the arguments of each unit, by name: depth, depth_bottleneck and stride.

    Examples:
      >>> from weft_contrib.slim.nets import resnet_v1
      >>> block = resnet_v1.resnet_v1_block("block1", base_depth=64, num_units=3, stride=2)
      >>> [unit["stride"] for unit in block.args]
      [1, 1, 2]
    """

    scope: str
    unit_fn: Callable[..., Any]
    args: Sequence[dict[str, int]]


def subsample(inputs: Any, factor: int, scope: str | None = None) -> Any:
    """Return every `factor`-th position of an image.

    Args:
      inputs: shape (B, H, W, C).
      factor: 1 for all.
      scope: scope of the pooling.

    Examples:
      >>> from weft_contrib.slim.nets import resnet_utils
      >>> resnet_utils.subsample(wf.zeros([1, 5, 5, 2]), 2).shape.as_list()
      [1, 3, 3, 2]
    """
    return inputs if factor == 1 else max_pool2d(inputs, [1, 1], factor, scope=scope)


def conv2d_same(
    inputs: Any,
    num_outputs: int,
    kernel_size: int,
    stride: int,
    rate: int = 1,
    scope: str | None = None,
) -> Any:
    """Apply a convolution whose padding is independent of the size of the image.

    Args:
      inputs: shape (B, H, W, C).
      num_outputs, kernel_size, stride, rate, scope: as for `conv2d`.
    Returns: shape (B, ceil(H / stride), ceil(W / stride), num_outputs).

    Examples:
      >>> from weft_contrib.slim.nets import resnet_utils
      >>> resnet_utils.conv2d_same(wf.zeros([1, 8, 8, 2]), 4, 3, stride=2).shape.as_list()
      [1, 4, 4, 4]
    """
    if stride == 1:
        return conv2d(inputs, num_outputs, kernel_size, 1, "SAME", rate=rate, scope=scope)
    total = (kernel_size - 1) * rate
    margins = [total // 2, total - total // 2]
    padded = pad(inputs, [[0, 0], margins, margins, [0, 0]])
    return conv2d(padded, num_outputs, kernel_size, stride, "VALID", rate=rate, scope=scope)


@add_arg_scope
def stack_blocks_dense(
    net: Any,
    blocks: Sequence[Block],
    output_stride: int | None = None,
    outputs_collections: Any = None,
) -> Any:
    """Apply blocks in sequence, with dilation instead of strides beyond a total stride.

    Args:
      net: shape (B, H, W, C).
      blocks: the blocks of the network.
      output_stride: maximum ratio of the sizes of `net` and of the result; None for no limit.
      outputs_collections: collections that the results of units and blocks are added to.
    Raises: InvalidArgumentError: the strides of the blocks do not have `output_stride` as a partial
      product.

    Examples:
      >>> from weft_contrib.slim.nets import resnet_utils, resnet_v1
      >>> blocks = [resnet_v1.resnet_v1_block("block1", 2, 2, stride=2)]
      >>> resnet_utils.stack_blocks_dense(wf.zeros([1, 8, 8, 4]), blocks).shape.as_list()
      [1, 4, 4, 8]
    """
    stride, rate = 1, 1
    for block in blocks:
        with variable_scope(block.scope, "block", [net]) as var_scope:
            for i, unit in enumerate(block.args, 1):
                if output_stride is not None and stride > output_stride:
                    raise errors.InvalidArgumentError(
                        f"output_stride {output_stride} cannot be reached: a stride is {stride}"
                    )
                with variable_scope(f"unit_{i}", values=[net]):
                    if stride == output_stride:
                        net = block.unit_fn(net, rate=rate, **{**unit, "stride": 1})
                        rate *= unit["stride"]
                    else:
                        net = block.unit_fn(net, rate=1, **unit)
                        stride *= unit["stride"]
            net = collect_named_outputs(outputs_collections, var_scope.name, net)
    if output_stride is not None and stride != output_stride:
        raise errors.InvalidArgumentError(
            f"output_stride {output_stride} cannot be reached: the blocks have a stride of {stride}"
        )
    return net


def resnet_arg_scope(
    weight_decay: float = 0.0001,
    batch_norm_decay: float = 0.997,
    batch_norm_epsilon: float = 1e-5,
    batch_norm_scale: bool = True,
) -> Any:
    """Return the default layer arguments of a residual network.

    Args:
      weight_decay: weight decay of the weights of convolutions.
      batch_norm_decay, batch_norm_epsilon, batch_norm_scale: parameters of the normalizations.
    Returns: an argument for `arg_scope`.

    Examples:
      >>> from weft_contrib import slim
      >>> with slim.arg_scope(slim.nets.resnet_utils.resnet_arg_scope()):
      ...     net = slim.conv2d(wf.zeros([1, 8, 8, 3]), 4, [3, 3], scope="conv")
      >>> [v.op.name for v in wf.trainable_variables()]
      ['conv/weights', 'conv/BatchNorm/gamma', 'conv/BatchNorm/beta']
    """
    norm = {
        "decay": batch_norm_decay,
        "epsilon": batch_norm_epsilon,
        "scale": batch_norm_scale,
        "updates_collections": GraphKeys.UPDATE_OPS,
    }
    with (
        arg_scope(
            [conv2d],
            weights_regularizer=l2_regularizer(weight_decay),
            weights_initializer=variance_scaling_initializer(),
            activation_fn=relu,
            normalizer_fn=batch_norm,
            normalizer_params=norm,
        ),
        arg_scope([batch_norm], **norm),
        arg_scope([max_pool2d], padding="SAME") as scope,
    ):
        return scope


def block_of(
    unit_fn: Callable[..., Any], scope: str, base_depth: int, num_units: int, stride: int
) -> Block:
    """Return a block of bottlenecks; the last one has the stride."""
    unit = {"depth": base_depth * 4, "depth_bottleneck": base_depth, "stride": 1}
    return Block(scope, unit_fn, [*[unit] * (num_units - 1), unit | {"stride": stride}])


@contextmanager
def network_scope(
    scope: Any, default: str, inputs: Any, reuse: Any, unit_fn: Any, is_training: Any
) -> Iterator[str]:
    """Open the scope of a network's variables; yield the collection of its layers."""
    with variable_scope(scope, default, [inputs], reuse=reuse) as var_scope:
        collection = var_scope.original_name_scope + "_end_points"
        with (
            arg_scope([conv2d, unit_fn, stack_blocks_dense], outputs_collections=collection),
            arg_scope([batch_norm], is_training=is_training),
        ):
            yield collection


Network = Callable[..., tuple[Any, dict[str, Any]]]
"""A function that builds a network; it returns the last layer, and all layers by name."""

_DOC = """The network of {layers} layers.

    Args:
      inputs, num_classes, is_training, global_pool, output_stride, reuse, scope: as `{version}`.
    Returns: the last layer, shape (B, h, w, C), and all layers by name.

    Examples:
      >>> from weft_contrib import slim
      >>> images = wf.placeholder(wf.float32, [None, 64, 64, 3])
      >>> with slim.arg_scope(slim.nets.{version}.resnet_arg_scope()):
      ...     net, layers = slim.nets.{version}.{name}(images, 10, is_training=False)
      >>> net.shape.as_list()
      [None, 1, 1, 10]
    """


def network_factory(
    network: Network, block: Callable[..., Block], layers: int, units: Sequence[int]
) -> Network:
    """Return a function that builds a `network` with these numbers of `units` in its blocks."""
    version = network.__name__
    full_name = f"{version}_{layers}"

    def make(
        inputs: Any,
        num_classes: int | None = None,
        is_training: Any = True,
        global_pool: bool = True,
        output_stride: int | None = None,
        reuse: Any = None,
        scope: Any = full_name,
    ) -> tuple[Any, dict[str, Any]]:
        last = len(units)
        blocks = [
            block(f"block{i}", 32 * 2**i, count, 1 if i == last else 2)
            for i, count in enumerate(units, 1)
        ]
        return network(
            inputs,
            blocks,
            num_classes,
            is_training,
            global_pool,
            output_stride,
            reuse=reuse,
            scope=scope,
        )

    make.__name__ = make.__qualname__ = full_name
    make.__module__ = network.__module__
    make.__doc__ = _DOC.format(layers=layers, version=version, name=full_name)
    return make


def root(inputs: Any, output_stride: int | None) -> tuple[Any, int | None]:
    """Apply the first layers, which reduce images by 4; return the remaining total stride.

    Raises: InvalidArgumentError: the stride is not a multiple of 4.
    """
    if output_stride is not None:
        if output_stride % 4:
            raise errors.InvalidArgumentError(
                f"output_stride must be a multiple of 4, got {output_stride}"
            )
        output_stride //= 4
    net = conv2d_same(inputs, 64, 7, stride=2, scope="conv1")
    return max_pool2d(net, [3, 3], 2, scope="pool1"), output_stride


def head(
    net: Any, num_classes: int | None, global_pool: bool, collection: str
) -> tuple[Any, dict[str, Any]]:
    """Build the last layers; return the last one, and all layers by name."""
    if global_pool:
        net = reduction.reduce_mean(net, [1, 2], name="pool5", keepdims=True)
    if num_classes is not None:
        net = conv2d(
            net, num_classes, [1, 1], activation_fn=None, normalizer_fn=None, scope="logits"
        )
    end_points = convert_collection_to_dict(collection)
    if num_classes is not None:
        end_points["predictions"] = softmax(net, scope="predictions")
    return net, end_points
