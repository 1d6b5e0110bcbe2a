"""Every kernel refuses operands, results and options that do not fit, in files of one op.

With the other tests of the runtime these reach all of its refusals, except for those that an
earlier check rules out, and sizes beyond the addresses of 32 bits.
"""

from __future__ import annotations

import ctypes
import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from weft_testing.lite_models import (
    BOOL,
    F32,
    I8,
    I32,
    I64,
    U8,
    Tensor,
    c,
    file_of,
    laid_out,
    packed,
    quantized,
    v,
)  # fmt: skip

from weft_lite import Interpreter, errors, library
from weft_lite.interpreter import _File
from weft_lite.schema import codec, tables as t
from weft_lite.schema.enums import Layout, OpKind, Padding, PadMode, Storage

E = t.ElementwiseOptions
AXIS, CONV, POOL, CELL, MUL = (
    t.AxisOptions,
    t.ConvOptions,
    t.PoolOptions,
    t.CellOptions,
    t.MatMulOptions,
)
X, Y = v(F32, 2, 3), v(F32, 2, 3)
ONE_BY_ONE = {"kernel_h": 1, "kernel_w": 1, "padding": Padding.VALID}
IMAGE, PIXELS = v(F32, 1, 4, 4, 16), v(F32, 1, 4, 4, 16)
FILTER = packed(F32, 1, 1, 16, 16)
EIGHT = quantized(I8, 1, 4, 4, 4)
LSTM = [v(F32, 2, 3), v(F32, 2, 4), v(F32, 2, 4), packed(F32, 1, 1, 7, 16), v(F32, 16, value=0)]
STATES = [v(F32, 2, 4), v(F32, 2, 4)]
GRU = [
    v(F32, 2, 3),
    v(F32, 2, 4),
    packed(F32, 1, 1, 7, 16),
    v(F32, 8, value=0),
    packed(F32, 1, 1, 7, 16),
    v(F32, 4, value=0),
]
SLICED = [c(I32, [0, 0]), c(I32, [1, 1]), c(I32, [1, 1])]
PAIRS = c(I32, [[1, 1], [0, 0]])


def but(operands: Sequence[Tensor | None], at: int, other: Tensor | None) -> list[Tensor | None]:
    """Operands with another one at a place."""
    return [other if i == at else each for i, each in enumerate(operands)]


Case = tuple[OpKind, Sequence[Tensor | None], Sequence[Tensor], Any, str]

