"""Inception, versions 1 and 3 (Szegedy et al. 2014 and 2015)."""

from __future__ import annotations

__all__ = [
    "inception_v1",
    "inception_v1_arg_scope",
    "inception_v1_base",
    "inception_v3",
    "inception_v3_arg_scope",
    "inception_v3_base",
]

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from weft_contrib.arg_scope import arg_scope
from weft_contrib.initializers import variance_scaling_initializer
from weft_contrib.layers.convolution import avg_pool2d, conv2d, max_pool2d
from weft_contrib.layers.dense import dropout, fully_connected, softmax
from weft_contrib.layers.normalization import batch_norm
from weft_graph.ir.collections_keys import GraphKeys
from weft_graph.layers.regularizers import l2_regularizer
from weft_graph.ops.join import concat
from weft_graph.ops.nn import relu
from weft_graph.ops.shapes import squeeze
from weft_graph.variables.initializers import TruncatedNormal
from weft_graph.variables.scope import variable_scope
from weft_tensor import errors

Points = dict[str, Any]
Branch = Sequence[Any]
"""Layers in sequence: (channels, kernel, end of the name), optionally with a stride of 2.

"max" or "avg" instead of channels is a pooling; a list of layers is applied in parallel.
"""


def inception_arg_scope(
    weight_decay: float = 0.00004,
    use_batch_norm: bool = True,
    batch_norm_var_collection: str = "moving_vars",
) -> Any:
    """Return the default layer arguments of Inception networks.

    Args:
      weight_decay: weight decay of all weights.
      use_batch_norm: True to use batch normalization.
      batch_norm_var_collection: collection of the moving means and variances.
    Returns: an argument for `arg_scope`.

    Examples:
      >>> from weft_contrib import slim
      >>> with slim.arg_scope(slim.nets.inception.inception_v3_arg_scope()):
      ...     net = slim.conv2d(wf.zeros([1, 8, 8, 3]), 4, [3, 3], scope="conv")
      >>> [v.op.name for v in wf.trainable_variables()]
      ['conv/weights', 'conv/BatchNorm/beta']
    """
    norm = {
        "decay": 0.9997,
        "epsilon": 0.001,
        "updates_collections": GraphKeys.UPDATE_OPS,
        "variables_collections": {
            "beta": None,
            "gamma": None,
            "moving_mean": [batch_norm_var_collection],
            "moving_variance": [batch_norm_var_collection],
        },
    }
    weights = l2_regularizer(weight_decay)
    with (
        arg_scope([conv2d, fully_connected], weights_regularizer=weights),
        arg_scope(
            [conv2d],
            weights_initializer=variance_scaling_initializer(),
            activation_fn=relu,
            normalizer_fn=batch_norm if use_batch_norm else None,
            normalizer_params=norm if use_batch_norm else {},
        ) as scope,
    ):
        return scope


inception_v1_arg_scope = inception_v3_arg_scope = inception_arg_scope


