"""Selection of the routine for a product or a convolution, with the measured limits.

Routines are selected twice. Lowering selects those whose operands are packed or transformed,
equally for all processors. Then the pass `select_routines` selects generated code or BLAS for the
processor. For each choice a function here returns the reason against a routine, or "".
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, NamedTuple

from weft_compiler.blas import addresses
from weft_compiler.layouts import LINE, PANEL, POINTS, Windows, panel_columns, tile_size
from weft_compiler.routines.bfloat16 import ConvFilterPairs, ConvPairs, MatmulPairs
from weft_compiler.routines.conv2d import Conv, ConvFilter
from weft_compiler.routines.gemm import Gemm, Matmul, MatmulPacked, Product, SmallMatmul
from weft_compiler.routines.winograd import Winograd, WinogradGradient, geometry_error
from weft_tensor import dtypes
from weft_tensor.dtypes import DType

# ---------------------------------------------------------------------------- cost tables


class ProductCosts(NamedTuple):
    """Limits within which generated code computes a product faster than BLAS.

    Attributes:
      processor: a description of the processors; the first row that matches is used.
      vector_bytes: the minimal size of a vector register.
      l2_bytes: the minimal size of the L2 cache.
      is_faster: False if BLAS is always used.
      max_operand_bytes: pairs of a number of rows of the product and the largest second operand for
        products of up to so many rows. With more rows it must fit into the L2 cache.
    """

    processor: str
    vector_bytes: int
    l2_bytes: int
    is_faster: bool
    max_operand_bytes: tuple[tuple[int, int], ...] = ()


_ANY_BYTES: Final = 1 << 62
PRODUCT_COSTS: Final = (
    ProductCosts(
        "AVX-512, L2 of 2 MB (Sapphire Rapids)",
        vector_bytes=64,
        l2_bytes=2 << 20,
        is_faster=True,
        max_operand_bytes=((8, _ANY_BYTES), (56, 16 << 20), (512, 16 << 20)),
    ),
    ProductCosts(
        "AVX-512 (Zen 4)",
        vector_bytes=64,
        l2_bytes=0,
        is_faster=True,
        max_operand_bytes=((8, _ANY_BYTES), (56, 4 << 20)),
    ),
    ProductCosts("others, not measured", vector_bytes=0, l2_bytes=0, is_faster=False),
)
"""Limits of generated products, measured against OpenBLAS in `benchmarks/RESULTS.md`."""

_SMALL_WORK: Final = 10**6
"""Maximum number of multiplications for which OpenBLAS for AVX-512 does not pack operands."""
_MIN_FILLED: Final = 2 / 3
"""Minimum fraction of the lanes that a narrow result must fill."""


class BatchCosts(NamedTuple):
    """Limits within which code for one size is faster than BLAS and than packed operands.

    Attributes:
      min_products: the minimal number of products of a batch.
      min_columns: the minimal number of columns of a product.
      max_work: the maximal number of multiplications of a product.
      max_work_transposed: the same if the second operand is transposed, where BLAS is slower.
    """

    min_products: int
    min_columns: int
    max_work: int
    max_work_transposed: int


BATCH_COSTS: Final = BatchCosts(
    min_products=4, min_columns=4, max_work=32**3, max_work_transposed=64**3
)


class WinogradCosts(NamedTuple):
    """Limits within which Winograd's algorithm is faster than direct convolution.

    Attributes:
      min_channels: the minimal number of channels, and of filters, for which transforms of tiles
        cost little.
      min_tiles: by taps, the minimum number of tiles for which the saved multiplications outweigh
        transforming filters and reading the larger result.
      min_saved: the minimal ratio of direct multiplications to those of the algorithm.
    """

    min_channels: int
    min_tiles: dict[int, int]
    min_saved: float


WINOGRAD_COSTS: Final = WinogradCosts(min_channels=32, min_tiles={3: 14, 5: 56}, min_saved=1.5)

_MIN_PACKED_WINDOWS: Final = 512
"""Minimal number of windows for which variable filters are packed; with fewer, reading them in
place is faster.
"""
_MAX_WASTE: Final = 4
"""Maximum ratio of all multiplications to useful ones in an input gradient by phases."""


# ---------------------------------------------------------------------------- products


@dataclass(frozen=True, slots=True)
class ProductShape:
    """A product or a batch of products, for which a routine is selected.

    Attributes:
      num_products: the number of products of the batch.
      m, n, k: the sizes of each.
      dtype: element type of the operands.
      transpose_a, transpose_b: True if an operand is transposed.
      has_weights: True if the second operand is one matrix that is known at compile time.
    """

    num_products: int
    m: int
    n: int
    k: int
    dtype: DType
    transpose_a: bool
    transpose_b: bool
    has_weights: bool


def select_product(
    shape: ProductShape,
) -> type[MatmulPairs | MatmulPacked | SmallMatmul | Gemm | Matmul]:
    """Return the routine for a product whose operands may be packed."""
    if not pairs_reason(shape):
        return MatmulPairs
    if not packed_reason(shape):
        return MatmulPacked
    return select_unpacked(shape.k) if small_reason(shape) else SmallMatmul


def select_unpacked(k: int) -> type[Gemm | Matmul]:
    """Return the routine for a product whose operands are not packed.

    NumPy computes the product of a column and a row without BLAS, one element at a time.
    """
    return Gemm if k > 1 and addresses() else Matmul


def pairs_reason(shape: ProductShape) -> str:
    """Return the reason against `matmul_pairs`, or ""."""
    if shape.dtype is not dtypes.bfloat16:
        return "its operands are not bfloat16"
    return "" if small_reason(shape) else "small products are faster in float32"


def packed_reason(shape: ProductShape) -> str:
    """Return the reason against `matmul_packed`, or ""."""
    if not shape.has_weights:
        return "its second operand is not a single constant matrix"
    if shape.transpose_a:
        return "its first operand is transposed"
    return "" if shape.n > 1 else "a single column would leave vector lanes unused"


def small_reason(shape: ProductShape) -> str:
    """Return the reason against `small_matmul`, or ""."""
    costs = BATCH_COSTS
    if shape.num_products < costs.min_products:
        return f"its batch has fewer than {costs.min_products} products"
    maximum = costs.max_work_transposed if shape.transpose_b else costs.max_work
    if shape.m * shape.n * shape.k > maximum:
        return f"it has more than {maximum} multiplications"
    return "" if shape.n >= costs.min_columns else f"it has fewer than {costs.min_columns} columns"


def lowering_reasons(product: Product, is_known: bool) -> tuple[tuple[str, str], ...]:
    """Return the routines that lowering rejected for a product, with the reasons.

    Args:
      is_known: True if the second operand is a constant.
    """
    shape = ProductShape(
        num_products=BATCH_COSTS.min_products,
        m=product.m,
        n=product.n,
        k=product.k,
        dtype=product.a.dtype,
        transpose_a=product.a_column != 1,
        transpose_b=product.b_column != 1,
        has_weights=is_known,
    )
    small_reason_for_one = small_reason(replace(shape, num_products=1))
    several_matrices = "its weights are several matrices"
    return (
        (MatmulPacked.routine, packed_reason(shape) or several_matrices),
        (SmallMatmul.routine, small_reason(shape) or small_reason_for_one),
    )


def product_costs(vector_bytes: int, l2_bytes: int) -> ProductCosts:
    """Return the row of `PRODUCT_COSTS` that applies to a processor."""
    return next(
        row
        for row in PRODUCT_COSTS
        if vector_bytes >= row.vector_bytes and l2_bytes >= row.l2_bytes
    )


def generated_reason(product: Product, size: int, vector_bytes: int, l2_bytes: int) -> str:
    """Return the reason to use `gemm` for a product instead of `matmul`, or "".

    Args:
      size: bytes of an element.
      vector_bytes: size of a vector register of the processor.
      l2_bytes: size of its L2 cache, which distinguishes processors.
    """
    costs, m, n, k = product_costs(vector_bytes, l2_bytes), product.m, product.n, product.k
    if not costs.is_faster:
        return "BLAS is faster on this processor, or was not measured"
    if not m or not n or not k:
        return "its sums have no terms"
    lanes = LINE // size
    transposed_a, transposed_b = product.a_column != 1, product.b_column != 1
    if n <= 2 * lanes and (transposed_a or n < _MIN_FILLED * -(-n // lanes) * lanes):
        return f"its {n} columns would leave vector lanes unused"
    if m * n * k <= _SMALL_WORK:
        is_faster = transposed_b and m >= 2 * lanes
        return (
            ""
            if is_faster
            else f"BLAS does not pack operands of up to {_SMALL_WORK} multiplications"
        )
    if m == 1:
        return "its second operand is transposed and it has only one row" if transposed_b else ""
    maximum = next((maximum for rows, maximum in costs.max_operand_bytes if m <= rows), l2_bytes)
    if n * k * size <= maximum:
        return ""
    return f"its second operand is too large to be read for {m} rows"


_DEFAULT_L2_BYTES: Final = 1 << 20
"""Size of the L2 cache that is assumed if it is unknown; that of Zen 4."""
_CACHE_FOLDER: Final = Path("/sys/devices/system/cpu/cpu0/cache")


@functools.cache
def l2_cache_bytes() -> int:
    """Return the size of this machine's L2 cache in bytes, as Linux reports it."""
    for index in _CACHE_FOLDER.glob("index*"):
        try:
            level, kind, size = (
                (index / name).read_text().strip() for name in ("level", "type", "size")
            )
        except OSError:
            continue
        if level == "2" and kind != "Instruction" and size.endswith("K") and size[:-1].isdigit():
            return int(size[:-1]) << 10
    return _DEFAULT_L2_BYTES  # systems without this information