K = OpKind
CASES: list[Case] = [
    # array.c
    (K.Reshape, [X, c(I32, [3, 2])], [v(F32, 2, 3)], None, "size 0 of a result is 3"),
    (K.Concat, [X, v(I32, 2, 3)], [v(F32, 4, 3)], AXIS(0), "an operand is int32, not float32"),
    (K.Concat, [quantized(I8, 2), quantized(I8, 2, scales=[1.0])], [quantized(I8, 4)], AXIS(0),
     "the same scale"),
    (K.Concat, [X, v(F32, 2, 4)], [v(F32, 4, 3)], AXIS(0), r"cannot be joined"),
    (K.Concat, [X, v(F32, 6)], [v(F32, 4, 3)], AXIS(0), r"cannot be joined"),
    (K.Concat, [X, X], [v(F32, 2, 6)], AXIS(0), "size 0 of a result is 4"),
    (K.Pack, [X, X], [v(F32, 2, 2, 3)], AXIS(3), "axis 3 is not one of rank 3"),
    (K.Pack, [X, v(F32, 3, 2)], [v(F32, 2, 2, 3)], AXIS(0), "cannot be packed"),
    (K.Pack, [X, X], [v(F32, 2, 3)], AXIS(0), "rank 3, and the file says 2"),
    (K.Split, [X], [], AXIS(0), "it has no result"),
    (K.Shape, [X], [v(F32, 2)], None, "the result may not be float32"),
    (K.Shape, [X], [v(I32, 3)], None, "size 0 of a result is 2"),
    (K.Fill, [c(I32, [2]), c(F32, [1.0])], [v(F32, 2)], None, "the value has shape"),
    (K.Fill, [c(I32, [[2]]), c(F32, 1.0)], [v(F32, 2)], None, "the shape has shape"),
    (K.Range, [c(I32, [0]), c(I32, 4), c(I32, 1)], [v(I32, 4)], None, "single numbers"),
    (K.Range, [c(F32, 0.0), c(F32, 1.0), c(F32, 0.0)], [v(F32, 4)], None, "does not end"),
    (K.Range, [c(F32, np.nan), c(F32, 1.0), c(F32, 1.0)], [v(F32, 4)], None, "does not end"),
    (K.Range, [c(I64, 0), c(I64, 1 << 40), c(I64, 1)], [v(I64, 4)], None, "too long"),
    (K.Range, [c(I64, 0), c(I64, 4), c(I64, 0)], [v(I64, 4)], None, "its step is 0"),
    # binary.c
    (K.Less, [X, X], [Y], E(), "the result may not be float32"),
    (K.Add, [v(I32, 2), v(I32, 2)], [v(I32, 2)], E(1), "an activation needs floats"),
    (K.Add, [X, X], [v(I32, 2, 3)], E(), "the result is int32"),
    (K.Add, [X, v(F32, 2, 4)], [Y], E(), "do not broadcast"),
    (K.Add, [quantized(I8, 2), v(I8, 2)], [quantized(I8, 2)], E(), "one scale each"),
    (K.Select, [v(BOOL, 2, 3), X, X], [v(I32, 2, 3)], None, "the result is int32"),
    (K.Select, [v(BOOL, 2, 3), X, v(I32, 2, 3)], [Y], None, "operand 2 is int32"),
    (K.Select, [v(BOOL, 2, 4), X, X], [Y], None, "do not broadcast"),
    (K.Select, [v(BOOL, 2, 3), X, v(F32, 3, 3)], [Y], None, "do not broadcast"),
    (K.LogicalNot, [v(BOOL, 2)], [v(I32, 2)], E(), "the result may not be int32"),
    # cast.c
    (K.Quantize, [X], [v(I8, 2, 3)], None, "it needs scales"),
    (K.Quantize, [X], [quantized(F32, 2, 3)], None, "the result may not be float32"),
    (K.Quantize, [packed(I8, 1, 1, 2, 16, scales=[1.0] * 16)], [quantized(I8, 1, 1, 2, 16)], None,
     "scales of an axis need a plain layout"),
    (K.Dequantize, [packed(I8, 1, 1, 2, 16, scales=[1.0] * 8)], [v(F32, 1, 1, 2, 16)], None,
     "a scale for each of their columns"),
    (K.Dequantize, [quantized(I8, 2)], [v(I32, 2)], None, "the result may not be int32"),
    (K.Dequantize, [v(I8, 2)], [v(F32, 2)], None, "it needs scales"),
    (K.DynamicQuantize, [X], [quantized(I8, 2, 3), v(F32, 2)], None, "has scales already"),
    (K.DynamicQuantize, [X], [v(U8, 2, 3), v(F32, 2)], None, "the result may not be uint8"),
    (K.DynamicQuantize, [X], [v(I8, 2, 3), v(I32, 2)], None, "the scales may not be int32"),
    (K.DynamicQuantize, [X], [v(I8, 3, 2), v(F32, 2)], None, "size 0 of a result is 2"),
    (K.DynamicQuantize, [X], [v(I8, 2, 3), v(F32, 3)], None, "size 0 of a result is 2"),
    (K.DynamicQuantize, [v(F32)], [v(I8), v(F32, 1)], None, "operand 0 has shape"),
    # cell.c
    (K.LstmCell, but(LSTM, 3, packed(F32, 1, 1, 8, 16)), STATES, CELL(),
     "not packed for 3 and 4 rows and 16"),
    (K.LstmCell, but(LSTM, 3, packed(F32, 2, 1, 7, 16)), STATES, CELL(), "not packed"),
    (K.LstmCell, but(LSTM, 3, v(F32, 1, 1, 7, 16, value=1)), STATES, CELL(), "not packed"),
    (K.LstmCell, but(LSTM, 3, packed(I8, 1, 1, 2, 16, 4)), STATES, CELL(),
     "0 scales for 16 columns"),
    (K.LstmCell, but(LSTM, 3, packed(I8, 1, 1, 3, 16, 4, scales=[1.0])), STATES, CELL(),
     "not packed"),
    (K.LstmCell, but(LSTM, 3, packed(I8, 1, 1, 2, 16, 4, scales=[1.0], zeros=[1])), STATES, CELL(),
     "the zero point of weights must be 0"),
    (K.LstmCell, but(LSTM, 3, packed(I32, 1, 1, 7, 16)), STATES, CELL(),
     "the weights may not be int32"),
    (K.LstmCell, but(LSTM, 4, v(F32, 15, value=0)), STATES, CELL(),
     r"its bias has shape .*, not \(16\)"),
    (K.LstmCell, but(LSTM, 4, v(I32, 16, value=0)), STATES, CELL(), "the bias may not be int32"),
    (K.LstmCell, but(LSTM, 0, v(F32, 3, 3)), STATES, CELL(),
     "operand 0 has shape .* and the state"),
    (K.LstmCell, but(LSTM, 0, v(F32, 2, 3, 1)), STATES, CELL(), "its rank must be 2 to 2"),
    (K.LstmCell, but(LSTM, 2, v(F32, 8)), STATES, CELL(), "the state has shape"),
    (K.LstmCell, but(LSTM, 2, v(I32, 2, 4)), STATES, CELL(), "the state may not be int32"),
    (K.LstmCell, but(LSTM, 1, v(F32, 2, 5)), STATES, CELL(), "its states have shapes"),
    (K.LstmCell, but(LSTM, 1, v(F32, 3, 4)), STATES, CELL(), "its states have shapes"),
    (K.LstmCell, but(LSTM, 1, v(I32, 2, 4)), STATES, CELL(), "the state may not be int32"),
    (K.LstmCell, LSTM, [STATES[0], v(I32, 2, 4)], CELL(), "a result may not be int32"),
    (K.LstmCell, LSTM, [STATES[0], v(F32, 2, 5)], CELL(), "size 1 of a result is 4"),
    (K.GruCell, but(GRU, 2, packed(F32, 1, 1, 6, 16)), STATES[:1], CELL(), "4 rows and 8 columns"),
    (K.GruCell, but(GRU, 4, packed(F32, 1, 1, 6, 16)), STATES[:1], CELL(), "4 rows and 4 columns"),
    # control.c
    (K.Assign, [X, v(F32, 2, 3)], [Y], None, "operand 0 is not a variable"),
    (K.Assign, [v(F32, 2, 3, storage=Storage.VARIABLE), v(F32, 3, 2)], [Y], None,
     "gets a value of shape"),
    (K.Assign, [v(F32, 2, 3, storage=Storage.VARIABLE), v(I32, 2, 3)], [Y], None,
     "the value is int32"),
    (K.Assign, [v(F32, 2, 3, storage=Storage.VARIABLE), X], [v(I32, 2, 3)], None,
     "the result is int32"),
    (K.Assign, [v(F32, 2, 3, storage=Storage.VARIABLE), X], [v(F32, 3, 2)], None,
     "size 0 of a result is 2"),
    # conv.c
    (K.Conv2D, [IMAGE, FILTER], [PIXELS], CONV(**ONE_BY_ONE, channels=16, activation=9),
     "activation 9"),
    (K.Conv2D, [v(F32, 1, 4, 4, 8), FILTER], [PIXELS], CONV(**ONE_BY_ONE, channels=16),
     "has 8 channels, and the filter takes 16"),
    (K.Conv2D, [IMAGE, FILTER], [v(F32, 1, 4, 3, 16)], CONV(**ONE_BY_ONE, channels=16),
     "size 2 of a result is 4"),
    (K.Conv2D, [IMAGE, FILTER], [PIXELS], CONV(**ONE_BY_ONE | {"kernel_h": 0}, channels=16),
     "size of its filter"),
    (K.Conv2D, [IMAGE, FILTER], [PIXELS], CONV(**ONE_BY_ONE, channels=16, stride_h=-1),
     "stride or dilation"),
    (K.Conv2D, [IMAGE, FILTER], [PIXELS], CONV(**ONE_BY_ONE | {"padding": 9}, channels=16),
     "padding 9"),
    (K.Conv2D, [IMAGE, FILTER], [PIXELS], CONV(**ONE_BY_ONE | {"padding": Padding.EXPLICIT},
     channels=16),
     "no four pads"),
    (K.Conv2D, [IMAGE, FILTER], [PIXELS],
     CONV(**ONE_BY_ONE | {"padding": Padding.EXPLICIT, "pads": [0, 0, -1, 0]}, channels=16),
     "a pad is negative"),
    (K.Conv2D, [IMAGE, FILTER, v(F32, 15, value=0)], [PIXELS], CONV(**ONE_BY_ONE, channels=16),
     "the bias has shape"),
    (K.Conv2D, [IMAGE, FILTER, v(I32, 16, value=0)], [PIXELS], CONV(**ONE_BY_ONE, channels=16),
     "the bias may not"),
    (K.Conv2D, [IMAGE, FILTER, None, v(F32, 1)], [PIXELS], CONV(**ONE_BY_ONE, channels=16),
     "scales in operand 3"),
    (K.Conv2D, [EIGHT, packed(I8, 1, 1, 1, 16, 4, scales=[1.0]), None, v(F32, 1)], [PIXELS],
     CONV(**ONE_BY_ONE, channels=16), "scales of its own beside operand 3"),
    (K.Conv2D, [v(I8, 1, 4, 4, 4), packed(I8, 1, 1, 1, 16, 4, scales=[1.0]), None, v(F32, 1)],
     [quantized(I8, 1, 4, 4, 16)], CONV(**ONE_BY_ONE, channels=16), "the result may not be int8"),
    (K.Conv2D, [v(I8, 1, 4, 4, 4), packed(I8, 1, 1, 1, 16, 4, scales=[1.0] * 3), None, v(F32, 1)],
     [PIXELS],
     CONV(**ONE_BY_ONE, channels=16), "3 scales for 16 columns"),
    (K.Conv2D, [EIGHT, packed(I8, 1, 1, 1, 16, 4, scales=[1.0] * 3)], [quantized(I8, 1, 4, 4, 16)],
     CONV(**ONE_BY_ONE, channels=16), "its filter has 3 scales for 16 channels"),
    (K.Conv2D, [EIGHT, packed(I8, 1, 1, 1, 16, 4, scales=[1.0], zeros=[1])], [quantized(I8, 1, 4,
     4, 16)],
     CONV(**ONE_BY_ONE, channels=16), "the zero point of a filter must be 0"),
    (K.Conv2D, [v(I8, 1, 4, 4, 4), packed(I8, 1, 1, 1, 16, 4, scales=[1.0])], [quantized(I8, 1, 4,
     4, 16)],
     CONV(**ONE_BY_ONE, channels=16), "operand 0 and the result need one scale each"),
    (K.Conv2D, [quantized(I8, 1, 4, 4, 4, scales=[1e30]), packed(I8, 1, 1, 1, 16, 4,
     scales=[1e30])],
     [quantized(I8, 1, 4, 4, 16, scales=[1e-30])], CONV(**ONE_BY_ONE, channels=16),
     "ratio of its scales is infinite"),
    (K.DepthwiseConv2D, [IMAGE, v(F32, 1, 1, 16, value=1, layout=Layout.PANELS)], [PIXELS],
     CONV(**ONE_BY_ONE),
     "the filter may not be packed"),
    (K.Conv2DTranspose, [c(I32, [1, 4, 4, 8]), v(F32, 1, 1, 8, 16, value=1, layout=Layout.PANELS),
     IMAGE],
     [v(F32, 1, 4, 4, 8)], CONV(**ONE_BY_ONE), "the filter may not be packed"),
    (K.Conv2DTranspose, [c(I32, [1, 4, 4, 8]), v(F32, 1, 1, 8, 16, value=1), IMAGE, v(F32, 7,
     value=0)],
     [v(F32, 1, 4, 4, 8)], CONV(**ONE_BY_ONE), "the bias has shape"),
    (K.Conv2DTranspose, [c(I32, [1, 4, 4, 8]), v(F32, 1, 1, 8, 16, value=1), IMAGE, v(I32, 8,
     value=0)],
     [v(F32, 1, 4, 4, 8)], CONV(**ONE_BY_ONE), "the bias may not be int32"),
    (K.Conv2DTranspose, [c(I32, [1, 4, 4, 8]), v(F32, 1, 1, 8, 16, value=1), IMAGE], [v(I32, 1, 4,
     4, 8)],
     CONV(**ONE_BY_ONE), "the result may not be int32"),
    (K.Conv2DTranspose, [c(I32, [[1, 4, 4, 8]]), v(F32, 1, 1, 8, 16, value=1), IMAGE], [v(F32, 1,
     4, 4, 8)],
     CONV(**ONE_BY_ONE), "operand 0 has shape"),
    (K.Conv2DTranspose, [c(I32, [1, 4, 4, 8]), v(F32, 1, 1, 8, 16, value=1), v(I32, 1, 4, 4, 16)],
     [v(F32, 1, 4, 4, 8)], CONV(**ONE_BY_ONE), "operand 2 may not be int32"),
    (K.Conv2DTranspose, [c(I32, [1, 4, 9, 8]), v(F32, 1, 1, 8, 16, value=1), IMAGE], [v(F32, 1, 4,
     9, 8)],
     CONV(**ONE_BY_ONE | {"padding": 9}), "padding 9"),
    (K.Conv2DTranspose, [c(I32, [1, 4, 4, 8]), v(F32, 1, 1, 8, 16, value=1), IMAGE], [v(F32, 1, 4,
     4, 8)],
     CONV(**ONE_BY_ONE | {"padding": Padding.EXPLICIT, "pads": [0, 0, -1, 0]}),
     "a pad is negative"),
    # patches.c and the gradients of pool.c
    (K.Patches, [v(I32, 1, 4, 4, 16)], [v(I32, 1, 4, 4, 16)], CONV(**ONE_BY_ONE), "int32"),
    (K.Patches, [v(F32, 4, 4, 16)], [v(F32, 1, 4, 4, 16)], CONV(**ONE_BY_ONE), "rank must be 4"),
    (K.Patches, [IMAGE], [v(F32, 1, 4, 4, 64)], CONV(**ONE_BY_ONE), "size 3 of a result is 16"),
    (K.PatchesGrad, [c(I32, [1, 4, 4]), IMAGE], [v(F32, 1, 4, 4, 16)], CONV(**ONE_BY_ONE),
     "operand 0 has 3 sizes"),
    (K.PatchesGrad, [c(I32, [1, 4, 4, 8]), IMAGE], [v(F32, 1, 4, 4, 8)], CONV(**ONE_BY_ONE),
     "do not come from images of shape"),
    (K.PatchesGrad, [c(I32, [1, 5, 4, 16]), IMAGE], [v(F32, 1, 5, 4, 16)], CONV(**ONE_BY_ONE),
     "do not come from images of shape"),
    (K.PatchesGrad, [c(I32, [1, 4, 4, 16]), v(I32, 1, 4, 4, 16)], [v(I32, 1, 4, 4, 16)],
     CONV(**ONE_BY_ONE), "int32"),
    (K.MaxPoolGrad, [IMAGE, IMAGE, v(F32, 1, 4, 3, 16)], [v(F32, 1, 4, 4, 16)], POOL(1, 1, 1, 1),
     "does not come from images of shape"),
    (K.MaxPoolGrad, [IMAGE, v(F32, 1, 4, 3, 16), IMAGE], [v(F32, 1, 4, 4, 16)], POOL(1, 1, 1, 1),
     "and its gradient"),
    (K.MaxPoolGrad, [IMAGE, v(I32, 1, 4, 4, 16), IMAGE], [v(F32, 1, 4, 4, 16)], POOL(1, 1, 1, 1),
     "operand 1 is int32"),
    (K.MaxPoolGrad, [IMAGE, IMAGE, IMAGE], [v(F32, 1, 4, 4, 16)], POOL(0, 1, 1, 1),
     "a window or stride is not possible"),
    (K.AvgPoolGrad, [c(I32, [4, 4]), IMAGE], [v(F32, 1, 4, 4, 16)], POOL(1, 1, 1, 1),
     "operand 0 has 2 sizes"),
    (K.AvgPoolGrad, [c(I32, [1, 4, 4, 8]), IMAGE], [v(F32, 1, 4, 4, 8)], POOL(1, 1, 1, 1),
     "does not come from images of shape"),
    (K.Lookup, [v(I8, 4), v(I8, 255)], [v(I8, 4)], None, "the table has shape"),
    (K.Lookup, [v(I8, 4), v(U8, 256)], [v(I8, 4)], None, "the table is uint8"),
    (K.Lookup, [v(F32, 4), v(I8, 256)], [v(I8, 4)], None, "float32"),
    (K.Lookup, [v(I8, 4), v(F32, 256)], [v(F32, 4)], None, "the result may not be float32"),
    # gather.c
    (K.Gather, [v(F32, 1, 1, 1, 1, 1), v(I32, 1, 1, 1, 1, 1)], [v(F32, 1)], AXIS(0),
     "rank above 8"),
    (K.Gather, [X, v(F32, 2)], [v(F32, 2, 3)], AXIS(0), "the indices may not be float32"),
    (K.GatherNd, [v(F32, 1, 1, 1, 1, 1), v(I32, 1, 1, 1, 1, 1, 1)], [v(F32, 1)], None,
     "rank above 8"),
    (K.GatherNd, [X, v(I32)], [v(F32, 2, 3)], None, "the indices has shape"),
    (K.OneHot, [v(I32, 2), c(I32, 3), c(F32, [1.0]), c(F32, 0.0)], [v(F32, 2, 3)], AXIS(-1),
     "single values"),
    (K.OneHot, [v(I32, 2), c(I32, 3), c(F32, 1.0), c(F32, 0.0)], [v(I32, 2, 3)], AXIS(-1),
     "the result is int32"),
    (K.OneHot, [v(I32, 2), c(I32, 3), c(F32, 1.0), c(F32, 0.0)], [v(F32, 2, 4)], AXIS(-1),
     "size 1 of a result is 3"),
    (K.OneHot, [v(I32, 2), c(F32, 3.0), c(F32, 1.0), c(F32, 0.0)], [v(F32, 2, 3)], AXIS(-1),
     "the depth may not be float32"),
    (K.ReverseSequence, [X, v(I32, 2)], [v(F32, 3, 2)], AXIS(1, 0), "size 0 of a result is 2"),
    (K.ReverseSequence, [X, v(I32, 3)], [Y], AXIS(1, 0), "lengths of shape"),
    # kernel.c, matmul.c
    (K.OneHot, [v(I32, 2), v(I32, 0, value=0), c(F32, 1.0), c(F32, 0.0)], [v(F32, 2, 3)], AXIS(-1),
     "the depth is empty"),
    (K.FullyConnected, [v(F32, 2, 16), FILTER], [v(F32, 2, 16)], MUL(columns=16, activation=9),
     "activation 9"),
    (K.FullyConnected, [v(F32, 2, 16), FILTER], [v(I32, 2, 16)], MUL(columns=16),
     "the result is int32"),
    (K.FullyConnected, [v(F32), FILTER], [v(F32)], MUL(columns=16), "operand 0 has shape"),
    (K.FullyConnected, [v(F32, 2, 16), packed(I8, 1, 1, 4, 16, 4)], [v(F32, 2, 16)],
     MUL(columns=16), "0 scales for 16"),
    (K.FullyConnected, [v(F32, 2, 15), FILTER], [v(F32, 2, 16)], MUL(columns=16),
     "the weights 16 rows"),
    (K.FullyConnected, [v(F32, 2, 16), FILTER], [v(F32, 2, 17)], MUL(columns=17),
     "not packed for 17 columns"),
    (K.BatchMatMul, [v(F32, 2, 3), v(F32, 3, 2)], [v(F32, 2, 2)], MUL(activation=9),
     "activation 9"),
    (K.BatchMatMul, [v(F32, 2, 3), v(I32, 3, 2)], [v(F32, 2, 2)], MUL(), "operand 1 is int32"),
    (K.BatchMatMul, [v(F32, 2, 3), v(F32, 3, 2)], [v(I32, 2, 2)], MUL(), "the result is int32"),
    # move.c
    (K.Transpose, [X, c(I32, [1, 0])], [v(F32, 2, 3)], None, "size 0 of a result is 3"),
    (K.Slice, [X, c(I32, [0, 0]), c(I32, [1, 2])], [Y], None, "size 0 of a result is 1"),
    (K.StridedSlice, [X, c(I32, [2, 0]), c(I32, [3, 1]), c(I32, [1, 1])], [v(F32, 1)],
     t.StridedSliceOptions(shrink_axis_mask=1), "index 2 is not below 2"),
    (K.StridedSlice, [X, c(I32, [0]), c(I32, [1, 1]), c(I32, [1, 1])], [v(F32, 1, 1)],
     t.StridedSliceOptions(),
     "other lengths"),
    (K.StridedSlice, [v(F32, 1, 1, 1, 1, 1, 1, 1, 1), *[c(I32, [1] * 9)] * 3], [v(F32, 1)],
     t.StridedSliceOptions(new_axis_mask=511), "rank above 8"),
    (K.StridedSlice, [v(F32, 1, 1, 1), *[c(I32, [1] * 8)] * 3], [v(F32, 1)],
     t.StridedSliceOptions(new_axis_mask=255),
     "rank above 8"),
    (K.Reverse, [X, c(F32, [0.0])], [Y], None, "axes may not be float32"),
    (K.Tile, [X, c(F32, [1.0, 1.0])], [Y], None, "multiples may not be float32"),
    (K.Pad, [X, c(F32, [[1.0, 1.0], [0.0, 0.0]])], [v(F32, 4, 3)], None,
     "paddings may not be float32"),
    (K.Pad, [X, PAIRS, v(F32, 0, value=0)], [v(F32, 4, 3)], None, "the value is empty"),
    (K.Pad, [X, PAIRS, c(I32, 0)], [v(F32, 4, 3)], None, "the value is int32"),
    (K.Pad, [X, PAIRS], [v(F32, 4, 4)], None, "size 1 of a result is 3"),
    (K.MirrorPad, [X, PAIRS], [v(F32, 4, 3)], t.PadOptions(9), "its mode is unknown"),
    (K.MirrorPad, [X, c(I32, [[2, 2], [0, 0]])], [v(F32, 6, 3)], t.PadOptions(PadMode.REFLECT),
     "what it mirrors"),
    (K.SpaceToDepth, [v(F32, 1, 4, 3, 1)], [v(F32, 1, 2, 1, 4)], t.BlockOptions(2), "not divide"),
    (K.SpaceToDepth, [v(F32, 1, 3, 4, 1)], [v(F32, 1, 1, 2, 4)], t.BlockOptions(2), "not divide"),
    (K.SpaceToDepth, [v(F32, 1, 4, 4, 1)], [v(F32, 1, 4, 4, 1)], t.BlockOptions(0), "of 0"),
    (K.DepthToSpace, [v(F32, 1, 2, 2, 3)], [v(F32, 1, 4, 4, 0)], t.BlockOptions(2), "not divide"),
    (K.SpaceToBatchNd, [v(F32, 2, 4, 4, 1), c(F32, [2.0, 2.0]), c(I32, [[0, 0], [0, 0]])], [v(F32,
     8, 2, 2, 1)], None,
     "the block shape may not be float32"),
    (K.SpaceToBatchNd, [v(F32, 2, 4, 4, 1), c(I32, [2, 2]), c(I32, [[0, 0], [0, 0]])], [v(F32, 8,
     2, 2, 2)], None,
     "size 3 of a result is 1"),
    (K.SpaceToBatchNd, [v(F32, 1 << 30, 0, 0, 0), c(I32, [1 << 16] * 3), c(I32, [[0, 0]] * 3)],
     [v(F32, 1, 0, 0, 0)], None,
     "blocks of shape .* are not possible"),
    # normalize.c
    (K.LayerNorm, [X, v(I32, 3, value=1)], [Y], AXIS(-1), "scale or offset may not be int32"),
    (K.Softmax, [v(F32)], [v(F32)], AXIS(-1), "operand 0 has shape"),
    # pool.c
    (K.MaxPool, [quantized(I8, 1, 4, 4, 1)], [quantized(I8, 1, 2, 2, 1, scales=[1.0])], POOL(2, 2,
     2, 2),
     "same scale and zero point"),
    (K.MaxPool, [quantized(I8, 1, 4, 4, 1)], [quantized(I8, 1, 2, 2, 1, zeros=[3])], POOL(2, 2, 2,
     2),
     "same scale and zero point"),
    (K.MaxPool, [quantized(I8, 1, 4, 4, 1)], [v(I8, 1, 2, 2, 1)], POOL(2, 2, 2, 2),
     "need one scale each"),
    (K.MaxPool, [v(F32, 1, 4, 4, 1)], [v(I32, 1, 2, 2, 1)], POOL(2, 2, 2, 2),
     "the result is int32"),
    (K.MaxPool, [v(F32, 1, 4, 4, 1)], [v(F32, 1, 2, 2, 1)], POOL(2, 2, 2, 2, activation=9),
     "activation 9"),
    (K.MaxPool, [v(F32, 1, 4, 4, 1)], [v(F32, 1, 2, 2, 1)], POOL(2, 2, 2, 2, Padding.EXPLICIT, [0,
     0, 2, 0]),
     "as large as the window"),
    (K.MaxPool, [v(F32, 1, 4, 4, 1)], [v(F32, 1, 2, 2, 1)], POOL(2, 2, 2, 2, Padding.EXPLICIT, [0,
     0, 0, -1]),
     "a pad is negative"),
    (K.MaxPool, [v(F32, 1, 4, 4, 1)], [v(F32, 1, 2, 2, 1)], POOL(2, 2, 2, 2, Padding.EXPLICIT, [0,
     0]), "no four pads"),
    (K.MaxPool, [v(F32, 1, 4, 4, 1)], [v(F32, 1, 2, 2, 1)], POOL(0, 2, 2, 2), "a window or stride"),
    (K.AvgPool, [quantized(I8, 1, 4096, 4096, 1)], [quantized(I8, 1, 1, 1, 1)], POOL(4096, 4096, 1,
     1), "above 32 bits"),
    # reduce.c, resize.c, rows.c
    (K.Sum, [X, c(I32, [0])], [v(I32, 3)], t.ReduceOptions(), "the result is int32"),
    (K.Sum, [quantized(I8, 2, 3), c(I32, [0])], [v(I8, 3)], t.ReduceOptions(), "one scale each"),
    (K.ArgMax, [X, c(I32, 0)], [v(F32, 3)], None, "the result may not be float32"),
    (K.TopK, [X, c(I32, 1)], [v(F32, 2, 1), v(I64, 2, 1)], None, "result 1 may not be int64"),
    (K.TopK, [X, c(I32, 1)], [v(F32, 2, 1), v(I32, 2, 2)], None, "size 1 of a result is 1"),
    (K.Cumsum, [X, c(I32, 0)], [v(F32, 2, 4)], t.ReduceOptions(), "size 1 of a result is 3"),
    (K.ResizeNearest, [v(F32, 1, 2, 2, 1), c(I32, [4])], [v(F32, 1, 4, 4, 1)], t.ResizeOptions(),
     "a height and a width"),
    (K.ResizeNearest, [v(F32, 1, 2, 2, 1), c(I32, [4, 4])], [v(I32, 1, 4, 4, 1)],
     t.ResizeOptions(), "the result is int32"),
    (K.SetRows, [X, c(F32, [0.0]), v(F32, 1, 3)], [Y], t.RowsOptions(),
     "the indices may not be float32"),
    (K.SetRows, [X, c(I32, [0]), v(I32, 1, 3)], [Y], t.RowsOptions(), "operand 2 is int32"),
    (K.SetRows, [X, c(I32, [0]), v(F32, 1, 3)], [v(I32, 2, 3)], t.RowsOptions(),
     "the result is int32"),
    (K.SetRows, [v(F32), c(I32, [0]), v(F32, 1)], [v(F32)], t.RowsOptions(), "operand 0 has shape"),
    (K.SetRows, [X, c(I32, [[0]]), v(F32, 1, 1, 3)], [Y], t.RowsOptions(), "the indices has shape"),
    (K.SetRows, [X, c(I32, [0]), v(F32, 1, 4)], [Y], t.RowsOptions(), "elements of shape"),
    (K.SetRows, [X, c(I32, [0]), v(F32, 2, 3)], [Y], t.RowsOptions(), "elements of shape"),
    (K.SetRows, [X, c(I32, [0]), v(F32, 1, 3)], [v(F32, 2, 4)], t.RowsOptions(),
     "size 1 of a result is 3"),
    # open.c
    (K.Abs, [v(F32, 2, 3, scales=[1.0] * 2, zeros=[0] * 3)], [Y], E(),
     "other numbers of scales and of zero points"),
    (K.Abs, [v(F32, 2, 3, has_initial=1, initial=64)], [Y], E(),
     "its first value is not in the weights"),
    (K.Abs, [v(F32, 2, 3, bound=[2])], [Y], E(), "its bound has another rank"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "operands", "results", "options", "words"), CASES,
    ids=[f"{i}-{case[0].name}" for i, case in enumerate(CASES)],
)  # fmt: skip
def test_what_does_not_fit_is_refused(
    kind: OpKind,
    operands: Sequence[Tensor | None],
    results: Sequence[Tensor],
    options: Any,
    words: str,
) -> None:
    with pytest.raises(errors.LiteError, match=words):
        Interpreter(model_content=file_of(kind, operands, results, options))


