"""VGG: stacks of 3x3 convolutions (Simonyan and Zisserman 2014)."""

from __future__ import annotations

__all__ = ["vgg_16", "vgg_19", "vgg_a", "vgg_arg_scope"]

from collections.abc import Callable, Sequence
from typing import Any

from weft_contrib.arg_scope import arg_scope
from weft_contrib.layers.convolution import conv2d, max_pool2d
from weft_contrib.layers.dense import dropout, fully_connected, repeat
from weft_contrib.utils import convert_collection_to_dict
from weft_graph.layers.regularizers import l2_regularizer
from weft_graph.ops.nn import relu
from weft_graph.ops.shapes import squeeze
from weft_graph.variables.initializers import Zeros
from weft_graph.variables.scope import variable_scope


def vgg_arg_scope(weight_decay: float = 0.0005) -> Any:
    """Return the default layer arguments of a VGG network.

    Args:
      weight_decay: weight decay of all layers.
    Returns: an argument for `arg_scope`.

    Examples:
      >>> from weft_contrib import slim
      >>> images = wf.placeholder(wf.float32, [None, 224, 224, 3])
      >>> with slim.arg_scope(slim.nets.vgg.vgg_arg_scope()):
      ...     logits, end_points = slim.nets.vgg.vgg_16(images, num_classes=10)
      >>> len(wf.losses.get_regularization_losses())
      16
    """
    with (
        arg_scope(
            [conv2d, fully_connected],
            activation_fn=relu,
            weights_regularizer=l2_regularizer(weight_decay),
            biases_initializer=Zeros(),
        ),
        arg_scope([conv2d], padding="SAME") as scope,
    ):
        return scope


_DOC = """VGG with {layers} layers of weights.

Args:
  inputs: floating, shape (B, H, W, 3), H and W of 224 at least; of 224 for `spatial_squeeze`.
  num_classes: how many logits.
  is_training: whether there is dropout.
  dropout_keep_prob: of the two wide layers.
  spatial_squeeze: whether the logits lose their axes of space.
  scope: of the variables.
Returns: the logits, shape (B, num_classes), and all layers by name.

Examples:
  >>> from weft_contrib.slim.nets import vgg
  >>> logits, layers = vgg.{name}(wf.placeholder(wf.float32, [None, 224, 224, 3]), 10)
  >>> logits.shape.as_list(), layers["{name}/pool5"].shape.as_list()
  ([None, 10], [None, 7, 7, 512])
"""


def _network_factory(name: str, counts: Sequence[int]) -> Callable[..., tuple[Any, dict[str, Any]]]:
    """Return a function that builds a network with these numbers of convolutions."""

    def make(
        inputs: Any,
        num_classes: int = 1000,
        is_training: Any = True,
        dropout_keep_prob: float = 0.5,
        spatial_squeeze: bool = True,
        scope: Any = name,
    ) -> tuple[Any, dict[str, Any]]:
        with variable_scope(scope, name, [inputs]) as var_scope:
            collection = var_scope.original_name_scope + "_end_points"
            with arg_scope([conv2d, fully_connected, max_pool2d], outputs_collections=collection):
                net = inputs
                widths = (64, 128, 256, 512, 512)
                for i, (count, width) in enumerate(zip(counts, widths, strict=True), 1):
                    net = repeat(net, count, conv2d, width, [3, 3], scope=f"conv{i}")
                    net = max_pool2d(net, [2, 2], scope=f"pool{i}")
                net = conv2d(net, 4096, [7, 7], padding="VALID", scope="fc6")
                net = dropout(net, dropout_keep_prob, is_training=is_training, scope="dropout6")
                net = conv2d(net, 4096, [1, 1], scope="fc7")
                net = dropout(net, dropout_keep_prob, is_training=is_training, scope="dropout7")
                net = conv2d(
                    net, num_classes, [1, 1], activation_fn=None, normalizer_fn=None, scope="fc8"
                )
                end_points = convert_collection_to_dict(collection)
                if spatial_squeeze:
                    net = squeeze(net, [1, 2], name="fc8/squeezed")
                    end_points[var_scope.name + "/fc8"] = net
                return net, end_points

    make.__name__ = make.__qualname__ = name
    make.__doc__ = _DOC.format(layers=sum(counts) + 3, name=name)
    return make


vgg_a = _network_factory("vgg_a", (1, 1, 2, 2, 2))
vgg_16 = _network_factory("vgg_16", (2, 2, 3, 3, 3))
vgg_19 = _network_factory("vgg_19", (2, 2, 4, 4, 4))
