"""`wf.initializers`: initial values of variables."""

from weft import _lazy
from weft_graph.variables import reference as _variables
from weft_graph.variables.initializers import *
from weft_graph.variables.reference import tables_initializer as tables_initializer

global_variables = _variables.global_variables_initializer
local_variables = _variables.local_variables_initializer
variables = _variables.variables_initializer

_lazy.hint(__name__)
