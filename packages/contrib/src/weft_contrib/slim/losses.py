"""`slim.losses`: those of `tf.contrib.losses`."""

from weft_contrib.losses import *
