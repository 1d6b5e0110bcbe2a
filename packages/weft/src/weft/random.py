"""`wf.random`: random numbers."""

from __future__ import annotations

from weft_graph.ops.candidates import all_candidate_sampler as all_candidate_sampler
from weft_graph.ops.candidates import (
    fixed_unigram_candidate_sampler as fixed_unigram_candidate_sampler,
)
from weft_graph.ops.candidates import (
    learned_unigram_candidate_sampler as learned_unigram_candidate_sampler,
)
from weft_graph.ops.candidates import log_uniform_candidate_sampler as log_uniform_candidate_sampler
from weft_graph.ops.candidates import uniform_candidate_sampler as uniform_candidate_sampler
from weft_graph.ops.join import split as split
from weft_graph.ops.random import categorical as categorical
from weft_graph.ops.random import multinomial as multinomial
from weft_graph.ops.random import stateless_truncated_normal as stateless_truncated_normal
from weft_graph.ops.random import truncated_normal as truncated_normal
from weft_graph.random_seed import get_seed as get_seed
from weft_graph.random_seed import set_random_seed as set_random_seed