# ---------------------------------------------------------------------------- convolutions


def should_pack_filters(num_windows: int, is_known: bool, dtype: DType) -> bool:
    """Return True if the filters of a convolution should be packed.

    Constant or bfloat16 ones always are.
    """
    return is_known or num_windows >= _MIN_PACKED_WINDOWS or dtype is dtypes.bfloat16


def select_convolution(
    windows: Windows, dtype: DType, *, is_packed: bool, is_direct: bool
) -> type[ConvPairs | Winograd | Conv]:
    """Return the routine for a convolution.

    Args:
      windows: the windows of all images.
      dtype: element type of the operands.
      is_packed: True if the filters are packed.
      is_direct: True for ahead-of-time code, which stores no transformed filters.
    """
    if dtype is dtypes.bfloat16:
        return ConvPairs
    is_winograd = is_packed and not is_direct and not winograd_reason(windows, dtype.size)
    return Winograd if is_winograd else Conv


def select_filter_gradient(
    windows: Windows, dtype: DType, *, is_direct: bool
) -> type[ConvFilterPairs | WinogradGradient | ConvFilter]:
    """Return the routine for the filter gradient of a convolution.

    Args:
      windows, dtype, is_direct: as for `select_convolution`.
    """
    if dtype is dtypes.bfloat16:
        return ConvFilterPairs
    is_winograd = not is_direct and not winograd_reason(windows, dtype.size)
    return WinogradGradient if is_winograd else ConvFilter


