"""`wf.initializers`: initial values of variables."""

from __future__ import annotations

from weft_graph.builder import constant as constant
from weft_graph.initializers import glorot_normal as glorot_normal
from weft_graph.initializers import glorot_uniform as glorot_uniform
from weft_graph.initializers import he_normal as he_normal
from weft_graph.initializers import he_uniform as he_uniform
from weft_graph.initializers import lecun_normal as lecun_normal
from weft_graph.initializers import lecun_uniform as lecun_uniform
from weft_graph.initializers import orthogonal as orthogonal
from weft_graph.initializers import uniform_unit_scaling as uniform_unit_scaling
from weft_graph.initializers import variance_scaling as variance_scaling
from weft_graph.ops.array import ones as ones
from weft_graph.ops.array import zeros as zeros
from weft_graph.ops.identity import identity as identity
from weft_graph.ops.random import random_normal as random_normal
from weft_graph.ops.random import random_uniform as random_uniform
from weft_graph.ops.random import truncated_normal as truncated_normal
from weft_graph.variables import global_variables as global_variables
from weft_graph.variables import local_variables as local_variables