# ---------------------------------------------------------------------------- values at run time

X_, AT = v(F32, 2, 3), v(I32, 1)
WHEN_RUN: list[tuple[OpKind, Sequence[Tensor | None], Sequence[Tensor], Any, Any, str]] = [
    (K.Gather, [X_, AT], [v(F32, 1, 3)], AXIS(0), [2], "index 2 is not below 2"),
    (K.Gather, [X_, AT], [v(F32, 1, 3)], AXIS(0), [-1], "index -1 is not below 2"),
    (K.GatherNd, [X_, AT], [v(F32, 3)], None, [2], "index 2 is not below 2"),
    (K.SetRows, [X_, AT, v(F32, 1, 3, value=1)], [v(F32, 2, 3)], t.RowsOptions(), [2],
     "index 2 is not below 2"),
    (K.SetRows, [X_, AT, v(F32, 1, 3, value=1)], [v(F32, 2, 3)], t.RowsOptions(), [-1],
     "index -1 is not below"),
    (K.SetRows, [X_, AT, v(F32, 1, 3, value=1)], [v(F32, -1, 3, bound=[4, 3])], t.RowsOptions(1),
     [4], "above its bound"),
    (K.ReverseSequence, [v(F32, 1, 3), AT], [v(F32, 1, 3)], AXIS(1, 0), [4],
     "length 4 is not 0 to 3"),
    (K.ReverseSequence, [v(F32, 1, 3), AT], [v(F32, 1, 3)], AXIS(1, 0), [-1],
     "length -1 is not 0 to 3"),
    (K.Tile, [v(F32, 3), AT], [v(F32, -1, bound=[6])], None, [3], "above its bound"),
    (K.Reshape, [X_, AT], [v(F32, -1, bound=[6])], None, [5], "elements"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "operands", "results", "options", "value", "words"), WHEN_RUN)
