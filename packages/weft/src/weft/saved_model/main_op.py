"""`wf.saved_model.main_op`."""

from weft_io.saved_model.main_op import (
    main_op as main_op,
    main_op_with_restore as main_op_with_restore,
)
