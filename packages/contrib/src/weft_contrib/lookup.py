"""`tf.contrib.lookup`: tables, which are in `lookup` by now."""

from weft_io.lookup.functions import *
from weft_io.lookup.initializers import *
from weft_io.lookup.tables import *
from weft_io.lookup.vocabulary import *
