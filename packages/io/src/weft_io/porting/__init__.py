"""Porting aids: find where a port departs from the model that it was ported from."""

from weft_io.porting.activations import compare_activations, record_activations
from weft_io.porting.backends import compare_backends
from weft_io.porting.model_scaling import measure_growth
from weft_io.porting.nonfinite import NonFiniteError, NumericsGuard
from weft_io.porting.parameter_files import read_parameters
from weft_io.porting.parameters import Status, compare_parameters
from weft_io.porting.run_comparison import Program, SessionRun, compare_runs, compare_targets

__all__ = [
    "NonFiniteError",
    "NumericsGuard",
    "Program",
    "SessionRun",
    "Status",
    "compare_activations",
    "compare_backends",
    "compare_parameters",
    "compare_runs",
    "compare_targets",
    "measure_growth",
    "read_parameters",
    "record_activations",
]