class _Net:
    """A network that is built layer by layer.

    Args:
      net: the images.
      last: name of the last layer.
      width: function from the published number of channels to this network's number.
    """

    def __init__(self, net: Any, last: str, width: Callable[[int], int] = int) -> None:
        self.net, self.points, self._last, self._width = net, Points(), last, width

    @property
    def ended(self) -> bool:
        return self._last in self.points

    def layer(self, name: str, channels: Any, kernel: Any, stride: int = 1, **kwargs: Any) -> None:
        """Add a convolution or pooling to the trunk."""
        if not self.ended:
            self.net = self.points[name] = self._add_layer(
                self.net, channels, kernel, name, stride, **kwargs
            )

    def _add_layer(
        self, net: Any, channels: Any, kernel: Any, name: str, stride: int, **kw: Any
    ) -> Any:
        if isinstance(channels, int):
            return conv2d(net, self._width(channels), kernel, stride, scope=name, **kw)
        pool = max_pool2d if channels == "max" else avg_pool2d
        return pool(net, kernel, stride, scope=name, **kw)

    def mixed(self, name: str, *branches: Branch) -> None:
        """Add parallel branches, concatenated along their channels."""
        if self.ended:
            return
        ends = []
        with variable_scope(name):
            for i, branch in enumerate(branches):
                with variable_scope(f"Branch_{i}"):
                    net: Any = self.net
                    for layer in branch:
                        net = self._step(net, layer)
                    ends.append(net)
            self.net = self.points[name] = concat(ends, 3)

    def _step(self, net: Any, layer: Any) -> Any:
        if isinstance(layer, list):
            return concat([self._step(net, branch) for branch in layer], 3)
        channels, kernel, name, *strided = layer
        prefix = {"max": "MaxPool_", "avg": "AvgPool_"}.get(channels, "Conv2d_")
        full = name if name.startswith("Conv") else prefix + name
        if strided:
            return self._add_layer(net, channels, kernel, full, 2, padding="VALID")
        return self._add_layer(net, channels, kernel, full, 1)

    def done(self) -> tuple[Any, Points]:
        """Raise InvalidArgumentError, because no layer has the name of the requested last one."""
        if not self.ended:
            raise errors.InvalidArgumentError(
                f"final_endpoint must be one of {list(self.points)}, got {self._last!r}"
            )
        return self.net, self.points


# --------------------------------------------------------------------------- version 1


_V1 = (
    ("3b", 64, 96, 128, 16, 32, 32),
    ("3c", 128, 128, 192, 32, 96, 64),
    ("4a", 3),
    ("4b", 192, 96, 208, 16, 48, 64),
    ("4c", 160, 112, 224, 24, 64, 64),
    ("4d", 128, 128, 256, 24, 64, 64),
    ("4e", 112, 144, 288, 32, 64, 64),
    ("4f", 256, 160, 320, 32, 128, 128),
    ("5a", 2),
    ("5b", 256, 160, 320, 32, 128, 128),
    ("5c", 384, 192, 384, 48, 128, 128),
)
"""Channels of the branches of each block, or the window of a pooling."""


def inception_v1_base(
    inputs: Any, final_endpoint: str = "Mixed_5c", scope: Any = "InceptionV1"
) -> tuple[Any, Points]:
    """Build Inception 1 up to one of its layers.

    Args:
      inputs: floating, shape (B, H, W, 3).
      final_endpoint: the last layer.
      scope: scope of the variables.
    Returns: the last layer, and all layers by name.
    Raises: InvalidArgumentError: `final_endpoint` is not a layer.

    Examples:
      >>> from weft_contrib.slim.nets import inception
      >>> net, layers = inception.inception_v1_base(wf.zeros([1, 224, 224, 3]), "Mixed_3c")
      >>> net.shape.as_list()
      [1, 28, 28, 480]
    """
    narrow = TruncatedNormal(stddev=0.01)
    with (
        variable_scope(scope, "InceptionV1", [inputs]),
        arg_scope([conv2d, fully_connected], weights_initializer=narrow),
        arg_scope([conv2d, max_pool2d], stride=1, padding="SAME"),
    ):
        net = _Net(inputs, final_endpoint)
        net.layer("Conv2d_1a_7x7", 64, [7, 7], 2)
        net.layer("MaxPool_2a_3x3", "max", [3, 3], 2)
        net.layer("Conv2d_2b_1x1", 64, [1, 1])
        net.layer("Conv2d_2c_3x3", 192, [3, 3])
        net.layer("MaxPool_3a_3x3", "max", [3, 3], 2)
        for name, *widths in _V1:
            if len(widths) == 1:
                size = widths[0]
                net.layer(f"MaxPool_{name}_{size}x{size}", "max", [size, size], 2)
                continue
            width1, reduce3, width3, reduce5, width5, pooled = widths
            last = "0a_3x3" if name == "5b" else "0b_3x3"  # so in the published checkpoint
            net.mixed(
                f"Mixed_{name}",
                [(width1, [1, 1], "0a_1x1")],
                [(reduce3, [1, 1], "0a_1x1"), (width3, [3, 3], "0b_3x3")],
                [(reduce5, [1, 1], "0a_1x1"), (width5, [3, 3], last)],
                [("max", [3, 3], "0a_3x3"), (pooled, [1, 1], "0b_1x1")],
            )
        return net.done()


