"""`tf.contrib.learn`: only its text preprocessing, without estimators."""

from weft_contrib.learn import preprocessing as preprocessing
