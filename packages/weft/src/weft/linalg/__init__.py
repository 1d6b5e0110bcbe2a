"""`wf.linalg`: linear algebra."""

import typing as _typing

from weft import _lazy
from weft_autodiff.clipping import global_norm as global_norm
from weft_graph.nn.statistics import l2_normalize as l2_normalize
from weft_graph.ops import diagonals as _diagonals, permutation as _permutation
from weft_graph.ops.contraction import *
from weft_graph.ops.diagonals import eye as eye
from weft_graph.ops.linalg import *
from weft_graph.ops.lu import *
from weft_graph.ops.matmul import *
from weft_graph.ops.matmul import matvec as matvec
from weft_graph.ops.matrix_functions import logm as logm, sqrtm as sqrtm
from weft_graph.ops.norms import *
from weft_graph.ops.permutation import matrix_transpose as matrix_transpose
from weft_graph.ops.tridiagonal import *

band_part = _diagonals.matrix_band_part
diag = _diagonals.matrix_diag
diag_part = _diagonals.matrix_diag_part
set_diag = _diagonals.matrix_set_diag
tensor_diag = _diagonals.diag
tensor_diag_part = _diagonals.diag_part
transpose = _permutation.matrix_transpose

if _typing.TYPE_CHECKING:
    from weft._linear_operators import *
    from weft.linalg import experimental as experimental
else:
    __getattr__, __dir__ = _lazy.attach(__name__, "weft._linear_operators")
