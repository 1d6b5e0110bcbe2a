"""Base class of all distributions."""

from __future__ import annotations

__all__ = [
    "FULLY_REPARAMETERIZED",
    "NOT_REPARAMETERIZED",
    "Distribution",
    "ReparameterizationType",
]

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import reduce
from typing import Any

import numpy as np

from weft_graph.ir.builder import convert_to_tensor, out
from weft_graph.ir.default_graph import control_dependencies, name_scope
from weft_graph.ir.node import Node, Output
from weft_graph.ops import checks, control
from weft_graph.ops.random import shape_tensor
from weft_graph.ops.shape_rules import constant_array
from weft_tensor import dtypes, errors
from weft_tensor.shape import Dims, TensorShape, broadcast_dims


class ReparameterizationType:
    """Kind of reparameterization: whether gradients flow from samples to the parameters.

    Args:
      rep_type: a name.

    Examples:
      >>> wf.distributions.Normal(0.0, 1.0).reparameterization_type
      <Reparameterization Type: FULLY_REPARAMETERIZED>
    """

    def __init__(self, rep_type: str) -> None:
        self._rep_type = rep_type

    def __repr__(self) -> str:
        return f"<Reparameterization Type: {self._rep_type}>"


FULLY_REPARAMETERIZED = ReparameterizationType("FULLY_REPARAMETERIZED")
"""Gradients flow from samples to all parameters."""
NOT_REPARAMETERIZED = ReparameterizationType("NOT_REPARAMETERIZED")
"""Gradients do not flow from samples to all parameters."""

_ALTERNATIVES: Mapping[str, tuple[str, Callable[[Output], Output]]] = {
    "prob": ("log_prob", lambda x: out("Exp", [x])),
    "log_prob": ("prob", lambda x: out("Log", [x])),
    "cdf": ("log_cdf", lambda x: out("Exp", [x])),
    "log_cdf": ("cdf", lambda x: out("Log", [x])),
    "survival_function": ("cdf", lambda x: 1.0 - x),
    "log_survival_function": ("cdf", lambda x: out("Log1p", [-x])),
    "variance": ("stddev", lambda x: out("Square", [x])),
    "stddev": ("variance", lambda x: out("Sqrt", [x])),
}
"""Fallbacks of missing methods: another method, and a function to apply to its result."""


