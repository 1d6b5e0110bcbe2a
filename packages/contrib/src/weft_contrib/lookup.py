"""`tf.contrib.lookup`: lookup tables, with its names and argument orders."""

from weft_io.lookup.contrib_tables import *
from weft_io.lookup.initializers import *
from weft_io.lookup.vocabulary import *
