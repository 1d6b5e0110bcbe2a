"""The enumerations of the format; numbers are only appended, never reused or redefined."""

from __future__ import annotations

from enum import IntEnum


class DataType(IntEnum):
    """Element types, with the same numbers as in graphs."""

    FLOAT32 = 1
    INT32 = 3
    UINT8 = 4
    INT16 = 5
    INT8 = 6
    INT64 = 9
    BOOL = 10
    FLOAT16 = 19


class Storage(IntEnum):
    """Storage class of a tensor.

    ARENA: in the arena, during its live range. CONSTANT: in the weights. VARIABLE: in the
    arena permanently; the value is kept between invocations.
    """

    ARENA = 0
    CONSTANT = 1
    VARIABLE = 2


class Layout(IntEnum):
    """Order of a tensor's elements in memory.

    PLAIN: in the order of the indices. PANELS: a matrix (taps, depth, columns) of a product, packed
    so that kernels read it in place: [columns / 16][taps][depth][16], with zeros as padding of the
    columns. PANELS4: the same for int8, [columns / 16][taps][depth / 4][16][4], with zeros as
    padding of the depth too.
    """

    PLAIN = 0
    PANELS = 1
    PANELS4 = 2


class Padding(IntEnum):
    """Padding of windows at borders: none, one result per stride, or explicit `pads`."""

    VALID = 0
    SAME = 1
    EXPLICIT = 2


class Activation(IntEnum):
    """Activation that a kernel applies to its results before it writes them."""

    NONE = 0
    RELU = 1
    RELU6 = 2
    RELU_N1_TO_1 = 3


class PadMode(IntEnum):
    """The border values that Pad adds."""

    CONSTANT = 0
    REFLECT = 1
    SYMMETRIC = 2


class OpKind(IntEnum):
    """Op kinds; an op with the same name as one of a graph has the same inputs and results."""

    # Products: filters and matrices of weights may be packed (Layout).
    Conv2D = 1  # x, filter (Kh, Kw, C, O), bias?, scales of x?
    DepthwiseConv2D = 2  # x, filter (Kh, Kw, C * multiplier), bias?, scales of x?
    FullyConnected = 3  # x (..., K), weights (K, N), bias?
    BatchMatMul = 4  # a, b
    Conv2DTranspose = 5  # sizes, filter (Kh, Kw, O, C), x, bias?

    # Windows of a convolution as rows, for products with filters that change
    Patches = 6  # x (N, H, W, C); the result is (N, Oh, Ow, Kh * Kw * C)
    PatchesGrad = 7  # sizes, patches (N, Oh, Ow, Kh * Kw * C); the result is (N, H, W, C)

    # Windows
    MaxPool = 10
    AvgPool = 11
    MaxPoolGrad = 12  # x, y, gradient of y: all of it belongs to the first largest element
    AvgPoolGrad = 13  # sizes, gradient

    # One operand
    Abs = 20
    Neg = 21
    Sign = 22
    Square = 23
    Sqrt = 24
    Rsqrt = 25
    Exp = 26
    Expm1 = 27
    Log = 28
    Log1p = 29
    Sin = 30
    Cos = 31
    Tan = 32
    Tanh = 33
    Sigmoid = 34
    Relu = 35
    Relu6 = 36
    LeakyRelu = 37
    Elu = 38
    Selu = 39
    Softplus = 40
    Softsign = 41
    Gelu = 42
    Erf = 43
    Floor = 44
    Ceil = 45
    Rint = 46
    Reciprocal = 47
    LogicalNot = 48
    HardSwish = 49
    Erfc = 50
    Atan = 51
    Asin = 52
    Acos = 53
    Sinh = 54
    Cosh = 55
    Asinh = 56
    Acosh = 57
    Atanh = 58
    IsNan = 59
    IsInf = 60
    IsFinite = 61
    Silu = 62
    Lookup = 63  # x, table of 256 results: table[x + 128] for int8, table[x] for uint8

    # Two operands, which broadcast
    Add = 70
    Sub = 71
    Mul = 72
    Div = 73
    FloorDiv = 74
    FloorMod = 75
    Maximum = 76
    Minimum = 77
    Pow = 78
    SquaredDifference = 79
    Atan2 = 80
    Less = 81
    LessEqual = 82
    Greater = 83
    GreaterEqual = 84
    Equal = 85
    NotEqual = 86
    LogicalAnd = 87
    LogicalOr = 88
    TruncateMod = 89
    TruncateDiv = 90

    # Three operands
    Select = 95  # condition, x, y; all broadcast

    # Normalizing
    Softmax = 100
    LogSoftmax = 101
    LayerNorm = 102  # x, scale, offset; over the last axis
    L2Normalize = 103

    # Reductions: x, axes
    Sum = 110
    Mean = 111
    Max = 112
    Min = 113
    Prod = 114
    All = 115
    Any = 116
    ArgMax = 117  # x, axis
    ArgMin = 118
    TopK = 119  # x, k
    Cumsum = 120  # x, axis

    # Moving elements
    Reshape = 130  # x, shape
    Transpose = 131  # x, permutation
    Concat = 132  # values
    Split = 133  # x
    Slice = 134  # x, begin, size
    StridedSlice = 135  # x, begin, end, strides
    Pad = 136  # x, paddings, value?
    Gather = 137  # x, indices
    GatherNd = 138  # x, indices
    Tile = 139  # x, multiples
    Pack = 140  # values
    Unpack = 141  # x
    SpaceToDepth = 142
    DepthToSpace = 143
    SpaceToBatchNd = 144  # x, block shape, paddings
    BatchToSpaceNd = 145  # x, block shape, crops
    Reverse = 146  # x, axes
    BroadcastTo = 147  # x, shape
    OneHot = 148  # indices, depth, on, off
    Fill = 149  # shape, value
    Range = 150  # start, limit, delta
    Shape = 151  # x
    ResizeBilinear = 152  # x, size
    ResizeNearest = 153  # x, size
    MirrorPad = 154  # x, paddings
    ExpandDims = 155  # x, axis
    Squeeze = 156  # x
    SetRows = 157  # x, indices, rows: x with other elements along its first axis
    ReverseSequence = 158  # x, lengths: one for each index of the axis `batch_dims`

    # Types
    Cast = 170
    Quantize = 171  # float to a quantized type, or from one quantized type to another
    Dequantize = 172
    DynamicQuantize = 173  # x -> int8, scales: one for each index of the first axis

    # Recurrent cells. Gates are in the order input, new, forget, output.
    LstmCell = 180  # x, c, h, weights (X + H, 4 H), bias -> c, h
    GruCell = 181  # x, h, gate weights (X + H, 2 H), gate bias, weights (X + H, H), bias -> h

    # State and control flow
    Copy = 190  # x
    Assign = 191  # variable, value: the new value of the variable
    If = 192  # condition -> the results of the branch
    While = 193  # initial values -> last values
