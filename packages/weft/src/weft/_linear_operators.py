"""Lazily loaded names of `weft.linalg`: linear operators."""

from weft_graph.linear_operators.adjoint import *
from weft_graph.linear_operators.block_diag import *
from weft_graph.linear_operators.block_lower_triangular import *
from weft_graph.linear_operators.circulant import *
from weft_graph.linear_operators.circulant2d import *
from weft_graph.linear_operators.circulant3d import *
from weft_graph.linear_operators.composition import *
from weft_graph.linear_operators.diag import *
from weft_graph.linear_operators.full_matrix import *
from weft_graph.linear_operators.householder import *
from weft_graph.linear_operators.identity import *
from weft_graph.linear_operators.inversion import *
from weft_graph.linear_operators.kronecker import *
from weft_graph.linear_operators.low_rank_update import *
from weft_graph.linear_operators.lower_triangular import *
from weft_graph.linear_operators.operator import *
from weft_graph.linear_operators.permutation import *
from weft_graph.linear_operators.scaled_identity import *
from weft_graph.linear_operators.toeplitz import *
from weft_graph.linear_operators.tridiagonal import *
from weft_graph.linear_operators.zeros import *