def inception_v1(
    inputs: Any,
    num_classes: int = 1000,
    is_training: Any = True,
    dropout_keep_prob: float = 0.8,
    prediction_fn: Any = softmax,
    spatial_squeeze: bool = True,
    reuse: Any = None,
    scope: Any = "InceptionV1",
) -> tuple[Any, Points]:
    """Build Inception 1 (GoogLeNet).

    Args:
      inputs: floating, shape (B, 224, 224, 3).
      num_classes: number of logits.
      is_training: True to apply dropout, and to normalize by the batch.
      dropout_keep_prob: keep probability before the last layer.
      prediction_fn: function from logits to predictions.
      spatial_squeeze: True to remove the spatial axes of the logits.
      reuse: reuse mode of the variables.
      scope: scope of the variables.
    Returns: the logits, shape (B, num_classes), and all layers by name.

    Examples:
      >>> from weft_contrib import slim
      >>> images = wf.placeholder(wf.float32, [None, 224, 224, 3])
      >>> with slim.arg_scope(slim.nets.inception.inception_v1_arg_scope()):
      ...     logits, layers = slim.nets.inception.inception_v1(images, 10, is_training=False)
      >>> logits.shape.as_list()
      [None, 10]
    """
    with _training(inputs, is_training, reuse, scope, "InceptionV1") as training:
        net, points = inception_v1_base(inputs, scope=training)
        with variable_scope("Logits"):
            net = avg_pool2d(net, [7, 7], 1, scope="MaxPool_0a_7x7")
            net = dropout(net, dropout_keep_prob, scope="Dropout_0b")
            logits = _logits(net, num_classes, "Conv2d_0c_1x1", spatial_squeeze)
        points["Logits"] = logits
        points["Predictions"] = prediction_fn(logits, scope="Predictions")
        return logits, points


@contextmanager
def _training(inputs: Any, is_training: Any, reuse: Any, scope: Any, name: str) -> Iterator[Any]:
    with (
        variable_scope(scope, name, [inputs], reuse=reuse) as var_scope,
        arg_scope([batch_norm, dropout], is_training=is_training),
    ):
        yield var_scope


def _logits(net: Any, num_classes: int, name: str, flat: bool, **kwargs: Any) -> Any:
    logits = conv2d(
        net, num_classes, [1, 1], activation_fn=None, normalizer_fn=None, scope=name, **kwargs
    )
    return squeeze(logits, [1, 2], name="SpatialSqueeze") if flat else logits


# --------------------------------------------------------------------------- version 3


def _with_5x5(net: _Net, name: str, pooled: int) -> None:
    names = ("0b_1x1", "Conv_1_0c_5x5") if name == "Mixed_5c" else ("0a_1x1", "0b_5x5")
    net.mixed(
        name,
        [(64, [1, 1], "0a_1x1")],
        [(48, [1, 1], names[0]), (64, [5, 5], names[1])],
        [(64, [1, 1], "0a_1x1"), (96, [3, 3], "0b_3x3"), (96, [3, 3], "0c_3x3")],
        [("avg", [3, 3], "0a_3x3"), (pooled, [1, 1], "0b_1x1")],
    )


