"""Dataset methods that apply functions to elements."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from weft_graph.ir.builder import create
from weft_io import arguments
from weft_io.data import specs
from weft_io.data.dataset_methods import DatasetT, Steps, int64
from weft_io.data.functions import TracedFunction, enclosing_graph, trace_function
from weft_io.streams.prefetching import AUTOTUNE
from weft_tensor import dtypes, errors


class MapMethods(Steps[DatasetT]):
    """Methods that apply functions to elements."""

    def map(self, map_func: Callable[..., Any], num_parallel_calls: Any = None) -> DatasetT:
        """Apply a function to each element, in order.

        Args:
          map_func: function from an element to a structure of tensors; a tuple is passed as several
            arguments.
          num_parallel_calls: int32, shape (): number of concurrent calls; AUTOTUNE for the number
            of processors, None for sequential calls.

        Examples:
          >>> pairs = wf.data.Dataset.from_tensor_slices(([1, 2], [3, 4]))
          >>> total = pairs.map(lambda a, b: a + b).make_one_shot_iterator().get_next()
          >>> session = wf.Session()
          >>> session.run(total), session.run(total)
          (np.int32(4), np.int32(6))
        """
        return self._map(map_func, num_parallel_calls)

    def _map(self, function: Any, calls: Any, preserve_cardinality: bool = False) -> DatasetT:
        result = self._trace(function, "map")
        attrs = {"f": result.attr, "preserve_cardinality": preserve_cardinality}
        if calls is None:
            return self._chain("MapDataset", result.captured, element=result.form, **attrs)
        calls = arguments.scalar(calls, dtypes.int32, "num_parallel_calls", 1, AUTOTUNE)
        return self._chain(
            "ParallelMapDataset", result.captured, calls, element=result.form, **attrs
        )

    def map_with_legacy_function(
        self, map_func: Callable[..., Any], num_parallel_calls: Any = None
    ) -> DatasetT:
        """Map elements as `map` does; a deprecated name.

        Args:
          map_func, num_parallel_calls: as for `map`.

        Examples:
          >>> doubled = wf.data.Dataset.range(3).map_with_legacy_function(lambda n: n * 2)
          >>> wf.Session().run(doubled.batch(3).make_one_shot_iterator().get_next())
          array([0, 2, 4])
        """
        return self.map(map_func, num_parallel_calls)

    def filter_with_legacy_function(self, predicate: Callable[..., Any]) -> DatasetT:
        """Filter elements as `filter` does; a deprecated name.

        Args:
          predicate: as for `filter`.

        Examples:
          >>> few = wf.data.Dataset.range(4).filter_with_legacy_function(lambda n: n < 2)
          >>> wf.Session().run(few.batch(9).make_one_shot_iterator().get_next())
          array([0, 1])
        """
        return self.filter(predicate)

    def filter(self, predicate: Callable[..., Any]) -> DatasetT:
        """Keep the elements for which a function returns True.

        Args:
          predicate: from an element, as for `map`, to a bool of shape ().
        Raises: InvalidTypeError: it returns something else.

        Examples:
          >>> odd = wf.data.Dataset.range(9).filter(lambda n: wf.equal(n % 2, 1))
          >>> wf.Session().run(odd.batch(9).make_one_shot_iterator().get_next())
          array([1, 3, 5, 7])
        """
        result = self._predicate(predicate, "filter")
        return self._chain("FilterDataset", result.captured, predicate=result.attr)

    def flat_map(self, map_func: Callable[..., Any]) -> DatasetT:
        """Apply a function that returns datasets, and concatenate their elements.

        Args:
          map_func: from an element, as for `map`, to a dataset.
        Raises: InvalidTypeError: it does not return a dataset.

        Examples:
          >>> stairs = wf.data.Dataset.range(1, 4).flat_map(wf.data.Dataset.range)
          >>> wf.Session().run(stairs.batch(9).make_one_shot_iterator().get_next())
          array([0, 0, 1, 0, 1, 2])
        """
        result = self._trace(map_func, "flat_map")
        return self._apply_op("FlatMapDataset", result, element=_inner_form(result, "map_func"))

    def interleave(
        self,
        map_func: Callable[..., Any],
        cycle_length: Any = AUTOTUNE,
        block_length: Any = 1,
        num_parallel_calls: Any = None,
    ) -> DatasetT:
        """Apply a function that returns datasets, and interleave their elements.

        Args:
          map_func: from an element, as for `map`, to a dataset.
          cycle_length: int64, shape (): number of interleaved datasets; AUTOTUNE for the number of
            processors, at most 10.
          block_length: int64, shape (): number of consecutive elements of a dataset.
          num_parallel_calls: int64, shape (): number of datasets that are prefetched
            concurrently; the order is unaffected.
        Raises: InvalidTypeError: the function does not return a dataset.

        Examples:
          >>> thrice = lambda n: wf.data.Dataset.from_tensors(n).repeat(3)
          >>> turns = wf.data.Dataset.range(2).interleave(thrice, cycle_length=2, block_length=2)
          >>> wf.Session().run(turns.batch(9).make_one_shot_iterator().get_next())
          array([0, 0, 1, 1, 0, 1])
        """
        result = self._trace(map_func, "interleave")
        form = _inner_form(result, "map_func")
        if isinstance(cycle_length, int) and cycle_length == AUTOTUNE:
            cycle_length = min(os.cpu_count() or 1, 10)
        inputs = [
            int64(cycle_length, "cycle_length", 1),
            int64(block_length, "block_length", 1),
        ]
        if num_parallel_calls is None:
            return self._apply_op("InterleaveDataset", result, *inputs, element=form)
        calls = int64(num_parallel_calls, "num_parallel_calls", 1, AUTOTUNE)
        return self._apply_op("ParallelInterleaveDatasetV2", result, *inputs, calls, element=form)

    def take_while(self, predicate: Callable[..., Any]) -> DatasetT:
        """Return the elements before the first for which a function returns False.

        Args:
          predicate: from an element, as for `map`, to a bool of shape ().
        Raises: InvalidTypeError: it returns something else.

        Examples:
          >>> few = wf.data.Dataset.range(9).take_while(lambda n: n < 3).batch(9)
          >>> wf.Session().run(few.make_one_shot_iterator().get_next())
          array([0, 1, 2])
        """
        result = self._predicate(predicate, "take_while")
        return self._chain("TakeWhileDataset", result.captured, predicate=result.attr)

    def scan(self, initial_state: Any, scan_func: Callable[[Any, Any], Any]) -> DatasetT:
        """Apply a function to a state and each element; it returns the next state and a result.

        Args:
          initial_state: a structure of tensors.
          scan_func: from a state and an element to the next state and a structure of tensors.
        Raises: InvalidTypeError: it does not return a pair, or the structure or types of the
          state differ.

        Examples:
          >>> sums = wf.data.Dataset.range(1, 5).scan(
          ...     wf.constant(0, wf.int64), lambda total, n: (total + n, total + n)
          ... )
          >>> wf.Session().run(sums.batch(9).make_one_shot_iterator().get_next())
          array([ 1,  3,  6, 10])
        """
        state = specs.convert_structure(initial_state)
        result, form = self._settle(scan_func, "scan", state, _first_of_pair)
        inputs = [specs.components(state), result.captured]
        types = [part.dtype for part in specs.parts(form)]
        attrs = {"f": result.attr, "Tstate": types, "preserve_cardinality": True}
        return self._chain("ScanDataset", *inputs, element=result.form[1], **attrs)

    def reduce(self, initial_state: Any, reduce_func: Callable[[Any, Any], Any]) -> Any:
        """Reduce all elements to one state, by a function of a state and an element.

        Args:
          initial_state: a structure of tensors.
          reduce_func: from a state and an element to the next state.
        Returns: a structure of tensors: the state after the last element.
        Raises: InvalidTypeError: it returns another structure, or other types.

        Examples:
          >>> total = wf.data.Dataset.range(5).reduce(wf.constant(0, wf.int64), lambda a, b: a + b)
          >>> wf.Session().run(total)
          np.int64(10)
        """
        with enclosing_graph(self._variant_tensor).as_default():
            state = specs.convert_structure(initial_state)
            result, form = self._settle(reduce_func, "reduce", state, lambda result: result)
            inputs = [self._variant_tensor, specs.components(state), result.captured]
            node = create("ReduceDataset", inputs, {**specs.attrs_of(form), "f": result.attr})
        return specs.rebuild_structure(form, node.outputs)

    def _settle(
        self, function: Any, kind: str, state: Any, state_of: Callable[[Any], Any]
    ) -> tuple[TracedFunction, Any]:
        graph = enclosing_graph(self._variant_tensor)
        return specs.trace_until_stable(
            lambda form: trace_function(function, (form, self._element), graph, kind),
            specs.form_of(state),
            state_of,
        )

    def _predicate(self, predicate: Callable[..., Any], kind: str) -> TracedFunction:
        result = self._trace(predicate, kind)
        spec = result.form
        if not isinstance(spec, specs.Spec) or spec.dtype is not dtypes.bool_ or spec.dims:
            raise errors.InvalidTypeError(
                f"`predicate` must return a scalar boolean tensor, got {spec!r}"
            )
        return result

    def _trace(self, function: Callable[..., Any], kind: str) -> TracedFunction:
        return trace_function(function, self._element, enclosing_graph(self._variant_tensor), kind)

    def _apply_op(
        self, op: str, function: TracedFunction, *inputs: Any, element: Any = None
    ) -> DatasetT:
        form = function.form if element is None else element
        return self._chain(op, function.captured, *inputs, element=form, f=function.attr)


def _first_of_pair(form: Any) -> Any:
    if not isinstance(form, tuple) or len(form) != 2:
        raise errors.InvalidTypeError(
            f"the function given to Dataset.scan() must return a state and an element, got {form!r}"
        )
    return form[0]


def _inner_form(result: TracedFunction, label: str) -> Any:
    if not isinstance(result.result, specs.DatasetBase):
        raise errors.InvalidTypeError(
            f"`{label}` must return a `Dataset` object, got {result.result!r}"
        )
    return result.result._element
