"""`wf.data.experimental`: what may still change in input pipelines."""

from weft_io.data.experimental import (
    AUTOTUNE as AUTOTUNE,
    make_saveable_from_iterator as make_saveable_from_iterator,
)