def _with_7x7(net: _Net, name: str, n: int) -> None:
    flat, tall = [1, 7], [7, 1]
    net.mixed(
        name,
        [(192, [1, 1], "0a_1x1")],
        [(n, [1, 1], "0a_1x1"), (n, flat, "0b_1x7"), (192, tall, "0c_7x1")],
        [
            (n, [1, 1], "0a_1x1"),
            (n, tall, "0b_7x1"),
            (n, flat, "0c_1x7"),
            (n, tall, "0d_7x1"),
            (192, flat, "0e_1x7"),
        ],
        [("avg", [3, 3], "0a_3x3"), (192, [1, 1], "0b_1x1")],
    )


def _with_corners(net: _Net, name: str, second: str) -> None:
    net.mixed(
        name,
        [(320, [1, 1], "0a_1x1")],
        [(384, [1, 1], "0a_1x1"), [(384, [1, 3], "0b_1x3"), (384, [3, 1], second)]],
        [
            (448, [1, 1], "0a_1x1"),
            (384, [3, 3], "0b_3x3"),
            [(384, [1, 3], "0c_1x3"), (384, [3, 1], "0d_3x1")],
        ],
        [("avg", [3, 3], "0a_3x3"), (192, [1, 1], "0b_1x1")],
    )


def inception_v3_base(
    inputs: Any,
    final_endpoint: str = "Mixed_7c",
    min_depth: int = 16,
    depth_multiplier: float = 1.0,
    scope: Any = None,
) -> tuple[Any, Points]:
    """Build Inception 3 up to one of its layers.

    Args:
      inputs: floating, shape (B, H, W, 3).
      final_endpoint: the last layer.
      min_depth: minimum number of channels of a layer.
      depth_multiplier: factor of the number of channels of each layer.
      scope: scope of the variables.
    Returns: the last layer, and all layers by name.
    Raises: InvalidArgumentError: `final_endpoint` is not a layer, or the multiplier is not
      positive.

    Examples:
      >>> from weft_contrib.slim.nets import inception
      >>> net, layers = inception.inception_v3_base(wf.zeros([1, 299, 299, 3]), "Mixed_5d")
      >>> net.shape.as_list()
      [1, 35, 35, 288]
    """
    if depth_multiplier <= 0:
        raise errors.InvalidArgumentError(
            f"depth_multiplier must be greater than 0, got {depth_multiplier}"
        )
    layers = [conv2d, max_pool2d, avg_pool2d]
    with variable_scope(scope, "InceptionV3", [inputs]):
        net = _Net(inputs, final_endpoint, lambda n: max(int(n * depth_multiplier), min_depth))
        with arg_scope(layers, stride=1, padding="VALID"):
            net.layer("Conv2d_1a_3x3", 32, [3, 3], 2)
            net.layer("Conv2d_2a_3x3", 32, [3, 3])
            net.layer("Conv2d_2b_3x3", 64, [3, 3], padding="SAME")
            net.layer("MaxPool_3a_3x3", "max", [3, 3], 2)
            net.layer("Conv2d_3b_1x1", 80, [1, 1])
            net.layer("Conv2d_4a_3x3", 192, [3, 3])
            net.layer("MaxPool_5a_3x3", "max", [3, 3], 2)
        with arg_scope(layers, stride=1, padding="SAME"):
            for name, pooled in (("Mixed_5b", 32), ("Mixed_5c", 64), ("Mixed_5d", 64)):
                _with_5x5(net, name, pooled)
            net.mixed(
                "Mixed_6a",
                [(384, [3, 3], "1a_1x1", 2)],
                [(64, [1, 1], "0a_1x1"), (96, [3, 3], "0b_3x3"), (96, [3, 3], "1a_1x1", 2)],
                [("max", [3, 3], "1a_3x3", 2)],
            )
            for name, width in zip("bcde", (128, 160, 160, 192), strict=True):
                _with_7x7(net, f"Mixed_6{name}", width)
            net.mixed(
                "Mixed_7a",
                [(192, [1, 1], "0a_1x1"), (320, [3, 3], "1a_3x3", 2)],
                [
                    (192, [1, 1], "0a_1x1"),
                    (192, [1, 7], "0b_1x7"),
                    (192, [7, 1], "0c_7x1"),
                    (192, [3, 3], "1a_3x3", 2),
                ],
                [("max", [3, 3], "1a_3x3", 2)],
            )
            _with_corners(net, "Mixed_7b", "0b_3x1")
            _with_corners(net, "Mixed_7c", "0c_3x1")
        return net.done()