def test_values_that_do_not_fit_are_refused_when_it_runs(
    kind: OpKind,
    operands: Sequence[Tensor | None],
    results: Sequence[Tensor],
    options: Any,
    value: Any,
    words: str,
) -> None:
    interpreter = Interpreter(model_content=file_of(kind, operands, results, options))
    interpreter.set_tensor(1, np.array(value, "int32"))
    with pytest.raises(errors.LiteError, match=words):
        interpreter.invoke()


# ---------------------------------------------------------------------------- subgraphs


def branching() -> tuple[t.Model, bytes]:
    """The absolute of x or its negative."""
    tensors, weights, arena = laid_out([v(BOOL), *[v(F32, 2) for _ in range(4)]])
    ops = [
        t.Op(K.If, [0], [4], t.IfOptions(1, 2), "if"),
        t.Op(K.Abs, [1], [2], E(), "abs"),
        t.Op(K.Neg, [1], [3], E(), "neg"),
    ]
    graphs = [t.Subgraph(0, 1, [0, 1], [4]), t.Subgraph(1, 1, [], [2]), t.Subgraph(2, 1, [], [3])]
    return t.Model(tensors=tensors, ops=ops, subgraphs=graphs, arena_size=arena), weights


def looping() -> tuple[t.Model, bytes]:
    """Two variables, which a body makes positive and negative, without an end."""
    every = [*[v(F32, 2) for _ in range(8)], c(BOOL, True)]
    tensors, weights, arena = laid_out(every)
    ops = [
        t.Op(K.While, [0, 1], [6, 7], t.WhileOptions(1, 2), "while"),
        t.Op(K.Abs, [2], [4], E(), "abs"),
        t.Op(K.Neg, [3], [5], E(), "neg"),
    ]
    graphs = [
        t.Subgraph(0, 1, [0, 1], [6, 7]),
        t.Subgraph(1, 0, [], [8]),
        t.Subgraph(1, 2, [2, 3], [4, 5]),
    ]
    return t.Model(tensors=tensors, ops=ops, subgraphs=graphs, arena_size=arena), weights


