"""The tables of a `.weftlite` file: each is a dataclass whose annotations are the schema.

`packages/lite/scripts/generate_schema.py` generates `lite.fbs` from them, for flatbuffers' own
compiler, and `runtime/schema.h` for the C reader. Fields are only appended, never removed, moved or
redefined. Absent fields are zero or empty.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Final

VERSION: Final = 1
"""The format version that this package writes."""

Byte = Annotated[int, "ubyte"]
Short = Annotated[int, "ushort"]
Int = Annotated[int, "int"]
UInt = Annotated[int, "uint"]
ULong = Annotated[int, "ulong"]
Float = Annotated[float, "float"]


@dataclass
class ConvOptions:
    """Options of convolutions. `pads` has top, bottom, left and right if padding is explicit."""

    stride_h: Int = 0
    stride_w: Int = 0
    dilation_h: Int = 0
    dilation_w: Int = 0
    padding: Byte = 0
    pads: list[Int] = field(default_factory=list)
    activation: Byte = 0
    kernel_h: Int = 0  # height and width of the filter, which packed weights do not show
    kernel_w: Int = 0
    channels: Int = 0  # results of a convolution, which packed weights have more of


@dataclass
class PoolOptions:
    """Options of pooling."""

    window_h: Int = 0
    window_w: Int = 0
    stride_h: Int = 0
    stride_w: Int = 0
    padding: Byte = 0
    pads: list[Int] = field(default_factory=list)
    activation: Byte = 0


@dataclass
class MatMulOptions:
    """Options of matrix products. `columns` is the width of packed weights."""

    transpose_a: Byte = 0
    transpose_b: Byte = 0
    activation: Byte = 0
    columns: Int = 0


@dataclass
class ElementwiseOptions:
    """Options of elementwise functions: `alpha` of LeakyRelu; `exact` selects Gelu by erf."""

    activation: Byte = 0
    alpha: Float = 0.0
    exact: Byte = 0


@dataclass
class AxisOptions:
    """Options of ops along an axis. `beta` scales inputs of Softmax; `batch_dims` is for Gather."""

    axis: Int = 0
    batch_dims: Int = 0
    beta: Float = 0.0
    epsilon: Float = 0.0


@dataclass
class ReduceOptions:
    """Options of reductions and cumulative sums."""

    keep_dims: Byte = 0
    exclusive: Byte = 0
    reverse: Byte = 0


@dataclass
class StridedSliceOptions:
    """Options of StridedSlice: masks with one bit for each entry of `begin`."""

    begin_mask: UInt = 0
    end_mask: UInt = 0
    ellipsis_mask: UInt = 0
    new_axis_mask: UInt = 0
    shrink_axis_mask: UInt = 0


@dataclass
class BlockOptions:
    """Options of SpaceToDepth and DepthToSpace."""

    block: Int = 0


@dataclass
class PadOptions:
    """Options of MirrorPad: a PadMode."""

    mode: Byte = 0


@dataclass
class ResizeOptions:
    """Options of resizing: the alignment of pixel centers."""

    align_corners: Byte = 0
    half_pixel_centers: Byte = 0


@dataclass
class CellOptions:
    """Options of recurrent cells. `forget_bias` is for LSTM; `cell_clip` is off if it is 0."""

    forget_bias: Float = 0.0
    cell_clip: Float = 0.0


@dataclass
class IfOptions:
    """Options of If: subgraphs without inputs, which read outer tensors."""

    then_subgraph: UInt = 0
    else_subgraph: UInt = 0


@dataclass
class WhileOptions:
    """Options of While. The inputs of the body are the variables, which the condition reads."""

    cond_subgraph: UInt = 0
    body_subgraph: UInt = 0


@dataclass
class RowsOptions:
    """Options of SetRows: `grows` if writing a row after the last one extends the result."""

    grows: Byte = 0


Options = (
    ConvOptions
    | PoolOptions
    | MatMulOptions
    | ElementwiseOptions
    | AxisOptions
    | ReduceOptions
    | StridedSliceOptions
    | BlockOptions
    | PadOptions
    | ResizeOptions
    | CellOptions
    | IfOptions
    | WhileOptions
    | RowsOptions
)


@dataclass
class Quantization:
    """Real values are scale * (stored - zero point).

    There is one scale, or one for each index of `axis`. There are as many zero points, or none if
    all are zero.
    """

    scales: list[Float] = field(default_factory=list)
    zero_points: list[Int] = field(default_factory=list)
    axis: Int = 0


@dataclass
class Tensor:
    """A tensor of the file. All subgraphs share one list of tensors.

    `shape` has -1 for sizes that are known when it runs; `bound` then has the largest. `size` is
    bytes, at the bound. `offset` counts from the start of the arena or of the weights, and is a
    multiple of 64. A variable begins with the weights at `initial` where `has_initial`, else with
    zeros.
    """

    name: str = ""
    dtype: Byte = 0
    storage: Byte = 0
    layout: Byte = 0
    shape: list[Int] = field(default_factory=list)
    bound: list[Int] = field(default_factory=list)
    offset: ULong = 0
    size: ULong = 0
    quantization: Quantization | None = None
    has_initial: Byte = 0
    initial: ULong = 0


@dataclass
class Op:
    """An operation: an OpKind, tensor indices (-1 for none), and the options of its op family."""

    kind: Short = 0
    inputs: list[Int] = field(default_factory=list)
    outputs: list[Int] = field(default_factory=list)
    options: Options | None = None
    name: str = ""


@dataclass
class Subgraph:
    """A sequence of ops. Subgraph 0 is the main graph."""

    first_op: UInt = 0
    op_count: UInt = 0
    inputs: list[Int] = field(default_factory=list)
    outputs: list[Int] = field(default_factory=list)


@dataclass
class Binding:
    """A tensor and its name in a signature."""

    name: str = ""
    tensor: UInt = 0


@dataclass
class Signature:
    """Inputs and outputs of the graph by name."""

    key: str = ""
    inputs: list[Binding] = field(default_factory=list)
    outputs: list[Binding] = field(default_factory=list)


@dataclass
class Metadata:
    """Additional data by name, for programs that read the file."""

    key: str = ""
    value: bytes = b""


@dataclass
class Model:
    """The file: `arena_size` is the end of the last tensor; `scratch_size` is for kernels.

    Ops are in the order in which they run: those of subgraph 0 first, then those of subgraph 1, and
    so on. Each subgraph has exactly one caller, which belongs to a subgraph with a lower index.
    """

    version: UInt = VERSION
    min_reader: UInt = 1
    description: str = ""
    tensors: list[Tensor] = field(default_factory=list)
    ops: list[Op] = field(default_factory=list)
    subgraphs: list[Subgraph] = field(default_factory=list)
    signatures: list[Signature] = field(default_factory=list)
    arena_size: ULong = 0
    scratch_size: ULong = 0
    metadata: list[Metadata] = field(default_factory=list)


TABLES: Final = (
    *Options.__args__,
    Quantization,
    Tensor,
    Op,
    Subgraph,
    Binding,
    Signature,
    Metadata,
)
"""All tables except the root, in schema order; those of the union come first, in its order."""
