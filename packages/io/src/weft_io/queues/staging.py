"""The public classes of staging areas, which store tensors of one step for a later one."""

from __future__ import annotations

__all__ = ["MapStagingArea", "StagingArea"]

from collections.abc import Sequence
from typing import Any

from weft_graph.ir.builder import convert_to_tensor
from weft_graph.ir.default_graph import get_default_graph, name_scope
from weft_graph.ir.node import Node, Output
from weft_io.ops import staging as ops
from weft_io.queues.components import HasComponents
from weft_tensor import dtypes as types_, errors
from weft_tensor.shape import TensorShape


class BaseStagingArea(HasComponents):
    """Base class of staging areas.

    Args:
      dtypes: element type of each component.
      shapes: static shape of each component; None for any.
      names: name of each component; tuples are then dicts.
      shared_name: the name it is shared under among sessions.
      capacity: maximum number of tuples; 0 for no limit.
      memory_limit: maximum number of bytes; 0 for no limit.
    Raises: InvalidArgumentError: the lists differ in length, or a limit is negative.
    """

    def __init__(
        self,
        dtypes: Sequence[Any],
        shapes: Sequence[Any] | None = None,
        names: Sequence[str] | None = None,
        shared_name: str | None = None,
        capacity: int = 0,
        memory_limit: int = 0,
    ) -> None:
        if shared_name is None:
            self._name = get_default_graph().unique_name(type(self).__name__)
        elif isinstance(shared_name, str):
            self._name = shared_name
        else:
            raise errors.InvalidTypeError(f"shared_name must be a string, got {shared_name!r}")
        self._dtypes = [types_.as_dtype(dtype).base_dtype for dtype in dtypes]
        self._shapes = [TensorShape(s) for s in shapes or [None] * len(self._dtypes)]
        self._names = list(names) if names else None
        for label, items in (("StagingArea shapes", self._shapes), ("StagingArea names", names)):
            if items and len(items) != len(self._dtypes):
                raise errors.InvalidArgumentError(
                    f"{label} must be the same length as dtypes, {len(self._dtypes)}, "
                    f"got {len(items)}"
                )
        if capacity < 0 or memory_limit < 0:
            raise errors.InvalidArgumentError(
                f"capacity and memory_limit must not be negative, got {capacity}, {memory_limit}"
            )
        self._capacity = capacity
        self._memory_limit = memory_limit
        self._area = ops.AreaAttrs(self._dtypes, self._name, capacity, memory_limit)

    @property
    def capacity(self) -> int:
        """Maximum number of tuples; 0 for no limit."""
        return self._capacity

    @property
    def memory_limit(self) -> int:
        """Maximum number of bytes; 0 for no limit."""
        return self._memory_limit

    def _validate(self, vals: Any, indices: Sequence[int] | None) -> tuple[list[Output], list[int]]:
        """Return the tensors of a tuple or of some of its components, and their indices."""
        if isinstance(vals, dict):
            if self._names is None:
                raise errors.InvalidArgumentError(
                    "Staging areas must have names to enqueue a dictionary"
                )
            if not set(vals) <= set(self._names):
                raise errors.InvalidArgumentError(
                    "Keys in dictionary to put do not match names of staging area. Dictionary: "
                    f"{sorted(vals)}, staging area: {sorted(self._names)}"
                )
            indices = [i for i, name in enumerate(self._names) if name in vals]
            vals = [vals[self._names[i]] for i in indices]
        elif self._names is not None:
            raise errors.InvalidArgumentError(
                "You must enqueue a dictionary in a staging area with names"
            )
        items = list(vals) if isinstance(vals, list | tuple) else [vals]
        indices_of_values = list(range(len(items)) if indices is None else indices)
        if len(indices_of_values) != len(items) or len(items) > len(self._dtypes):
            raise errors.InvalidArgumentError(
                f"requires a value per index, and at most {len(self._dtypes)}, "
                f"got {len(items)} values for {len(indices_of_values)} indices"
            )
        return [
            self._component(value, i) for value, i in zip(items, indices_of_values, strict=True)
        ], indices_of_values

    def _component(self, value: Any, index: int) -> Output:
        self._check_indices([index])
        tensor = convert_to_tensor(value, self._dtypes[index], f"component_{index}")
        tensor.shape.assert_is_compatible_with(self._shapes[index])
        return tensor

    def _check_indices(self, indices: Sequence[int]) -> None:
        if not all(0 <= index < len(self._dtypes) for index in indices):
            raise errors.InvalidArgumentError(
                f"indices must be in [0, {len(self._dtypes)}), got {list(indices)}"
            )

    def _structure(self, outputs: Sequence[Output], indices: Sequence[int]) -> Any:
        for output, i in zip(outputs, indices, strict=True):
            output.set_shape(self._shapes[i])
        if self._names is not None:
            names = [self._names[i] for i in indices]
            return dict(zip(names, outputs, strict=True))
        return list(outputs)


