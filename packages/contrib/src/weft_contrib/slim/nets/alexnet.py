"""AlexNet, in its 2014 version without groups (Krizhevsky 2014)."""

from __future__ import annotations

__all__ = ["alexnet_v2", "alexnet_v2_arg_scope"]

from typing import Any

from weft_contrib.arg_scope import arg_scope
from weft_contrib.layers.convolution import conv2d, max_pool2d
from weft_contrib.layers.dense import dropout, fully_connected
from weft_contrib.utils import convert_collection_to_dict
from weft_graph.layers.regularizers import l2_regularizer
from weft_graph.ops.nn import relu
from weft_graph.ops.shapes import squeeze
from weft_graph.variables.initializers import Constant, TruncatedNormal, Zeros
from weft_graph.variables.scope import variable_scope


def alexnet_v2_arg_scope(weight_decay: float = 0.0005) -> Any:
    """Return the default layer arguments of `alexnet_v2`.

    Args:
      weight_decay: weight decay of the weights of all layers.
    Returns: an argument for `arg_scope`.

    Examples:
      >>> from weft_contrib import slim
      >>> with slim.arg_scope(slim.nets.alexnet.alexnet_v2_arg_scope()):
      ...     net = slim.conv2d(wf.zeros([1, 8, 8, 3]), 4, [3, 3])
      >>> net.op.type
      'Relu'
    """
    with (
        arg_scope(
            [conv2d, fully_connected],
            activation_fn=relu,
            biases_initializer=Constant(0.1),
            weights_regularizer=l2_regularizer(weight_decay),
        ),
        arg_scope([conv2d], padding="SAME"),
        arg_scope([max_pool2d], padding="VALID") as scope,
    ):
        return scope


def alexnet_v2(
    inputs: Any,
    num_classes: int = 1000,
    is_training: Any = True,
    dropout_keep_prob: float = 0.5,
    spatial_squeeze: bool = True,
    scope: Any = "alexnet_v2",
) -> tuple[Any, dict[str, Any]]:
    """Build AlexNet.

    Args:
      inputs: floating, shape (B, H, W, 3); H and W of 224 for `spatial_squeeze`.
      num_classes: number of logits.
      is_training: True to apply dropout.
      dropout_keep_prob: keep probability of the two wide layers.
      spatial_squeeze: True to remove the spatial axes of the logits.
      scope: scope of the variables.
    Returns: the logits, shape (B, num_classes), and all layers by name.

    Examples:
      >>> from weft_contrib.slim.nets import alexnet
      >>> logits, layers = alexnet.alexnet_v2(wf.placeholder(wf.float32, [None, 224, 224, 3]), 10)
      >>> logits.shape.as_list(), layers["alexnet_v2/conv5"].shape.as_list()
      ([None, 10], [None, 12, 12, 256])
    """
    with variable_scope(scope, "alexnet_v2", [inputs]) as var_scope:
        collection = var_scope.original_name_scope + "_end_points"
        with arg_scope([conv2d, fully_connected, max_pool2d], outputs_collections=[collection]):
            net = conv2d(inputs, 64, [11, 11], 4, padding="VALID", scope="conv1")
            net = max_pool2d(net, [3, 3], 2, scope="pool1")
            net = conv2d(net, 192, [5, 5], scope="conv2")
            net = max_pool2d(net, [3, 3], 2, scope="pool2")
            for i, width in enumerate((384, 384, 256), 3):
                net = conv2d(net, width, [3, 3], scope=f"conv{i}")
            net = max_pool2d(net, [3, 3], 2, scope="pool5")
            wide = TruncatedNormal(stddev=0.005)
            with arg_scope([conv2d], weights_initializer=wide, biases_initializer=Constant(0.1)):
                net = conv2d(net, 4096, [5, 5], padding="VALID", scope="fc6")
                net = dropout(net, dropout_keep_prob, is_training=is_training, scope="dropout6")
                net = conv2d(net, 4096, [1, 1], scope="fc7")
                net = dropout(net, dropout_keep_prob, is_training=is_training, scope="dropout7")
                net = conv2d(
                    net,
                    num_classes,
                    [1, 1],
                    activation_fn=None,
                    normalizer_fn=None,
                    biases_initializer=Zeros(),
                    scope="fc8",
                )
            end_points = convert_collection_to_dict(collection)
            if spatial_squeeze:
                net = squeeze(net, [1, 2], name="fc8/squeezed")
                end_points[var_scope.name + "/fc8"] = net
            return net, end_points