class Distribution:
    """Base class: a batch of distributions of the same kind.

    One sample of one distribution is an event. `sample(shape)` has shape `shape + batch_shape +
    event_shape`, and `log_prob(value)` of such a value has shape `shape + batch_shape`.

    Subclasses implement some of `_sample_n(n, seed)`, which adds a first axis of `n` samples,
    `_log_prob`, `_prob`, `_cdf`, `_log_cdf`, `_quantile`, `_entropy`, `_mean`, `_variance`,
    `_stddev`, `_covariance`, `_mode`, and `_batch_shape`, `_batch_shape_tensor`, `_event_shape`,
    `_event_shape_tensor` if they cannot be derived from the parameters.

    Args:
      dtype: element type of draws.
      reparameterization_type: True if gradients flow from samples to the parameters.
      validate_args: check the parameters when they are used.
      allow_nan_stats: return NaN for undefined statistics; else computing them is an error at run
        time.
      parameters: the arguments of the constructor by name, for `copy`.
      graph_parents: tensors that the distribution is computed from.
      name: name of the name scope.

    Examples:
      >>> class Point(wf.distributions.Distribution):
      ...     def _log_prob(self, value):
      ...         return wf.log(wf.cast(wf.equal(value, 1.0), wf.float32))
      >>> fixed = wf.distributions.NOT_REPARAMETERIZED
      >>> point = Point(wf.float32, fixed, validate_args=False, allow_nan_stats=True)
      >>> wf.Session().run(point.prob([0.0, 1.0]))
      array([0., 1.], dtype=float32)
    """

    _event_rank = 0
    _sample_parameters: Sequence[str] = ()
    """Arguments of the constructor with the shape of a sample, if all others have defaults."""

    def __init__(
        self,
        dtype: Any,
        reparameterization_type: ReparameterizationType,
        validate_args: bool,
        allow_nan_stats: bool,
        parameters: Mapping[str, Any] | None = None,
        graph_parents: Sequence[Output] | None = None,
        name: str | None = None,
    ) -> None:
        self._dtype = dtypes.as_dtype(dtype)
        self._reparameterization_type = reparameterization_type
        self._validate_args = validate_args
        self._allow_nan_stats = allow_nan_stats
        self._parameters = {
            key: value
            for key, value in (parameters or {}).items()
            if key != "self" and not key.startswith("_")
        }
        self._graph_parents = list(graph_parents or ())
        self._name = name or type(self).__name__

    def __repr__(self) -> str:
        return (
            f"<tf.distributions.{type(self).__name__} {self._name!r} "
            f"batch_shape={self.batch_shape} event_shape={self.event_shape} "
            f"dtype={self._dtype.name}>"
        )

    # --------------------------------------------------------------------- properties

    @property
    def name(self) -> str:
        """The name of the name scope."""
        return self._name

    @property
    def dtype(self) -> dtypes.DType:
        """The element type of draws."""
        return self._dtype

    @property
    def parameters(self) -> dict[str, Any]:
        """The arguments of the constructor by name."""
        return dict(self._parameters)

    @property
    def reparameterization_type(self) -> ReparameterizationType:
        """Kind of reparameterization: whether gradients flow from samples to the parameters."""
        return self._reparameterization_type

    @property
    def allow_nan_stats(self) -> bool:
        """True if statistics may be NaN."""
        return self._allow_nan_stats

    @property
    def validate_args(self) -> bool:
        """True if the parameters are checked."""
        return self._validate_args

    def copy(self, **override_parameters_kwargs: Any) -> Distribution:
        """Return a distribution of the same kind with some constructor arguments replaced."""
        return type(self)(**(self._parameters | override_parameters_kwargs))

    # ------------------------------------------------------------------------- shapes

    @classmethod
    def param_shapes(
        cls, sample_shape: Any, name: str = "DistributionParamShapes"
    ) -> dict[str, Output]:
        """Return the parameter shapes, by name, for which `sample()` has the shape `sample_shape`.

        Args:
          sample_shape: integers, or an int32 vector.
        Raises: UnimplementedError: they cannot be derived from the shape alone.
        """
        with name_scope(name):
            return cls._param_shapes(shape_tensor(sample_shape))

    @classmethod
    def param_static_shapes(cls, sample_shape: Any) -> dict[str, TensorShape]:
        """Return the static values of `param_shapes`.

        Args:
          sample_shape: integers, or a constant.
        Raises:
          InvalidArgumentError: the shape is not statically known.
          UnimplementedError: the shapes cannot be derived from it alone.
        """
        sample_sizes = (
            sample_shape.as_list() if isinstance(sample_shape, TensorShape) else sample_shape
        )
        static_shapes = {
            key: constant_array(tensor) for key, tensor in cls.param_shapes(sample_sizes).items()
        }
        if any(static is None for static in static_shapes.values()):
            raise errors.InvalidArgumentError(f"sample_shape must be known, got {sample_shape!r}")
        return {
            key: TensorShape(static.tolist())
            for key, static in static_shapes.items()
            if static is not None
        }

    @classmethod
    def _param_shapes(cls, sample_shape: Output) -> dict[str, Output]:
        if not cls._sample_parameters:
            raise errors.UnimplementedError(f"{cls.__name__} does not implement _param_shapes")
        return dict.fromkeys(cls._sample_parameters, sample_shape)

    def _parameters_and_ranks(self) -> list[tuple[Output, int]]:
        """Return the parameters, each with its number of trailing non-batch axes."""
        return [(value, self._event_rank) for value in self._graph_parents]

    def _batch_shape(self) -> TensorShape:
        parameter_dims = [
            None if value.dims is None else value.dims[: len(value.dims) - rank]
            for value, rank in self._parameters_and_ranks()
        ]
        lead: Dims = ()
        return TensorShape(reduce(broadcast_dims, parameter_dims, lead))

    def _batch_shape_tensor(self) -> Output:
        shapes = [
            out("Shape", [value])[: -rank if rank else None]
            for value, rank in self._parameters_and_ranks()
        ]
        return reduce(lambda a, b: out("BroadcastArgs", [a, b]), shapes)

    def _event_shape(self) -> TensorShape:
        if not self._event_rank:
            return TensorShape([])
        value = next(value for value, rank in self._parameters_and_ranks() if rank)
        return TensorShape([None] if value.dims is None else value.dims[-self._event_rank :])

    def _event_shape_tensor(self) -> Output:
        if not self._event_rank:
            return convert_to_tensor(np.zeros(0, np.int32))
        value = next(value for value, rank in self._parameters_and_ranks() if rank)
        return out("Shape", [value])[-self._event_rank :]

    @property
    def batch_shape(self) -> TensorShape:
        """The static shape of the batch."""
        return TensorShape(self._batch_shape())

    @property
    def event_shape(self) -> TensorShape:
        """The static shape of an event."""
        return TensorShape(self._event_shape())

    def batch_shape_tensor(self, name: str = "batch_shape_tensor") -> Output:
        """Return the shape of the batch, an int32 vector."""
        return self._shape_tensor(self.batch_shape, self._batch_shape_tensor, name)

    def event_shape_tensor(self, name: str = "event_shape_tensor") -> Output:
        """Return the shape of an event, an int32 vector."""
        return self._shape_tensor(self.event_shape, self._event_shape_tensor, name)

    def _shape_tensor(self, static: TensorShape, compute: Callable[[], Any], name: str) -> Output:
        with self._scope(name):
            if static.is_fully_defined():
                return convert_to_tensor(np.array(static.as_list(), np.int32))
            return convert_to_tensor(compute())

    def is_scalar_event(self, name: str = "is_scalar_event") -> Output:
        """Return, as a bool tensor, True if an event is a scalar."""
        return self._is_scalar(self.event_shape_tensor(), name)

    def is_scalar_batch(self, name: str = "is_scalar_batch") -> Output:
        """Return, as a bool tensor, True if the batch is a single distribution (rank 0)."""
        return self._is_scalar(self.batch_shape_tensor(), name)

    def _is_scalar(self, shape: Output, name: str) -> Output:
        with self._scope(name):
            return out("Equal", [out("Size", [shape]), 0])

    # -------------------------------------------------------------------------- draws

    def sample(
        self, sample_shape: Any = (), seed: int | None = None, name: str = "sample"
    ) -> Output:
        """Return samples of shape `sample_shape + batch_shape + event_shape`.

        Args:
          sample_shape: an integer, a sequence of integers, or an int32 tensor.
          seed: seed of the samples.
        """
        with self._scope(name):
            size = shape_tensor(sample_shape)
            if size.dims == ():
                size = out("ExpandDims", [size, 0])
            elif size.dims is None:
                size = out("Reshape", [size, [-1]])
            count = out("Prod", [size, [0]])
            static_size = constant_array(size)
            if static_size is not None:
                count = convert_to_tensor(np.array(np.prod(static_size, dtype=np.int64), np.int32))
            draws = convert_to_tensor(self._method("sample_n")(count, seed))
            draw_shape = out("Shape", [draws])[1:]
            if draws.dims is not None and None not in draws.dims[1:]:
                draw_shape = convert_to_tensor(np.array(draws.dims[1:], np.int32))
            shape = out("ConcatV2", [[out("Cast", [size], {"DstT": dtypes.int32}), draw_shape], 0])
            if static_size is not None and draws.dims is not None and None not in draws.dims[1:]:
                shape = convert_to_tensor(
                    np.array([*static_size.tolist(), *draws.dims[1:]], np.int32)
                )
            return out("Reshape", [draws, shape])

    def _full_shape(self, n: Any) -> Output:
        """Return the shape of `n` samples."""
        parts = [out("Pack", [[n]]), self.batch_shape_tensor(), self.event_shape_tensor()]
        static_parts = [constant_array(part) for part in parts]
        if all(part is not None for part in static_parts):
            return convert_to_tensor(np.concatenate(static_parts).astype(np.int32))  # type: ignore[arg-type]  # none is None
        return out("ConcatV2", [parts, 0])

    # ------------------------------------------------------------ densities, statistics

    def log_prob(self, value: Any, name: str = "log_prob") -> Output:
        """Return the logarithm of the density, or of the probability, at `value`."""
        return self._call_on_value("log_prob", value, name)

    def prob(self, value: Any, name: str = "prob") -> Output:
        """Return the density, or the probability, at `value`."""
        return self._call_on_value("prob", value, name)

    def cdf(self, value: Any, name: str = "cdf") -> Output:
        """Return the cumulative distribution function: the probability of samples <= `value`."""
        return self._call_on_value("cdf", value, name)

    def log_cdf(self, value: Any, name: str = "log_cdf") -> Output:
        """Return the logarithm of `cdf`."""
        return self._call_on_value("log_cdf", value, name)

    def survival_function(self, value: Any, name: str = "survival_function") -> Output:
        """Return the probability of samples > `value`."""
        return self._call_on_value("survival_function", value, name)

    def log_survival_function(self, value: Any, name: str = "log_survival_function") -> Output:
        """Return the logarithm of `survival_function`."""
        return self._call_on_value("log_survival_function", value, name)

    def quantile(self, value: Any, name: str = "quantile") -> Output:
        """Return the value at which `cdf` reaches the probability `value`."""
        return self._call_on_value("quantile", value, name)

    def entropy(self, name: str = "entropy") -> Output:
        """Return the entropy in nats."""
        return self._statistic("entropy", name)

    def mean(self, name: str = "mean") -> Output:
        """Return the mean."""
        return self._statistic("mean", name)

    def variance(self, name: str = "variance") -> Output:
        """Return the variance of each element of a sample."""
        return self._statistic("variance", name)

    def stddev(self, name: str = "stddev") -> Output:
        """Return the standard deviation of each element of a sample."""
        return self._statistic("stddev", name)

    def covariance(self, name: str = "covariance") -> Output:
        """Return the covariance of the elements of a sample, shape (..., K, K)."""
        return self._statistic("covariance", name)

    def mode(self, name: str = "mode") -> Output:
        """Return the most likely sample."""
        return self._statistic("mode", name)

    def cross_entropy(self, other: Distribution, name: str = "cross_entropy") -> Output:
        """Return the entropy of this distribution, plus its divergence from the other one."""
        with self._scope(name):
            return self.entropy() + self.kl_divergence(other)

    def kl_divergence(self, other: Distribution, name: str = "kl_divergence") -> Output:
        """Return the Kullback-Leibler divergence of this distribution from the other one."""
        from weft_graph.distributions.kullback_leibler import kl_divergence

        return kl_divergence(self, other, allow_nan_stats=self._allow_nan_stats, name=name)

    def _scope(self, name: str) -> AbstractContextManager[Any]:
        return name_scope(f"{self._name}/{name}")

    def _method(self, method: str) -> Callable[..., Any]:
        """Return the subclass's method for a quantity, or one that derives it from another method.

        Raises: UnimplementedError: there is none.
        """
        implementation: Callable[..., Any] | None = getattr(self, f"_{method}", None)
        if implementation is not None:
            return implementation
        other_method, transform = _ALTERNATIVES.get(method, ("", None))
        base_method: Callable[..., Any] | None = getattr(self, f"_{other_method}", None)
        if base_method is not None and transform is not None:
            from_other, from_base = base_method, transform
            return lambda *args: from_base(convert_to_tensor(from_other(*args)))
        if method.endswith("survival_function") and hasattr(self, "_log_cdf"):
            log_cdf = self._method("cdf")
            return lambda value: _ALTERNATIVES[method][1](log_cdf(value))
        raise errors.UnimplementedError(f"{method} is not defined for {type(self).__name__}")

    def _call_on_value(self, method: str, value: Any, name: str) -> Output:
        with self._scope(name):
            preferred = self._dtype if method != "quantile" or self._dtype.is_floating else None
            return convert_to_tensor(
                self._method(method)(convert_to_tensor(value, preferred_dtype=preferred))
            )

    def _statistic(self, statistic: str, name: str) -> Output:
        with self._scope(name):
            return convert_to_tensor(self._method(statistic)())

    # ------------------------------------------------------------------ for subclasses

    def _mask_undefined(self, valid: Output, value: Output, statistic: str) -> Output:
        """Return `value` where it is defined; else NaN, or an error without `allow_nan_stats`."""
        if self._allow_nan_stats:
            nan = np.array(np.nan, value.dtype.base_dtype.numpy)
            return out("SelectV2", [valid, value, nan])
        message = f"the {statistic} of {type(self).__name__} is not defined for these parameters"
        return with_assertions(
            value, [control.Assert(out("All", [valid, _all_elements(valid)]), [message])]
        )