class StagingArea(BaseStagingArea):
    """A FIFO of tensor tuples that one step stores for a later one.

    Args:
      dtypes: element type of each component.
      shapes: static shape of each component; None for any.
      names: name of each component; tuples are then dicts.
      shared_name: the name it is shared under among sessions.
      capacity: maximum number of tuples; 0 for no limit.
      memory_limit: maximum number of bytes; 0 for no limit.
    Raises:
      InvalidArgumentError: the lists differ in length, or a limit is negative.
      InvalidTypeError: `shared_name` is not a string.

    Examples:
      >>> area = wf.queue.StagingArea([wf.int32], shapes=[[]])
      >>> put = area.put(wf.constant(1))
      >>> (element,) = area.get()
      >>> with wf.Session() as session:
      ...     session.run(put)
      ...     session.run([element, put])  # takes one, and puts the next aside
      [np.int32(1), None]
    """

    def put(self, values: Any, name: str | None = None) -> Node:
        """Add a tuple; wait for space.

        Args:
          values: a tensor, a list of one tensor per component, or a dict by name.
        Raises:
          InvalidArgumentError: `values` does not match the components.
        Raises (when it runs): ResourceExhaustedError: the tuple is larger than the memory limit.
        """
        with name_scope(name, f"{self._name}_put", []) as scope:
            tensors, indices_of_values = self._validate(values, None)
            if indices_of_values != list(range(len(self._dtypes))):
                raise errors.InvalidArgumentError(
                    f"a tuple has {len(self._dtypes)} components, got {len(tensors)}"
                )
            return ops.stage(tensors, self._area, scope)

    def get(self, name: str | None = None) -> Any:
        """Remove and return the first tuple; wait for one.

        Returns: a list of one tensor per component, or a dict by name.
        """
        outputs = ops.unstage(self._area, name or f"{self._name}_get")
        return self._structure(outputs, range(len(outputs)))

    def peek(self, index: Any, name: str | None = None) -> Any:
        """Return the tuple at an index without removing it; wait for it.

        Args:
          index: int32, shape ().
        Returns: as `get`.
        """
        outputs = ops.stage_peek(index, self._area, name or f"{self._name}_peek")
        return self._structure(outputs, range(len(outputs)))

    def size(self, name: str | None = None) -> Output:
        """Return the number of tuples: int32, shape ()."""
        return ops.area_size("StageSize", self._area, name or f"{self._name}_size")

    def clear(self, name: str | None = None) -> Node:
        """Remove all tuples."""
        return ops.area_clear("StageClear", self._area, name or f"{self._name}_clear")


