"""`tf.contrib.lookup`: tables, under its names and with its argument orders."""

from weft_io.lookup.former import *
from weft_io.lookup.initializers import *
from weft_io.lookup.vocabulary import *
