"""`wf.saved_model.tag_constants`."""

from weft_io.saved_model.tag_constants import (
    GPU as GPU,
    SERVING as SERVING,
    TPU as TPU,
    TRAINING as TRAINING,
)