def has(path: str, value: Any) -> Any:
    """A change of a model: "tensors.2.dtype", for example."""

    def change(model: t.Model) -> None:
        at: Any = model
        *steps, last = path.split(".")
        for step in steps:
            at = at[int(step)] if step.isdigit() else getattr(at, step)
        setattr(at, last, value)

    return change


SUBGRAPHS = [
    (branching, has("subgraphs.1.inputs", [1]), "a branch has inputs"),
    (branching, has("subgraphs.1.outputs", []), "subgraph 1 has 0 results, not 1"),
    (branching, has("tensors.4.dtype", I32), "a result of a subgraph is float32, not int32"),
    (branching, has("tensors.0.dtype", U8), "operand 0 may not be uint8"),
    (branching, has("tensors.4.shape", [1]), "size 0 of a result is 2"),
    (branching, has("tensors.2.shape", [1]), "size 0 of a result is 2"),
    (branching, has("tensors.3.shape", [1]), "size 0 of a result is 2"),
    (branching, lambda m: m.subgraphs.append(t.Subgraph(3, 0, [], [])), "subgraph 3 is not called"),
    (looping, has("subgraphs.2.outputs", [3, 5]), "loop variable 0 becomes another one"),
    (looping, has("subgraphs.2.outputs", [4]), "do not fit its 2 operands"),
    (looping, has("subgraphs.2.inputs", [2, 2]), "made twice"),
    (looping, has("subgraphs.1.outputs", [0]), "the condition may not be float32"),
    (looping, has("tensors.0.dtype", I32), "a loop variable is int32, not float32"),
    (looping, has("tensors.6.dtype", I32), "a result of a subgraph is float32, not int32"),
    (looping, has("tensors.2.shape", [1]), "size 0 of a result is 2"),
    (looping, has("tensors.6.shape", [1]), "size 0 of a result is 2"),
    (looping, has("tensors.4.shape", [1]), "size 0 of a result is 2"),
    (looping, has("ops.0.inputs", [0, -1]), "operand 1 is missing"),
    (branching, has("tensors.2.offset", 64), "tensors 2 and 1 into the same bytes"),
    (
        looping,
        lambda m: (
            [has(path, I32)(m) for path in ("tensors.0.dtype", "tensors.2.dtype")]
            + [has("ops.1.inputs", [3])(m)]
        ),
        "a loop variable is float32, not int32",
    ),
]


