"""Initializers of variables: classes whose objects create a tensor of a shape.

An initializer is called as `initializer(shape, dtype=None, partition_info=None)`. Those of random
values take a seed; see `weft_graph.ir.random_seed`.
"""

from __future__ import annotations

import inspect

__all__ = [
    "constant",
    "glorot_normal",
    "glorot_uniform",
    "he_normal",
    "he_uniform",
    "identity",
    "lecun_normal",
    "lecun_uniform",
    "ones",
    "orthogonal",
    "random_normal",
    "random_uniform",
    "truncated_normal",
    "uniform_unit_scaling",
    "variance_scaling",
    "zeros",
]

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft_graph.ir import builder
from weft_graph.ir.node import Output
from weft_graph.ops import random
from weft_tensor import dtypes, errors
from weft_tensor.arguments import check_number
from weft_tensor.dtypes import DType
from weft_tensor.nesting import format_value
from weft_tensor.promotion import nested_array
from weft_tensor.shape import as_dims


class Initializer:
    """Base class of initializers, functions that return initial values."""

    def __call__(self, shape: Any, dtype: Any = None, partition_info: Any = None) -> Output:
        """Return a tensor of a shape.

        Args:
          shape: integers, or a shape tensor if the initializer does not need static sizes.
          dtype: element type; defaults to that of the initializer.
          partition_info: position of the part of a partitioned variable.
        """
        raise NotImplementedError

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        raise NotImplementedError

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Initializer:
        """Return the initializer with the arguments that `get_config` returned."""
        return cls(**config)


def call_initializer(initializer: Any, shape: list[int], dtype: DType, partition_info: Any) -> Any:
    """Call `initializer` with the arguments it accepts; plain functions may ignore partitions."""
    if partition_info is None:
        return initializer(shape, dtype=dtype)
    if isinstance(initializer, Initializer) or _accepts_partition_info(initializer):
        return initializer(shape, dtype=dtype, partition_info=partition_info)
    return initializer(shape, dtype=dtype)


