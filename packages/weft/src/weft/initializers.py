"""`wf.initializers`: initial values of variables."""

from weft_graph.variables import reference as _variables
from weft_graph.variables.initializers import (
    constant as constant,
    glorot_normal as glorot_normal,
    glorot_uniform as glorot_uniform,
    he_normal as he_normal,
    he_uniform as he_uniform,
    identity as identity,
    lecun_normal as lecun_normal,
    lecun_uniform as lecun_uniform,
    ones as ones,
    orthogonal as orthogonal,
    random_normal as random_normal,
    random_uniform as random_uniform,
    truncated_normal as truncated_normal,
    uniform_unit_scaling as uniform_unit_scaling,
    variance_scaling as variance_scaling,
    zeros as zeros,
)
from weft_graph.variables.reference import tables_initializer as tables_initializer

global_variables = _variables.global_variables_initializer
local_variables = _variables.local_variables_initializer
variables = _variables.variables_initializer
