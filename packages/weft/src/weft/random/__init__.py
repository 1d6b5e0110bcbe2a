"""`wf.random`: random numbers."""

from weft import _lazy
from weft.random import experimental as experimental
from weft_graph.ir.random_seed import *
from weft_graph.ops import random as _random, stateless_random as _stateless
from weft_graph.ops.candidates import *
from weft_graph.ops.random import (
    categorical as categorical,
    multinomial as multinomial,
    stateless_truncated_normal as stateless_truncated_normal,
    truncated_normal as truncated_normal,
)
from weft_graph.ops.stateless_random import *
from weft_graph.variables.generator import *

fold_in = _stateless.stateless_fold_in
gamma = _random.random_gamma
normal = _random.random_normal
poisson = _random.random_poisson
shuffle = _random.random_shuffle
split = _stateless.stateless_split
stateless_normal = _random.stateless_random_normal
stateless_uniform = _random.stateless_random_uniform
uniform = _random.random_uniform

_lazy.hint(__name__)