def _accepts_partition_info(function: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False
    kinds = {p.kind for p in parameters.values()}
    return "partition_info" in parameters or inspect.Parameter.VAR_KEYWORD in kinds


def _require_floating(dtype: Any) -> DType:
    element_type = dtypes.as_dtype(dtype)
    if not element_type.is_floating:
        raise errors.InvalidTypeError(f"requires a floating type, got {element_type.name}")
    return element_type


def _sizes(shape: Any) -> list[int]:
    dims = as_dims(shape)
    if dims is None or None in dims:
        raise errors.InvalidArgumentError(f"the shape must be fully known, got {shape}")
    return [size for size in dims if size is not None]


def _fill(shape: Any, value: Any, dtype: DType) -> Output:
    if isinstance(shape, Output):
        return builder.out("Fill", [shape, builder.convert_to_tensor(value, dtype)])
    sizes = _sizes(shape)
    if 0 < math.prod(sizes) <= _SMALL:
        return builder.constant(value, dtype, shape=sizes, name=_name(value))
    filler = builder.convert_to_tensor(value, dtype, name=f"{_name(value)}/Const")
    return builder.out("Fill", [random.shape_tensor(sizes), filler], None, _name(value))


_SMALL = 1000
"""Constants with more elements are filled at run time, to keep the graph small."""


def _name(value: Any) -> str:
    if isinstance(value, int | float | bool) and value in (0, 1):
        return "ones" if value else "zeros"
    return "Const"


class Zeros(Initializer):
    """Initializer with zeros (False, or empty strings).

    Args:
      dtype: element type; float32 by default.

    Examples:
      >>> wf.Session().run(wf.zeros_initializer()([2]))
      array([0., 0.], dtype=float32)
    """

    def __init__(self, dtype: Any = dtypes.float32) -> None:
        self.dtype = dtypes.as_dtype(dtype)

    def __call__(self, shape: Any, dtype: Any = None, partition_info: Any = None) -> Output:
        """Return zeros of a shape."""
        element_type = self.dtype if dtype is None else dtypes.as_dtype(dtype).base_dtype
        zero: Any = False if element_type.is_bool else b"" if element_type is dtypes.string else 0
        return _fill(shape, zero, element_type)

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        return {"dtype": self.dtype.name}


class Ones(Initializer):
    """Initializer with ones.

    Args:
      dtype: element type; float32 by default.

    Examples:
      >>> wf.Session().run(wf.ones_initializer()([2]))
      array([1., 1.], dtype=float32)
    """

    def __init__(self, dtype: Any = dtypes.float32) -> None:
        self.dtype = dtypes.as_dtype(dtype)

    def __call__(self, shape: Any, dtype: Any = None, partition_info: Any = None) -> Output:
        """Return ones of a shape."""
        element_type = self.dtype if dtype is None else dtypes.as_dtype(dtype).base_dtype
        return _fill(shape, True if element_type.is_bool else 1, element_type)

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        return {"dtype": self.dtype.name}


class Constant(Initializer):
    """Initializer with a constant value.

    Args:
      value: one value, or a list or array of values in row-major order; the last one is repeated to
        fill the shape.
      dtype: element type.
      verify_shape: require as many values as elements.
    Raises: InvalidTypeError: the value is not a number, list or array.

    Examples:
      >>> wf.Session().run(wf.constant_initializer(3.0)([2]))
      array([3., 3.], dtype=float32)
    """

    def __init__(
        self, value: Any = 0, dtype: Any = dtypes.float32, verify_shape: bool = False
    ) -> None:
        if not (np.isscalar(value) or isinstance(value, list | tuple | np.ndarray)):
            raise errors.InvalidTypeError(
                f"value must be a number, list or array, got {format_value(value)}"
            )
        self.value = value
        self.dtype = dtypes.as_dtype(dtype)
        self._verify_shape = verify_shape

    def __call__(
        self, shape: Any, dtype: Any = None, partition_info: Any = None, verify_shape: Any = None
    ) -> Output:
        """Return the value reshaped to a shape."""
        element_type = self.dtype if dtype is None else dtypes.as_dtype(dtype).base_dtype
        verify = self._verify_shape if verify_shape is None else verify_shape
        if np.isscalar(self.value) and not verify:
            return _fill(shape, self.value, element_type)
        value = nested_array(self.value)
        if element_type.is_floating and value.dtype.kind in "iuf":
            value = value.astype(element_type.numpy)
        return builder.constant(value, element_type, shape=_sizes(shape), verify_shape=verify)

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        return {"value": self.value, "dtype": self.dtype.name}


class RandomUniform(Initializer):
    """Initializer with uniform numbers in [minval, maxval).

    Args:
      minval, maxval: the range; maxval is 1 for floats by default.
      seed: an integer.
      dtype: element type; float32 by default.

    Examples:
      >>> wf.random_uniform_initializer(-0.1, 0.1, seed=1)([2, 3]).shape
      TensorShape([Dimension(2), Dimension(3)])
    """

    def __init__(
        self,
        minval: Any = 0,
        maxval: Any = None,
        seed: int | None = None,
        dtype: Any = dtypes.float32,
    ) -> None:
        self.minval = minval
        self.maxval = maxval
        self.seed = seed
        self.dtype = dtypes.as_dtype(dtype)

    def __call__(self, shape: Any, dtype: Any = None, partition_info: Any = None) -> Output:
        """Return random numbers of a shape."""
        element_type = self.dtype if dtype is None else dtypes.as_dtype(dtype).base_dtype
        return random.random_uniform(shape, self.minval, self.maxval, element_type, seed=self.seed)

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        return {
            "minval": self.minval,
            "maxval": self.maxval,
            "seed": self.seed,
            "dtype": self.dtype.name,
        }


class RandomNormal(Initializer):
    """Initializer with normal numbers.

    Args:
      mean, stddev: parameters of the distribution.
      seed: an integer.
      dtype: floating; float32 by default.

    Examples:
      >>> wf.random_normal_initializer(stddev=0.1, seed=1)([2, 3]).shape
      TensorShape([Dimension(2), Dimension(3)])
    """

    def __init__(
        self,
        mean: Any = 0.0,
        stddev: Any = 1.0,
        seed: int | None = None,
        dtype: Any = dtypes.float32,
    ) -> None:
        self.mean = mean
        self.stddev = stddev
        self.seed = seed
        self.dtype = _require_floating(dtype)

    def __call__(self, shape: Any, dtype: Any = None, partition_info: Any = None) -> Output:
        """Return random numbers of a shape."""
        element_type = self.dtype if dtype is None else dtypes.as_dtype(dtype).base_dtype
        return random.random_normal(shape, self.mean, self.stddev, element_type, seed=self.seed)

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        return {
            "mean": self.mean,
            "stddev": self.stddev,
            "seed": self.seed,
            "dtype": self.dtype.name,
        }


class TruncatedNormal(RandomNormal):
    """Initializer with normal numbers; those beyond two standard deviations are redrawn.

    Args:
      mean, stddev: parameters of the distribution before truncation.
      seed: an integer.
      dtype: floating; float32 by default.

    Examples:
      >>> wf.truncated_normal_initializer(stddev=0.1, seed=1)([2, 3]).shape
      TensorShape([Dimension(2), Dimension(3)])
    """

    def __call__(self, shape: Any, dtype: Any = None, partition_info: Any = None) -> Output:
        """Return random numbers of a shape."""
        element_type = self.dtype if dtype is None else dtypes.as_dtype(dtype).base_dtype
        return random.truncated_normal(shape, self.mean, self.stddev, element_type, seed=self.seed)


class UniformUnitScaling(Initializer):
    """Initializer with uniform numbers that preserve the scale of inputs in a product.

    They are within ±factor √(3 / input size), where the input size is the product of all sizes
    except the last.

    Args:
      factor: factor of the limits.
      seed: seed of this op.
      dtype: floating.

    Examples:
      >>> initializer = wf.uniform_unit_scaling_initializer(seed=1)
      >>> w = wf.get_variable("w", [3, 2], initializer=initializer)  # the limits are ±√(3 / 3)
      >>> with wf.Session() as session:
      ...     session.run(w.initializer)
      ...     bool(np.all(np.abs(session.run(w)) <= 1.0))
      True
    """

    def __init__(
        self, factor: float = 1.0, seed: int | None = None, dtype: Any = dtypes.float32
    ) -> None:
        self.factor = factor
        self.seed = seed
        self.dtype = _require_floating(dtype)

    def __call__(self, shape: Any, dtype: Any = None, partition_info: Any = None) -> Output:
        """Return random numbers of a shape."""
        element_type = self.dtype if dtype is None else dtypes.as_dtype(dtype).base_dtype
        full_sizes = _sizes(_full_shape(shape, partition_info))
        size = max(1.0, float(math.prod(full_sizes[:-1])))
        bound = math.sqrt(3 / size) * self.factor
        return random.random_uniform(shape, -bound, bound, element_type, seed=self.seed)

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        return {"factor": self.factor, "seed": self.seed, "dtype": self.dtype.name}


def _full_shape(shape: Any, partition_info: Any) -> Any:
    return shape if partition_info is None else partition_info.full_shape


class VarianceScaling(Initializer):
    """Initializer with random numbers of variance scale / n.

    Args:
      scale: positive.
      mode: "fan_in", "fan_out" or "fan_avg": n is the number of inputs of a unit, the number of its
        outputs, or the mean of both.
      distribution: "truncated_normal" (also "normal"), "untruncated_normal" or "uniform".
      seed, dtype: as in other initializers.
    Raises: InvalidArgumentError: an argument is invalid.

    Examples:
      >>> wf.variance_scaling_initializer(seed=1)([2, 3]).shape
      TensorShape([Dimension(2), Dimension(3)])
    """

    def __init__(
        self,
        scale: float = 1.0,
        mode: str = "fan_in",
        distribution: str = "truncated_normal",
        seed: int | None = None,
        dtype: Any = dtypes.float32,
    ) -> None:
        distribution = distribution.lower()
        if not check_number(scale, "scale") > 0:
            raise errors.InvalidArgumentError(f"scale must be positive, got {scale}")
        if mode not in ("fan_in", "fan_out", "fan_avg"):
            raise errors.InvalidArgumentError(
                f"mode must be fan_in, fan_out or fan_avg, got {mode!r}"
            )
        if distribution not in ("normal", "uniform", "truncated_normal", "untruncated_normal"):
            raise errors.InvalidArgumentError(
                "distribution must be truncated_normal, untruncated_normal or uniform, got "
                f"{distribution!r}"
            )
        self.scale = scale
        self.mode = mode
        self.distribution = distribution
        self.seed = seed
        self.dtype = _require_floating(dtype)

    def __call__(self, shape: Any, dtype: Any = None, partition_info: Any = None) -> Output:
        """Return random numbers of a shape."""
        element_type = self.dtype if dtype is None else dtypes.as_dtype(dtype).base_dtype
        fan_in, fan_out = compute_fans(_sizes(_full_shape(shape, partition_info)))
        fans = {"fan_in": fan_in, "fan_out": fan_out, "fan_avg": (fan_in + fan_out) / 2}
        variance = self.scale / max(1.0, fans[self.mode])
        if self.distribution == "uniform":
            bound = math.sqrt(3 * variance)
            return random.random_uniform(shape, -bound, bound, element_type, seed=self.seed)
        deviation = math.sqrt(variance)
        if self.distribution == "untruncated_normal":
            return random.random_normal(shape, 0.0, deviation, element_type, seed=self.seed)
        deviation /= _TRUNCATED_DEVIATION
        return random.truncated_normal(shape, 0.0, deviation, element_type, seed=self.seed)

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        return {
            "scale": self.scale,
            "mode": self.mode,
            "distribution": self.distribution,
            "seed": self.seed,
            "dtype": self.dtype.name,
        }


_TRUNCATED_DEVIATION = 0.87962566103423978
"""The standard deviation of a standard normal distribution truncated at ±2."""


def compute_fans(shape: Sequence[int]) -> tuple[float, float]:
    """Return the numbers of inputs and outputs of a unit from the shape of its weights.

    Kernels of convolutions have the shape (..., inputs, outputs); the leading sizes multiply both.
    """
    if not shape:
        return 1.0, 1.0
    if len(shape) == 1:
        return float(shape[0]), float(shape[0])
    field = float(math.prod(shape[:-2]))
    return field * shape[-2], field * shape[-1]


class _FixedVarianceScaling(VarianceScaling):
    """Base class of VarianceScaling initializers that are configured only by a seed and a dtype."""

    _scaling: tuple[float, str, str]

    def __init__(self, seed: int | None = None, dtype: Any = dtypes.float32) -> None:
        scale, mode, distribution = self._scaling
        super().__init__(scale, mode, distribution, seed, dtype)

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        return {"seed": self.seed, "dtype": self.dtype.name}


class GlorotUniform(_FixedVarianceScaling):
    """Initializer with uniform numbers of variance 2 / (inputs + outputs).

    Source: Glorot and Bengio, 2010.

    Args:
      seed: an integer.
      dtype: floating; float32 by default.

    Examples:
      >>> wf.glorot_uniform_initializer(seed=1)([2, 3]).shape
      TensorShape([Dimension(2), Dimension(3)])
    """

    _scaling = (1.0, "fan_avg", "uniform")


class GlorotNormal(_FixedVarianceScaling):
    """Initializer with truncated normal numbers of variance 2 / (inputs + outputs).

    Args:
      seed: an integer.
      dtype: floating; float32 by default.
    Source: Glorot and Bengio, 2010.

    Examples:
      >>> wf.glorot_normal_initializer(seed=1)([2, 3]).shape
      TensorShape([Dimension(2), Dimension(3)])
    """

    _scaling = (1.0, "fan_avg", "truncated_normal")


class HeUniform(_FixedVarianceScaling):
    """Initializer with uniform numbers of variance 2 / inputs. Source: He et al., 2015.

    Args:
      seed: an integer.
      dtype: floating; float32 by default.

    Examples:
      >>> wf.initializers.he_uniform(seed=1)([2, 3]).shape
      TensorShape([Dimension(2), Dimension(3)])
    """

    _scaling = (2.0, "fan_in", "uniform")


class HeNormal(_FixedVarianceScaling):
    """Initializer with truncated normal numbers of variance 2 / inputs. Source: He et al., 2015.

    Args:
      seed: an integer.
      dtype: floating; float32 by default.

    Examples:
      >>> wf.initializers.he_normal(seed=1)([2, 3]).shape
      TensorShape([Dimension(2), Dimension(3)])
    """

    _scaling = (2.0, "fan_in", "truncated_normal")


class LecunUniform(_FixedVarianceScaling):
    """Initializer with uniform numbers of variance 1 / inputs.

    Args:
      seed: random seed; by default that of the graph, or a new one in each session.
      dtype: floating; default element type of the values.
    Source: LeCun et al., 1998.

    Examples:
      >>> wf.initializers.lecun_uniform(seed=1)([2, 3]).shape
      TensorShape([Dimension(2), Dimension(3)])
    """

    _scaling = (1.0, "fan_in", "uniform")


class LecunNormal(_FixedVarianceScaling):
    """Initializer with truncated normal numbers of variance 1 / inputs.

    Args:
      seed: random seed; by default that of the graph, or a new one in each session.
      dtype: floating; default element type of the values.
    Source: LeCun et al., 1998.

    Examples:
      >>> wf.initializers.lecun_normal(seed=1)([2, 3]).shape
      TensorShape([Dimension(2), Dimension(3)])
    """

    _scaling = (1.0, "fan_in", "truncated_normal")


class Orthogonal(Initializer):
    """Initializer with an orthogonal matrix times `gain`.

    The rows or the columns, whichever are fewer, are orthonormal. Shapes of more than two axes are
    treated as matrices (product of all sizes except the last, last size). The matrix is the factor
    Q of a normal matrix with the signs of R's diagonal, which is uniformly distributed. Source:
    Saxe et
    al., 2013.

    Args:
      gain: factor of the matrix.
      seed: an integer.
      dtype: floating; float32 by default.

    Examples:
      >>> wf.orthogonal_initializer(seed=1)([3, 3]).shape
      TensorShape([Dimension(3), Dimension(3)])
    """

    def __init__(
        self, gain: float = 1.0, seed: int | None = None, dtype: Any = dtypes.float32
    ) -> None:
        self.gain = gain
        self.seed = seed
        self.dtype = _require_floating(dtype)

    def __call__(self, shape: Any, dtype: Any = None, partition_info: Any = None) -> Output:
        """Return a matrix of a shape; InvalidArgumentError for fewer than two axes."""
        element_type = self.dtype if dtype is None else dtypes.as_dtype(dtype).base_dtype
        sizes = _sizes(shape)
        if len(sizes) < 2:
            raise errors.InvalidArgumentError(
                f"the orthogonal initializer needs at least two axes, got shape {sizes}"
            )
        rows, columns = math.prod(sizes[:-1]), sizes[-1]
        square = [max(rows, columns), min(rows, columns)]
        normal = random.random_normal(square, dtype=element_type, seed=self.seed)
        q, r = builder.create("Qr", [normal], {"full_matrices": False}).outputs
        q = builder.out("Mul", [q, builder.out("Sign", [builder.out("MatrixDiagPart", [r])])])
        if rows < columns:
            q = builder.out("Transpose", [q, [1, 0]])
        gain = builder.convert_to_tensor(self.gain, element_type)
        return builder.out("Mul", [gain, builder.out("Reshape", [q, random.shape_tensor(sizes)])])

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        return {"gain": self.gain, "seed": self.seed, "dtype": self.dtype.name}


class Identity(Initializer):
    """Initializer with the identity matrix times `gain`; for matrices only.

    Args:
      gain: factor of the matrix.
      dtype: floating; float32 by default.

    Examples:
      >>> wf.Session().run(wf.initializers.identity()([2, 2]))
      array([[1., 0.],
             [0., 1.]], dtype=float32)
    """

    def __init__(self, gain: float = 1.0, dtype: Any = dtypes.float32) -> None:
        self.gain = gain
        self.dtype = _require_floating(dtype)

    def __call__(self, shape: Any, dtype: Any = None, partition_info: Any = None) -> Output:
        """Return the matrix of a shape; InvalidArgumentError unless it has two axes."""
        element_type = self.dtype if dtype is None else dtypes.as_dtype(dtype).base_dtype
        full_sizes = _sizes(_full_shape(shape, partition_info))
        if len(full_sizes) != 2:
            raise errors.InvalidArgumentError(
                f"the identity initializer needs two axes, got shape {full_sizes}"
            )
        matrix = np.eye(*full_sizes, dtype=np.float64) * self.gain
        if partition_info is not None:
            starts = partition_info.var_offset
            part = zip(starts, _sizes(shape), strict=True)
            matrix = matrix[tuple(slice(start, start + size) for start, size in part)]
        return builder.constant(matrix.astype(element_type.numpy), element_type)

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        return {"gain": self.gain, "dtype": self.dtype.name}


zeros_initializer = zeros = Zeros
ones_initializer = ones = Ones
constant_initializer = constant = Constant
random_uniform_initializer = random_uniform = RandomUniform
random_normal_initializer = random_normal = RandomNormal
truncated_normal_initializer = truncated_normal = TruncatedNormal
uniform_unit_scaling_initializer = uniform_unit_scaling = UniformUnitScaling
variance_scaling_initializer = variance_scaling = VarianceScaling
glorot_uniform_initializer = glorot_uniform = GlorotUniform
glorot_normal_initializer = glorot_normal = GlorotNormal
he_uniform_initializer = he_uniform = HeUniform
he_normal_initializer = he_normal = HeNormal
lecun_uniform_initializer = lecun_uniform = LecunUniform
lecun_normal_initializer = lecun_normal = LecunNormal
orthogonal_initializer = orthogonal = Orthogonal
identity_initializer = identity = Identity


def get(identifier: Any) -> Any:
    """Return the initializer for a name or {"class_name": …, "config": …}; others unchanged.

    Raises: InvalidArgumentError: no initializer has the name.
    """
    if identifier is None or callable(identifier):
        return identifier
    if isinstance(identifier, dict) and set(identifier) == {"class_name", "config"}:
        return type(get(identifier["class_name"])).from_config(identifier["config"])
    cls = globals().get(identifier) if isinstance(identifier, str) else None
    if not (isinstance(cls, type) and issubclass(cls, Initializer)):
        raise errors.InvalidArgumentError(
            f"an initializer must be a function of a shape, or the name of one such as "
            f"'glorot_uniform', got {identifier!r}"
        )
    return cls()
