"""`wf.linalg`: linear algebra."""

from weft_autodiff.clipping import global_norm as global_norm
from weft_graph.nn.statistics import l2_normalize as l2_normalize
from weft_graph.ops import diagonals as _diagonals, layout as _layout
from weft_graph.ops.contraction import einsum as einsum, tensordot as tensordot
from weft_graph.ops.diagonals import eye as eye
from weft_graph.ops.layout import matrix_transpose as matrix_transpose
from weft_graph.ops.linalg import (
    adjoint as adjoint,
    cholesky as cholesky,
    cholesky_solve as cholesky_solve,
    det as det,
    eigh as eigh,
    eigvalsh as eigvalsh,
    expm as expm,
    inv as inv,
    logdet as logdet,
    lstsq as lstsq,
    matrix_rank as matrix_rank,
    norm as norm,
    normalize as normalize,
    pinv as pinv,
    qr as qr,
    slogdet as slogdet,
    solve as solve,
    svd as svd,
    triangular_solve as triangular_solve,
)
from weft_graph.ops.matmul import cross as cross, matmul as matmul, matvec as matvec, trace as trace

band_part = _diagonals.matrix_band_part
diag = _diagonals.matrix_diag
diag_part = _diagonals.matrix_diag_part
set_diag = _diagonals.matrix_set_diag
tensor_diag = _diagonals.diag
tensor_diag_part = _diagonals.diag_part
transpose = _layout.matrix_transpose
