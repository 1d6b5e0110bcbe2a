"""`wf.linalg`: linear algebra."""

from __future__ import annotations

from weft_autodiff.clipping import global_norm as global_norm
from weft_graph.nn.statistics import l2_normalize as l2_normalize
from weft_graph.ops.contraction import einsum as einsum
from weft_graph.ops.contraction import tensordot as tensordot
from weft_graph.ops.diagonals import band_part as band_part
from weft_graph.ops.diagonals import diag as diag
from weft_graph.ops.diagonals import diag_part as diag_part
from weft_graph.ops.diagonals import eye as eye
from weft_graph.ops.diagonals import set_diag as set_diag
from weft_graph.ops.diagonals import tensor_diag as tensor_diag
from weft_graph.ops.diagonals import tensor_diag_part as tensor_diag_part
from weft_graph.ops.layout import matrix_transpose as matrix_transpose
from weft_graph.ops.layout import transpose as transpose
from weft_graph.ops.linalg import adjoint as adjoint
from weft_graph.ops.linalg import cholesky as cholesky
from weft_graph.ops.linalg import cholesky_solve as cholesky_solve
from weft_graph.ops.linalg import det as det
from weft_graph.ops.linalg import eigh as eigh
from weft_graph.ops.linalg import eigvalsh as eigvalsh
from weft_graph.ops.linalg import expm as expm
from weft_graph.ops.linalg import inv as inv
from weft_graph.ops.linalg import logdet as logdet
from weft_graph.ops.linalg import lstsq as lstsq
from weft_graph.ops.linalg import matrix_rank as matrix_rank
from weft_graph.ops.linalg import norm as norm
from weft_graph.ops.linalg import normalize as normalize
from weft_graph.ops.linalg import pinv as pinv
from weft_graph.ops.linalg import qr as qr
from weft_graph.ops.linalg import slogdet as slogdet
from weft_graph.ops.linalg import solve as solve
from weft_graph.ops.linalg import svd as svd
from weft_graph.ops.linalg import triangular_solve as triangular_solve
from weft_graph.ops.matmul import cross as cross
from weft_graph.ops.matmul import matmul as matmul
from weft_graph.ops.matmul import matvec as matvec
from weft_graph.ops.matmul import trace as trace