@pytest.mark.parametrize(("build", "change", "words"), SUBGRAPHS)
def test_subgraphs_that_do_not_fit_are_refused(build: Any, change: Any, words: str) -> None:
    model, weights = build()
    Interpreter(model_content=codec.encode(model, weights))  # as it is, it opens
    change(model)
    with pytest.raises(errors.LiteError, match=words):
        Interpreter(model_content=codec.encode(model, weights))


@pytest.mark.parametrize(("build", "condition"), [(branching, 0), (looping, 8)])
def test_conditions_are_single_values(build: Any, condition: int) -> None:
    model, weights = build()
    model.tensors[condition].shape, model.tensors[condition].size = [2], 2
    with pytest.raises(errors.InvalidArgumentError, match="a condition has shape"):
        Interpreter(model_content=codec.encode(model, weights)).invoke()


@pytest.mark.parametrize("place", ["branch", "condition", "body"])
def test_what_fails_in_a_subgraph_ends_the_invocation(place: str) -> None:
    """A number of rows that is known when it runs alone, and above its bound."""
    grown = v(BOOL, -1, bound=[2])
    if place == "branch":
        tensors, weights, arena = laid_out(
            [v(BOOL, value=True), v(BOOL, 1), v(I32, 1), grown, v(BOOL, -1, bound=[2])]
        )
        call, given, results = t.Op(K.If, [0], [4], t.IfOptions(1, 2)), [1, 2], [4]
        graphs = [t.Subgraph(1, 1, [], [3]), t.Subgraph(2, 0, [], [1])]
    else:
        tensors, weights, arena = laid_out(
            [v(BOOL), v(BOOL, 1), v(I32, 1), grown, v(BOOL), c(BOOL, True)]
        )
        call, given, results = t.Op(K.While, [0], [4], t.WhileOptions(1, 2)), [1, 2], [4]
        tensors.append(dataclasses.replace(tensors[0], offset=arena))
        arena += 64
        graphs = [t.Subgraph(1, 1, [], [5]), t.Subgraph(2, 0, [6], [6])]
        if place == "body":
            graphs = [t.Subgraph(1, 0, [], [5]), t.Subgraph(1, 1, [6], [6])]
        given = [0, 1, 2]
    model = t.Model(
        tensors=tensors, ops=[call, t.Op(K.Tile, [1, 2], [3], None, "tile")],
        subgraphs=[t.Subgraph(0, 1, given, results), *graphs], arena_size=arena,
    )  # fmt: skip
    interpreter = Interpreter(model_content=codec.encode(model, weights), work_limit=10_000)
    interpreter.set_tensor(2, np.array([3], "int32"))
    with pytest.raises(errors.ResourceExhaustedError, match=r"Tile \"tile\".*above its bound, 2"):
        interpreter.invoke()