def _all_elements(value: Output) -> Output:
    return out("Range", [0, out("Rank", [value]), 1])


def with_assertions(value: Output, assertions: Sequence[Node | Output]) -> Output:
    """Return the value after the assertions have passed."""
    if not assertions:
        return value
    with control_dependencies([assertion for assertion in assertions if assertion is not None]):
        return out("Identity", [value])


def convert_floating(*values: Any) -> list[Output]:
    """Convert parameters to tensors of one floating type, float32 if none has a type.

    Raises: InvalidTypeError: they are of several types, or not floating.
    """
    typed_values = [
        value for value in values if hasattr(value, "dtype") and hasattr(value, "shape")
    ]
    element_type = (
        convert_to_tensor(typed_values[0]).dtype.base_dtype if typed_values else dtypes.float32
    )
    tensors = [convert_to_tensor(value, element_type) for value in values]
    if not element_type.is_floating:
        raise errors.InvalidTypeError(f"parameters must be floating, got {tensors[0]!r}")
    return tensors


def positive(values: Sequence[Output], validate_args: bool) -> list[Output]:
    """Return the values; with `validate_args`, check at run time that they are positive."""
    if not validate_args:
        return list(values)
    return [with_assertions(value, [checks.assert_positive(value)]) for value in values]


def second_seed(seed: int | None, salt: int) -> int | None:
    """Return another seed, for a distribution that samples more than once."""
    return None if seed is None else (seed * 1_000_003 + salt) & 0x7FFF_FFFF


def square(x: Output) -> Output:
    """Return x * x."""
    return out("Square", [x])


def magnitude(x: Output) -> Output:
    """Return |x|."""
    return out("Abs", [x])


def sign(x: Output) -> Output:
    """Return 1 for positive x, -1 for negative x, else x itself."""
    return out("Sign", [x])