def winograd_reason(windows: Windows, size: int) -> str:
    """Return the reason against Winograd's algorithm for a convolution, or "".

    Args:
      windows: the windows of all images.
      size: bytes of an element.
    """
    reason = winograd_filter_reason(windows, size)
    if reason:
        return reason
    costs, taps = WINOGRAD_COSTS, windows.taps_y
    tiles = windows.images * num_tiles(windows.rows, windows.width, taps)
    if tiles < costs.min_tiles[taps]:
        return f"it has {tiles} tiles, fewer than {costs.min_tiles[taps]}"
    saved = taps**2 * windows.num_windows / (POINTS**2 * tiles)
    return "" if saved >= costs.min_saved else "its tiles would be only partly filled"


def winograd_filter_reason(windows: Windows, size: int) -> str:
    """Return the reason against Winograd's algorithm that follows from the filters alone, or ""."""
    min_channels = WINOGRAD_COSTS.min_channels
    reason = geometry_error(windows, size)
    if not reason and min(windows.channels, windows.depth) < min_channels:
        reason = f"it has fewer than {min_channels} channels or filters"
    return reason


def num_tiles(rows: int, width: int, taps: int) -> int:
    """Return the number of Winograd tiles of an image."""
    return -(-rows // tile_size(taps)) * -(-width // tile_size(taps))


def prefers_col2im(num_multiplied: int, num_useful: int, channels: int, dtype: DType) -> bool:
    """Return True if an input gradient should be one product with scattered terms (col2im).

    Otherwise it is computed as a convolution for each phase of the stride, which also multiplies
    padding.

    Args:
      num_multiplied: the number of pairs of a position and a tap that the phases multiply.
      num_useful: the number of pairs of a window and a tap.
      channels: the number of input channels, which are the columns of the convolutions.
    """
    lanes = (PANEL if dtype is dtypes.bfloat16 else panel_columns(dtype)) // 2
    used = num_multiplied * -(-channels // lanes) * lanes
    return used > _MAX_WASTE * num_useful * channels
