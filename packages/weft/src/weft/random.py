"""`wf.random`: random numbers."""

from weft_graph.ir.random_seed import get_seed as get_seed, set_random_seed as set_random_seed
from weft_graph.ops import random as _random
from weft_graph.ops.candidates import (
    all_candidate_sampler as all_candidate_sampler,
    fixed_unigram_candidate_sampler as fixed_unigram_candidate_sampler,
    learned_unigram_candidate_sampler as learned_unigram_candidate_sampler,
    log_uniform_candidate_sampler as log_uniform_candidate_sampler,
    uniform_candidate_sampler as uniform_candidate_sampler,
)
from weft_graph.ops.random import (
    categorical as categorical,
    multinomial as multinomial,
    stateless_truncated_normal as stateless_truncated_normal,
    truncated_normal as truncated_normal,
)

gamma = _random.random_gamma
normal = _random.random_normal
poisson = _random.random_poisson
shuffle = _random.random_shuffle
stateless_normal = _random.stateless_random_normal
stateless_uniform = _random.stateless_random_uniform
uniform = _random.random_uniform
