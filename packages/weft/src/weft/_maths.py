"""Lazily loaded names of `weft`: Fourier transforms, second derivatives."""

from weft_autodiff.hessians import *
from weft_graph.nn.approximate import approx_top_k as approx_top_k
from weft_graph.ops.fft import *
from weft_graph.ops.matrix_functions import matrix_square_root as matrix_square_root
from weft_graph.ops.stateful_random import random_index_shuffle as random_index_shuffle
