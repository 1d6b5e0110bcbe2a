"""Display options of a profile, as a dict with TensorFlow's names."""

from __future__ import annotations

__all__ = ["ProfileOptionBuilder"]

import copy
from collections.abc import Sequence
from typing import Any, Final, Self

DEFAULTS: Final[dict[str, Any]] = {
    "max_depth": 10000,
    "min_bytes": 0,
    "min_micros": 0,
    "min_params": 0,
    "min_float_ops": 0,
    "min_occurrence": 0,
    "order_by": "name",
    "account_type_regexes": [".*"],
    "start_name_regexes": [".*"],
    "trim_name_regexes": [],
    "show_name_regexes": [".*"],
    "hide_name_regexes": [],
    "account_displayed_op_only": False,
    "select": ["micros"],
    "step": -1,
    "output": "stdout",
}


class ProfileOptionBuilder:
    """Builds the options of `profile` with chained calls.

    Args:
      options: the initial options, such as `ProfileOptionBuilder.time_and_memory()`.

    Examples:
      >>> builder = wf.profiler.ProfileOptionBuilder
      >>> options = builder(builder.float_operation()).with_max_depth(2).build()
      >>> options["max_depth"], options["select"]
      (2, ['float_ops'])
    """

    def __init__(self, options: dict[str, Any] | None = None) -> None:
        self._options = copy.deepcopy(DEFAULTS if options is None else options)

    @staticmethod
    def trainable_variables_parameter() -> dict[str, Any]:
        """Return options that count the elements of trainable variables."""
        return DEFAULTS | {
            "account_type_regexes": ["_trainable_variables"],
            "account_displayed_op_only": True,
            "select": ["params"],
        }

    @staticmethod
    def float_operation() -> dict[str, Any]:
        """Return options that count floating-point operations."""
        return DEFAULTS | {
            "min_float_ops": 1,
            "order_by": "float_ops",
            "account_displayed_op_only": True,
            "select": ["float_ops"],
        }

    @staticmethod
    def time_and_memory(
        min_micros: int = 1,
        min_bytes: int = 1,
        min_accelerator_micros: int = 0,
        min_cpu_micros: int = 0,
        min_peak_bytes: int = 0,
        min_residual_bytes: int = 0,
        min_output_bytes: int = 0,
    ) -> dict[str, Any]:
        """Return options that show the time and memory of a traced step.

        Args:
          min_micros: minimum time to be shown.
          min_bytes: minimum size to be shown.
          min_accelerator_micros, min_cpu_micros, min_peak_bytes, min_residual_bytes,
            min_output_bytes: accepted for compatibility; a step's trace has one time and one size
            for each node.
        """
        return DEFAULTS | {
            "min_micros": min_micros,
            "min_bytes": min_bytes,
            "order_by": "micros",
            "account_displayed_op_only": True,
            "select": ["micros", "bytes"],
        }

    def build(self) -> dict[str, Any]:
        """Return the options, which belong to the caller."""
        return copy.deepcopy(self._options)

    def _with(self, **options: Any) -> Self:
        self._options |= options
        return self

    def with_max_depth(self, max_depth: int) -> Self:
        """Set the number of levels of scopes to show."""
        return self._with(max_depth=max_depth)

    def with_min_memory(
        self,
        min_bytes: int = 0,
        min_peak_bytes: int = 0,
        min_residual_bytes: int = 0,
        min_output_bytes: int = 0,
    ) -> Self:
        """Show entries of at least this many bytes."""
        return self._with(min_bytes=min_bytes)

    def with_min_execution_time(
        self, min_micros: int = 0, min_accelerator_micros: int = 0, min_cpu_micros: int = 0
    ) -> Self:
        """Show entries of at least this many microseconds."""
        return self._with(min_micros=min_micros)

    def with_min_parameters(self, min_params: int) -> Self:
        """Show entries with at least this many elements of variables."""
        return self._with(min_params=min_params)

    def with_min_occurrence(self, min_occurrence: int) -> Self:
        """Show op types with at least this many occurrences."""
        return self._with(min_occurrence=min_occurrence)

    def with_min_float_operations(self, min_float_ops: int) -> Self:
        """Show entries with at least this many floating-point operations."""
        return self._with(min_float_ops=min_float_ops)

    def with_accounted_types(self, account_type_regexes: Sequence[str]) -> Self:
        """Count nodes whose op type, device or "_trainable_variables" matches a pattern."""
        return self._with(account_type_regexes=list(account_type_regexes))

    def with_node_names(
        self,
        start_name_regexes: Sequence[str] | None = None,
        show_name_regexes: Sequence[str] | None = None,
        hide_name_regexes: Sequence[str] | None = None,
        trim_name_regexes: Sequence[str] | None = None,
    ) -> Self:
        """Select entries by name.

        Args:
          start_name_regexes: start at scopes that match.
          show_name_regexes: show entries that match,
          hide_name_regexes: except entries that match these.
          trim_name_regexes: show nothing below entries that match.
        """
        regexes = {
            "start_name_regexes": start_name_regexes,
            "show_name_regexes": show_name_regexes,
            "hide_name_regexes": hide_name_regexes,
            "trim_name_regexes": trim_name_regexes,
        }
        return self._with(
            **{key: list(value) for key, value in regexes.items() if value is not None}
        )

    def account_displayed_op_only(self, is_true: bool) -> Self:
        """Include only shown entries in the totals."""
        return self._with(account_displayed_op_only=is_true)

    def with_empty_output(self) -> Self:
        """Print nothing."""
        return self._with(output="none")

    def with_stdout_output(self) -> Self:
        """Print to stdout."""
        return self._with(output="stdout")

    def with_file_output(self, outfile: str) -> Self:
        """Write to a file."""
        return self._with(output=f"file:outfile={outfile}")

    def with_timeline_output(self, timeline_file: str) -> Self:
        """Write the step to a file in Chrome's trace format."""
        return self._with(output=f"timeline:outfile={timeline_file}")

    def with_step(self, step: int) -> Self:
        """Show one step of a `Profiler`; -1 is the last."""
        return self._with(step=step)

    def order_by(self, attribute: str) -> Self:
        """Sort by "name", "micros", "bytes", "params", "float_ops" or "occurrence"."""
        return self._with(order_by=attribute)

    def select(self, attributes: Sequence[str]) -> Self:
        """Show these columns: "micros", "bytes", "params", "float_ops", "occurrence"."""
        return self._with(select=list(attributes))
