"""`wf.saved_model`: graphs with their variables and signatures in a directory."""

from weft.saved_model import (
    builder as builder,
    constants as constants,
    loader as loader,
    main_op as main_op,
    signature_constants as signature_constants,
    signature_def_utils as signature_def_utils,
    tag_constants as tag_constants,
    utils as utils,
)
from weft_io.saved_model.builder import (
    SavedModelBuilder as SavedModelBuilder,
    simple_save as simple_save,
)
from weft_io.saved_model.loader import (
    contains_saved_model as contains_saved_model,
    load as load,
    maybe_saved_model_directory as maybe_saved_model_directory,
)
from weft_io.saved_model.main_op import (
    main_op_with_restore as main_op_with_restore,
)
from weft_io.saved_model.signature_def_utils import (
    build_signature_def as build_signature_def,
    classification_signature_def as classification_signature_def,
    is_valid_signature as is_valid_signature,
    predict_signature_def as predict_signature_def,
    regression_signature_def as regression_signature_def,
)
from weft_io.saved_model.utils import (
    build_tensor_info as build_tensor_info,
    get_tensor_from_tensor_info as get_tensor_from_tensor_info,
)
