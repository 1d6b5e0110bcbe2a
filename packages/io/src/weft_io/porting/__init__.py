"""Porting aids: find where a port departs from the model that it was ported from."""

from weft_io.porting.activations import *
from weft_io.porting.growth import *
from weft_io.porting.nonfinite import *
from weft_io.porting.parameter_files import *
from weft_io.porting.parameters import *
from weft_io.porting.runs import *