class MapStagingArea(BaseStagingArea):
    """Tensor tuples by key, whose components can be added and removed individually.

    Args:
      dtypes, shapes, names, shared_name, capacity, memory_limit: as for `StagingArea`; incomplete
        tuples count only towards the memory limit.
      ordered: `get` without a key returns the smallest key instead of the one that was completed
        first.
    Raises: as `StagingArea`.

    Examples:
      >>> area = wf.queue.MapStagingArea([wf.float32, wf.int32], names=["x", "label"])
      >>> key, (x, label) = wf.constant(7, wf.int64), (0.5, 3)
      >>> _, values = area.get(key)
      >>> with wf.Session() as session:
      ...     session.run(area.put(key, {"x": x}))
      ...     session.run(area.put(key, {"label": label}))
      ...     session.run(values)
      {'x': np.float32(0.5), 'label': np.int32(3)}
    """

    def __init__(
        self,
        dtypes: Sequence[Any],
        shapes: Sequence[Any] | None = None,
        names: Sequence[str] | None = None,
        shared_name: str | None = None,
        ordered: bool = False,
        capacity: int = 0,
        memory_limit: int = 0,
    ) -> None:
        super().__init__(dtypes, shapes, names, shared_name, capacity, memory_limit)
        self._prefix = "OrderedMap" if ordered else "Map"

    def put(
        self,
        key: Any,
        vals: Any,
        indices: Sequence[int] | None = None,
        name: str | None = None,
    ) -> Node:
        """Add components to a key; wait for space.

        Args:
          key: int64, shape ().
          vals: a list of tensors, or a dict of tensors by name.
          indices: indices of the components; all by default.
        Raises: InvalidArgumentError: the tensors do not match the components.
        Raises (when it runs):
          InvalidArgumentError: the key already has one of them, or is complete.
          ResourceExhaustedError: they are larger than the memory limit.
        """
        with name_scope(name, f"{self._name}_put", []) as scope:
            tensors, indices_of_values = self._validate(vals, indices)
            key = convert_to_tensor(key, types_.int64)
            return ops.map_stage(
                f"{self._prefix}Stage", key, indices_of_values, tensors, self._area, scope
            )

    def get(
        self, key: Any = None, indices: Sequence[int | str] | None = None, name: str | None = None
    ) -> tuple[Any, Any]:
        """Remove and return components of a key; wait for it.

        Args:
          key: int64, shape (); None for the first key.
          indices: indices or names of the components; all by default.
        Returns: the key, and a list of tensors or a dict by name.
        """
        name = name or f"{self._name}_get"
        indices_of_values = self._indices(indices)
        types = [self._dtypes[i] for i in indices_of_values]
        if key is None:
            op = f"{self._prefix}UnstageNoKey"
            first, *outputs = ops.map_unstage_no_key(op, indices_of_values, types, self._area, name)
            return first, self._structure(outputs, indices_of_values)
        key = convert_to_tensor(key, types_.int64)
        op = f"{self._prefix}Unstage"
        return key, self._structure(
            ops.map_unstage(op, key, indices_of_values, types, self._area, name), indices_of_values
        )

    def peek(
        self, key: Any, indices: Sequence[int | str] | None = None, name: str | None = None
    ) -> Any:
        """Wait for a key and return its components without removing them.

        Args:
          key: int64, shape ().
          indices: indices or names of the components; all by default.
        Returns: a list of tensors, or a dict by name.
        """
        indices_of_values = self._indices(indices)
        types = [self._dtypes[i] for i in indices_of_values]
        key = convert_to_tensor(key, types_.int64)
        name = name or f"{self._name}_peek"
        outputs = ops.map_unstage(
            f"{self._prefix}Peek", key, indices_of_values, types, self._area, name
        )
        return self._structure(outputs, indices_of_values)

    def _indices(self, indices: Sequence[int | str] | None) -> list[int]:
        selected = range(len(self._dtypes)) if indices is None else indices
        indices_of_values = [
            self._number(item) if isinstance(item, str) else item for item in selected
        ]
        self._check_indices(indices_of_values)
        return indices_of_values

    def _number(self, name: str) -> int:
        names = self._names or []
        if name not in names:
            raise errors.InvalidArgumentError(f"the components have names {names}, got {name!r}")
        return names.index(name)

    def size(self, name: str | None = None) -> Output:
        """Return the number of complete keys: int32, shape ()."""
        return ops.area_size(f"{self._prefix}Size", self._area, name or f"{self._name}_size")

    def incomplete_size(self, name: str | None = None) -> Output:
        """Return the number of keys that lack a component: int32, shape ()."""
        name = name or f"{self._name}_incomplete_size"
        return ops.area_size(f"{self._prefix}IncompleteSize", self._area, name)

    def clear(self, name: str | None = None) -> Node:
        """Remove all keys."""
        return ops.area_clear(f"{self._prefix}Clear", self._area, name or f"{self._name}_clear")
