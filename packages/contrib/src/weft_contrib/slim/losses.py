"""`slim.losses`: the losses of `tf.contrib.losses`."""

from weft_contrib.losses import *