def inception_v3(
    inputs: Any,
    num_classes: int = 1000,
    is_training: Any = True,
    dropout_keep_prob: float = 0.8,
    min_depth: int = 16,
    depth_multiplier: float = 1.0,
    prediction_fn: Any = softmax,
    spatial_squeeze: bool = True,
    reuse: Any = None,
    scope: Any = "InceptionV3",
) -> tuple[Any, Points]:
    """Build Inception 3, with auxiliary logits from its middle ("AuxLogits").

    Args:
      inputs: floating, shape (B, 299, 299, 3); for smaller images, the last pooling window is
        smaller.
      num_classes: number of logits.
      is_training: True to apply dropout, and to normalize by the batch.
      dropout_keep_prob: keep probability before the last layer.
      min_depth, depth_multiplier: as for `inception_v3_base`.
      prediction_fn: function from logits to predictions.
      spatial_squeeze: True to remove the spatial axes of the logits.
      reuse: reuse mode of the variables.
      scope: scope of the variables.
    Returns: the logits, shape (B, num_classes), and all layers by name.

    Examples:
      >>> from weft_contrib import slim
      >>> images = wf.placeholder(wf.float32, [None, 299, 299, 3])
      >>> with slim.arg_scope(slim.nets.inception.inception_v3_arg_scope()):
      ...     logits, layers = slim.nets.inception.inception_v3(images, 10, is_training=False)
      >>> logits.shape.as_list(), layers["AuxLogits"].shape.as_list()
      ([None, 10], [None, 10])
    """
    with _training(inputs, is_training, reuse, scope, "InceptionV3") as training:
        net, points = inception_v3_base(
            inputs, min_depth=min_depth, depth_multiplier=depth_multiplier, scope=training
        )
        with (
            arg_scope([conv2d, max_pool2d, avg_pool2d], stride=1, padding="SAME"),
            variable_scope("AuxLogits"),
        ):
            points["AuxLogits"] = _auxiliary(
                points["Mixed_6e"],
                num_classes,
                lambda n: max(int(n * depth_multiplier), min_depth),
                spatial_squeeze,
            )
        with variable_scope("Logits"):
            window = _window(net, 8)
            name = "AvgPool_1a_{}x{}".format(*window)
            net = avg_pool2d(net, window, padding="VALID", scope=name)
            net = points["PreLogits"] = dropout(net, dropout_keep_prob, scope="Dropout_1b")
            logits = _logits(net, num_classes, "Conv2d_1c_1x1", spatial_squeeze)
        points["Logits"] = logits
        points["Predictions"] = prediction_fn(logits, scope="Predictions")
        return logits, points


def _auxiliary(net: Any, num_classes: int, width: Callable[[int], int], flat: bool) -> Any:
    net = avg_pool2d(net, [5, 5], 3, padding="VALID", scope="AvgPool_1a_5x5")
    net = conv2d(net, width(128), [1, 1], scope="Conv2d_1b_1x1")
    window = _window(net, 5)
    net = conv2d(
        net,
        width(768),
        window,
        weights_initializer=TruncatedNormal(stddev=0.01),
        padding="VALID",
        scope="Conv2d_2a_{}x{}".format(*window),
    )
    narrow = TruncatedNormal(stddev=0.001)
    return _logits(net, num_classes, "Conv2d_2b_1x1", flat, weights_initializer=narrow)


def _window(net: Any, size: int) -> list[int]:
    """Return the size of a window, limited to the size of the image."""
    return [size if n is None else min(n, size) for n in net.shape.as_list()[1:3]]
