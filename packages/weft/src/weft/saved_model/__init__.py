"""`wf.saved_model`: graphs with their variables and signatures in a directory."""

from weft import _lazy
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
from weft_io.saved_model import builder as _builder
from weft_io.saved_model.builder import *
from weft_io.saved_model.constants import *
from weft_io.saved_model.loader import *
from weft_io.saved_model.loader import contains_saved_model as contains_saved_model
from weft_io.saved_model.main_op import main_op_with_restore as main_op_with_restore
from weft_io.saved_model.signature_constants import *
from weft_io.saved_model.signature_def_utils import *
from weft_io.saved_model.tag_constants import *
from weft_io.saved_model.utils import *

Builder = _builder.SavedModelBuilder

_lazy.hint(__name__)