def test_a_result_in_place_of_a_smaller_operand_is_refused() -> None:
    tensors, weights, arena = laid_out([v(F32, 1), v(F32, 16), v(F32, 1), v(F32, 16)])
    tensors[3].offset = tensors[2].offset
    ops = [t.Op(K.Abs, [0], [2], E(), "abs"), t.Op(K.Add, [2, 1], [3], E(), "add")]
    model = t.Model(
        tensors=tensors, ops=ops, subgraphs=[t.Subgraph(0, 2, [0, 1], [3])], arena_size=arena
    )
    with pytest.raises(
        errors.DataLossError, match="lies where operand 0 does and has another size"
    ):
        Interpreter(model_content=codec.encode(model, weights))


@pytest.mark.parametrize(("depth", "fits"), [(15, True), (16, False)])
def test_conditionals_are_nested_fifteen_deep(depth: int, fits: bool) -> None:
    """Each in the first branch of the one before; the second gives x."""
    tensors, weights, arena = laid_out([v(BOOL), v(F32, 2), *[v(F32, 2) for _ in range(depth + 1)]])
    calls = [t.Op(K.If, [0], [2 + i], t.IfOptions(2 * i + 1, 2 * i + 2)) for i in range(depth)]
    graphs = [t.Subgraph(0, 1, [0, 1], [2])]
    for i in range(1, depth + 1):
        graphs += [t.Subgraph(2 * i - 1, 1, [], [2 + i]), t.Subgraph(2 * i, 0, [], [1])]
    ops = [*calls, t.Op(K.Abs, [1], [2 + depth], E(), "abs")]
    for i in range(1, depth + 1):
        graphs[2 * i - 1].first_op, graphs[2 * i].first_op = i, i + 1
    model = t.Model(tensors=tensors, ops=ops, subgraphs=graphs, arena_size=arena)
    content = codec.encode(model, weights)
    if fits:
        Interpreter(model_content=content).invoke()
    else:
        with pytest.raises(errors.DataLossError, match="nested too deeply"):
            Interpreter(model_content=content)


