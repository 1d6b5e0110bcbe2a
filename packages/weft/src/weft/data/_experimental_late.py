"""Names of `weft.data.experimental` that load when the first of them is used: training loops."""

from weft_io.training.input_hooks import *
