"""`tf.contrib.learn`: its preprocessing of text; there are no estimators."""

from weft_contrib.learn import preprocessing as preprocessing