def test_the_interface_of_c_refuses_by_itself_what_python_does() -> None:
    content = file_of(K.Abs, [X], [Y], E())
    interpreter, lib, error = Interpreter(model_content=content), library.load(), library.Error()
    report, size = ctypes.byref(error), ctypes.c_size_t()
    file = interpreter._file
    dims = (ctypes.c_int32 * 2)(2, 3)
    assert lib.wl_resize(interpreter._handle, 1, 2, dims, report) == 3
    assert error.text == b"tensor 1 is not an input"
    assert lib.wl_query(file.address + 1, file.size - 1, None, ctypes.byref(size), report) == 3
    assert error.text == b"the file must lie at a multiple of 64 bytes"
    other = _File(None, b"wildlife" + content[8:])
    assert lib.wl_verify_weights(other.address, other.size, report) == 15
    handle = ctypes.c_void_p()
    opening = (other.address, other.size, file.address, 1 << 20, None, ctypes.byref(handle), report)
    assert lib.wl_open(*opening) == 15 and error.text.startswith(b"this is no weftlite file")


@pytest.mark.parametrize("size", [(4, 3), (3, 4)])
def test_an_image_that_blocks_do_not_divide_after_a_resize_is_refused(
    size: tuple[int, int],
) -> None:
    x, y = v(F32, 1, -1, -1, 1, bound=[1, 4, 4, 1]), v(F32, 1, -1, -1, 4, bound=[1, 2, 2, 4])
    content = file_of(K.SpaceToDepth, [x], [y], t.BlockOptions(2))
    interpreter = Interpreter(model_content=content)
    interpreter.resize_tensor_input(0, [1, *size, 1])
    with pytest.raises(errors.InvalidArgumentError, match="blocks of 2 do not divide"):
        interpreter.invoke()
    interpreter.resize_tensor_input(0, [1, 2, 4, 1])
    interpreter.set_tensor(0, np.arange(8, dtype="f").reshape(1, 2, 4, 1))
    interpreter.invoke()
    assert interpreter.get_tensor(1).tolist() == [[[[0, 1, 4, 5], [2, 3, 6, 7]]]]


def test_an_invocation_plans_first_and_says_what_does_not_fit() -> None:
    x, y = v(F32, -1, 3, bound=[4, 3]), v(F32, -1, 3, bound=[4, 3])
    interpreter = Interpreter(
        model_content=file_of(K.Add, [x, y], [v(F32, -1, 3, bound=[4, 3])], E())
    )
    interpreter.resize_tensor_input(0, [3, 3])
    interpreter.resize_tensor_input(1, [2, 3])
    with pytest.raises(errors.InvalidArgumentError, match="do not broadcast"):
        interpreter.invoke()


@pytest.mark.parametrize("has_ops", [True, False])
def test_loops_meet_the_limit_of_work(has_ops: bool) -> None:
    model, weights = looping()
    if not has_ops:
        model.ops, model.subgraphs[2] = model.ops[:1], t.Subgraph(1, 0, [2, 3], [2, 3])
    interpreter = Interpreter(model_content=codec.encode(model, weights), work_limit=1000)
    with pytest.raises(errors.DeadlineExceededError, match="the limit of work, 1000, is met"):
        interpreter.invoke()
