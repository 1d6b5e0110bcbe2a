"""`wf.saved_model.loader`."""

from weft_io.saved_model.loader import (
    load as load,
    maybe_saved_model_directory as maybe_saved_model_directory,
)
