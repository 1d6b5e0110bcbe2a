"""`wf.saved_model.signature_def_utils`: construction of signatures."""

from weft import _lazy
from weft_io.saved_model.method_name_updater import MethodNameUpdater as MethodNameUpdater
from weft_io.saved_model.signature_def_utils import *

_lazy.hint(__name__)
