"""`tf.contrib.slim.nets`: image networks, with the names of their published checkpoints."""

from weft_contrib.slim.nets import (
    alexnet as alexnet,
    inception as inception,
    resnet_utils as resnet_utils,
    resnet_v1 as resnet_v1,
    resnet_v2 as resnet_v2,
    vgg as vgg,
)
