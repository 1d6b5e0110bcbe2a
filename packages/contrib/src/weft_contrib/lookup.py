"""`tf.contrib.lookup`: lookup tables, with its names and argument orders."""

from weft_io.lookup.former import *
from weft_io.lookup.initializers import *
from weft_io.lookup.vocabulary import *
