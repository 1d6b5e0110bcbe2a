"""Flattening and packing of nested structures: sequences, named tuples and mappings.

Any other value is a leaf: None, a tensor, an array, a string, a shape, a set.
Mappings are traversed in the order of their sorted keys, and rebuilt in their original order.
"""

from __future__ import annotations

__all__ = ["assert_same_structure", "flatten", "is_nested", "map_structure", "pack_sequence_as"]

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, MappingView, Sequence
from typing import Any

from weft_graph.ir.composite import CompositeTensor
from weft_tensor import errors
from weft_tensor.nesting import format_value, too_deep_error

Path = tuple[Any, ...]
"""The path to a leaf: keys of mappings, names of fields, positions."""

_SKETCH = 200
"""Longest text of a structure in a message."""


def is_nested(seq: Any) -> bool:
    """Return True if a value is a container that these functions traverse.

    Containers are sequences, mappings and views of mappings, except strings and byte buffers.

    Args:
      seq: anything.

    Examples:
      >>> wf.nest.is_nested({"a": 1}), wf.nest.is_nested("text")
      (True, False)
    """
    kind = type(seq)
    if kind is list or kind is tuple or kind is dict:
        return True
    return isinstance(seq, Sequence | Mapping | MappingView) and not isinstance(
        seq, str | bytes | bytearray | memoryview
    )


def is_sequence(seq: Any) -> bool:
    """Deprecated name of `is_nested`."""
    return is_nested(seq)


def _open_container(value: Any, composites: bool) -> list[tuple[Any, Any]] | None:
    """Return the (key, child) pairs of a container in their order; None for a leaf.

    Raises: InvalidTypeError: the keys of a mapping cannot be sorted.
    """
    if not is_nested(value):
        if composites and isinstance(value, CompositeTensor):
            return list(enumerate(value.parts))
        return None
    if isinstance(value, Mapping):
        try:
            return [(key, value[key]) for key in sorted(value)]
        except TypeError:
            raise errors.InvalidTypeError(
                f"the keys of a nested mapping must be sortable, got {list(value)!r}"
            ) from None
    fields = getattr(type(value), "_fields", None)
    if fields is not None and isinstance(value, tuple):
        return list(zip(fields, value, strict=True))
    return list(enumerate(value))


def _rebuild(template: Any, children: Sequence[Any]) -> Any:
    """Return a copy of a container with new children, in `_open_container`'s order."""
    if isinstance(template, Mapping):
        by_key = dict(zip(sorted(template), children, strict=True))
        pairs = [(key, by_key[key]) for key in template]
        if isinstance(template, defaultdict):
            return defaultdict(template.default_factory, pairs)
        make: Any = type(template)
        return make(pairs)
    if isinstance(template, CompositeTensor):
        return template.rebuilt(children)
    kind: Any = type(template)
    if kind is list or isinstance(template, MappingView | range):
        return list(children)
    if kind is tuple:
        return tuple(children)
    if isinstance(template, tuple) and hasattr(kind, "_fields"):
        return kind(*children)
    return kind(children)


def _sketch(value: Any) -> str:
    """Return a structure's text with dots for leaves, for messages."""

    def text(item: Any) -> str:
        pairs = _open_container(item, False)
        if pairs is None:
            return "."
        if isinstance(item, Mapping):
            return "{" + ", ".join(f"{key!r}: {text(child)}" for key, child in pairs) + "}"
        inner = ", ".join([text(child) for _, child in pairs])
        if isinstance(item, list):
            return f"[{inner}]"
        if type(item) is tuple:
            return f"({inner},)" if len(pairs) == 1 else f"({inner})"
        return f"{type(item).__name__}({inner})"

    try:
        full_text = text(value)
    except RecursionError:
        return format_value(value)
    return full_text if len(full_text) <= _SKETCH else full_text[:_SKETCH] + "..."


# ------------------------------------------------------------------------------ flat lists


def flatten(structure: Any, expand_composites: bool = False) -> list[Any]:
    """Return the leaves in order; for a single leaf, a list of one item.

    Args:
      structure: any nesting of sequences and mappings.
      expand_composites: also expand IndexedSlices and SparseTensor.
    Raises: InvalidTypeError: the keys of a mapping cannot be sorted.

    Examples:
      >>> wf.nest.flatten({"a": [1, 2], "b": 3})
      [1, 2, 3]
    """
    leaves: list[Any] = []
    _flatten_into(structure, expand_composites, leaves)
    return leaves


def _flatten_into(structure: Any, composites: bool, leaves: list[Any]) -> None:
    pairs = _open_container(structure, composites)
    if pairs is None:
        leaves.append(structure)
        return
    try:
        for _, child in pairs:
            _flatten_into(child, composites, leaves)
    except RecursionError:
        raise too_deep_error(structure) from None


def pack_sequence_as(
    structure: Any, flat_sequence: Sequence[Any], expand_composites: bool = False
) -> Any:
    """Return a structure like `structure` with other leaves.

    Args:
      structure: the template; its leaves are ignored.
      flat_sequence: the new leaves, in the order of `flatten`.
      expand_composites: also expand IndexedSlices and SparseTensor.
    Raises:
      InvalidTypeError: `flat_sequence` is not a sequence.
      InvalidArgumentError: it has too many or too few items.

    Examples:
      >>> wf.nest.pack_sequence_as({"a": 1, "b": [2]}, [10, 20])
      {'a': 10, 'b': [20]}
    """
    if not is_nested(flat_sequence) or isinstance(flat_sequence, Mapping):
        raise errors.InvalidTypeError(
            f"flat_sequence must be a sequence of leaves, got {type(flat_sequence).__name__}"
        )
    leaves = list(flat_sequence)
    count = len(flatten(structure, expand_composites))
    if count != len(leaves):
        raise errors.InvalidArgumentError(
            f"flat_sequence must have {count} items, one for each leaf of {_sketch(structure)}, "
            f"got {len(leaves)}"
        )
    return _pack(structure, iter(leaves), expand_composites)


def _pack(structure: Any, leaves: Iterator[Any], composites: bool) -> Any:
    pairs = _open_container(structure, composites)
    if pairs is None:
        return next(leaves)
    return _rebuild(structure, [_pack(child, leaves, composites) for _, child in pairs])


def map_structure(func: Callable[..., Any], *structure: Any, **kwargs: Any) -> Any:
    """Apply `func` to corresponding leaves of structures; return a structure like the first.

    Args:
      func: function with one argument per structure.
      *structure: structures that match, as checked by `assert_same_structure`.
      **kwargs: `check_types` and `expand_composites` of that function.
    Raises:
      InvalidTypeError: `func` is not callable, or containers are of different types.
      InvalidArgumentError: the structures differ or are missing, or a keyword is unknown.

    Examples:
      >>> wf.nest.map_structure(lambda x: 2 * x, {"a": [1, 2], "b": 3})
      {'a': [2, 4], 'b': 6}
    """
    if not callable(func):
        raise errors.InvalidTypeError(f"func must be callable, got {func!r}")
    if not structure:
        raise errors.InvalidArgumentError("map_structure requires at least one structure")
    check_types = kwargs.pop("check_types", True)
    composites = kwargs.pop("expand_composites", False)
    _reject_extra_arguments(kwargs, "check_types", "expand_composites")
    for other_structure in structure[1:]:
        assert_same_structure(structure[0], other_structure, check_types, composites)
    columns = [flatten(structure_arg, composites) for structure_arg in structure]
    results = [func(*leaves) for leaves in zip(*columns, strict=True)]
    return _pack(structure[0], iter(results), composites)


def _reject_extra_arguments(kwargs: Mapping[str, Any], *accepted: str) -> None:
    if kwargs:
        raise errors.InvalidArgumentError(
            f"the keyword arguments may be {' and '.join(accepted)}, got {', '.join(kwargs)}"
        )


# ------------------------------------------------------------------------------ comparison


def assert_same_structure(
    nest1: Any, nest2: Any, check_types: bool = True, expand_composites: bool = False
) -> None:
    """Check that two structures have their leaves at the same positions.

    Args:
      nest1, nest2: structures; leaves are not compared.
      check_types: require containers of the same type as well, and mappings with the same keys.
        Named tuples with the same name and fields count as one type; all mappings do too.
      expand_composites: also expand IndexedSlices and SparseTensor.
    Raises:
        InvalidArgumentError: they differ.
        InvalidTypeError: they differ only in types of containers.

    Examples:
      >>> wf.nest.assert_same_structure([1, 2], [3, 4])
    """
    difference = _difference(nest1, nest2, check_types, expand_composites, ())
    if difference is not None:
        path, problem, kind = difference
        location = "".join(f"[{key!r}]" for key in path)
        raise kind(
            f"the structures must be the same, got {_sketch(nest1)} and {_sketch(nest2)}: "
            f"{f'at {location} ' if location else ''}{problem}"
        )


_Difference = tuple[Path, str, type[errors.InvalidArgumentError]]


def _difference(
    a: Any, b: Any, check_types: bool, composites: bool, path: Path
) -> _Difference | None:
    """Return the first difference of two structures: its position, description and error class."""
    pairs, other_pairs = _open_container(a, composites), _open_container(b, composites)
    if pairs is None and other_pairs is None:
        return None
    names = [type(node).__name__ for node in (a, b)]
    if pairs is None or other_pairs is None:
        kinds = ["a leaf" if items is None else "a container" for items in (pairs, other_pairs)]
        problem = f"the first has {kinds[0]} ({names[0]}), the second {kinds[1]} ({names[1]})"
        return path, problem, errors.InvalidArgumentError
    if check_types and not _is_same_type(a, b):
        problem = f"the first has a {names[0]}, the second a {names[1]}"
        return path, problem, errors.InvalidTypeError
    keys, other_keys = [key for key, _ in pairs], [key for key, _ in other_pairs]
    if check_types and isinstance(a, Mapping) and keys != other_keys:
        problem = f"the first has the keys {keys}, the second {other_keys}"
        return path, problem, errors.InvalidArgumentError
    if len(pairs) != len(other_pairs):
        problem = f"the first has {len(pairs)} items, the second {len(other_pairs)}"
        return path, problem, errors.InvalidArgumentError
    try:
        for (key, child), (_, other_child) in zip(pairs, other_pairs, strict=True):
            inner_difference = _difference(
                child, other_child, check_types, composites, (*path, key)
            )
            if inner_difference is not None:
                return inner_difference
    except RecursionError:
        raise too_deep_error(a) from None
    return None


def _is_same_type(a: Any, b: Any) -> bool:
    first, second = type(a), type(b)
    if first is second or (isinstance(a, Mapping) and isinstance(b, Mapping)):
        return True
    fields = getattr(first, "_fields", None)
    return (
        fields is not None
        and fields == getattr(second, "_fields", None)
        and first.__name__ == second.__name__
    )


# ------------------------------------------------------------------------------------ paths


def yield_flat_paths(nest: Any, expand_composites: bool = False) -> Iterator[Path]:
    """Yield the path to each leaf in the order of `flatten`: keys, field names, positions."""
    for path, _ in _walk(nest, expand_composites, ()):
        yield path


def _walk(value: Any, composites: bool, path: Path) -> Iterator[tuple[Path, Any]]:
    pairs = _open_container(value, composites)
    if pairs is None:
        yield path, value
        return
    try:
        for key, child in pairs:
            yield from _walk(child, composites, (*path, key))
    except RecursionError:
        raise too_deep_error(value) from None


def flatten_with_tuple_paths(
    structure: Any, expand_composites: bool = False
) -> list[tuple[Path, Any]]:
    """Return a list of (path, leaf) pairs; a path is a tuple."""
    return list(_walk(structure, expand_composites, ()))


def flatten_with_joined_string_paths(
    structure: Any, separator: str = "/", expand_composites: bool = False
) -> list[tuple[str, Any]]:
    """Return a list of (path, leaf) pairs; a path is a string."""
    walk = _walk(structure, expand_composites, ())
    return [(separator.join(map(str, path)), leaf) for path, leaf in walk]


def map_structure_with_tuple_paths(func: Callable[..., Any], *structure: Any, **kwargs: Any) -> Any:
    """Like `map_structure`; the function receives the path, a tuple, before the leaves."""
    if not structure:
        raise errors.InvalidArgumentError("map_structure requires at least one structure")
    paths = iter(list(yield_flat_paths(structure[0], kwargs.get("expand_composites", False))))
    return map_structure(lambda *leaves: func(next(paths), *leaves), *structure, **kwargs)


def map_structure_with_paths(func: Callable[..., Any], *structure: Any, **kwargs: Any) -> Any:
    """Like `map_structure`; the function receives the path, joined by "/", before the leaves."""
    return map_structure_with_tuple_paths(
        lambda path, *leaves: func("/".join(map(str, path)), *leaves), *structure, **kwargs
    )


# -------------------------------------------------------------------------- shallow structures


def assert_shallow_structure(shallow_tree: Any, input_tree: Any, check_types: bool = True) -> None:
    """Check that a structure extends a shallower one.

    Args:
      shallow_tree: structure whose leaves match any structure.
      input_tree: structure with the same containers at the same positions, down to those leaves.
      check_types: require containers of the same type as well.
    Raises:
      InvalidTypeError: a container is missing, or is of another type.
      InvalidArgumentError: a container has another number of items, or other keys.
    """
    flatten_up_to(shallow_tree, input_tree, check_types)


def flatten_up_to(shallow_tree: Any, input_tree: Any, check_types: bool = True) -> list[Any]:
    """Return the parts of `input_tree` at the leaves of `shallow_tree`, in order.

    Raises: InvalidTypeError, InvalidArgumentError: as `assert_shallow_structure`.
    """
    parts: list[Any] = []
    _flatten_up_to(shallow_tree, input_tree, check_types, parts)
    return parts


def _flatten_up_to(shallow: Any, value: Any, check_types: bool, parts: list[Any]) -> None:
    pairs = _open_container(shallow, False)
    if pairs is None:
        parts.append(value)
        return
    children = _open_container(value, False)
    if children is None:
        raise errors.InvalidTypeError(
            f"the structure must have a container such as {_sketch(shallow)} where it has the leaf "
            f"{value!r}"
        )
    if check_types and not _is_same_type(shallow, value):
        raise errors.InvalidTypeError(
            f"the structure must have a {type(shallow).__name__} like {_sketch(shallow)}, "
            f"got a {type(value).__name__}"
        )
    if len(pairs) != len(children):
        raise errors.InvalidArgumentError(
            f"the structure must have {len(pairs)} items like {_sketch(shallow)}, "
            f"got {len(children)}"
        )
    if isinstance(shallow, Mapping) and isinstance(value, Mapping):
        missing = [key for key in shallow if key not in value]
        if missing:
            raise errors.InvalidArgumentError(
                f"the structure must have the keys of {_sketch(shallow)}, but lacks {missing}"
            )
    try:
        for (_, child), (_, other_child) in zip(pairs, children, strict=True):
            _flatten_up_to(child, other_child, check_types, parts)
    except RecursionError:
        raise too_deep_error(shallow) from None


def map_structure_up_to(
    shallow_tree: Any, func: Callable[..., Any], *inputs: Any, **kwargs: Any
) -> Any:
    """Apply `func` to the parts of structures at the leaves of a shallower structure.

    Args:
      shallow_tree: structure at whose leaves the traversal stops.
      func: function with one argument per input.
      *inputs: structures that extend `shallow_tree`.
      **kwargs: `check_types`, as for `assert_shallow_structure`.
    Raises: InvalidTypeError, InvalidArgumentError: they do not extend it, or there are none.
    """
    if not inputs:
        raise errors.InvalidArgumentError("map_structure_up_to requires at least one structure")
    check_types = kwargs.pop("check_types", True)
    _reject_extra_arguments(kwargs, "check_types")
    columns = [flatten_up_to(shallow_tree, tree, check_types) for tree in inputs]
    results = [func(*parts) for parts in zip(*columns, strict=True)]
    return pack_sequence_as(shallow_tree, results)


def get_traverse_shallow_structure(traverse_fn: Callable[[Any], Any], structure: Any) -> Any:
    """Return a shallow structure of bools: the answers of a function at each level.

    Args:
      traverse_fn: function of a part of the structure that returns True to expand it; for a
        container it may return a structure of depth 1 with one bool per item.
      structure: any nested structure.
    Returns: False for parts that are not expanded, and the answers for the leaves.
    Raises: InvalidTypeError, InvalidArgumentError: an answer is not of these forms.
    """
    answer = traverse_fn(structure)
    pairs = _open_container(structure, False)
    if pairs is None or not is_nested(answer):
        if not isinstance(answer, bool):
            raise errors.InvalidTypeError(
                f"traverse_fn must return a Boolean for {structure!r}, got {answer!r}"
            )
        if pairs is None or not answer:
            return answer
        flags: list[Any] = [True] * len(pairs)
    else:
        flags = flatten_up_to(_rebuild(structure, [None] * len(pairs)), answer)
    shallow = []
    for (_, child), flag in zip(pairs, flags, strict=True):
        if not isinstance(flag, bool):
            raise errors.InvalidTypeError(
                f"traverse_fn must return Booleans for the items of a container, got {flag!r}"
            )
        shallow.append(get_traverse_shallow_structure(traverse_fn, child) if flag else False)
    return _rebuild(structure, shallow)


def flatten_dict_items(dictionary: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return a dictionary with its nested keys and values flattened in parallel.

    `{("a", ("b", "c")): (1, (2, 3))}` becomes `{"a": 1, "b": 2, "c": 3}`.

    Raises:
      InvalidTypeError: the argument is not a mapping.
      InvalidArgumentError: a key and its value differ in structure, or a key is repeated.
    """
    if not isinstance(dictionary, Mapping):
        raise errors.InvalidTypeError(f"input must be a dictionary, got {dictionary!r}")
    result: dict[Any, Any] = {}
    for key, value in dictionary.items():
        if is_nested(key):
            assert_same_structure(key, value)
            entries = list(zip(flatten(key), flatten(value), strict=True))
        else:
            entries = [(key, value)]
        for name, part in entries:
            if name in result:
                raise errors.InvalidArgumentError(f"the key {name!r} appears more than once")
            result[name] = part
    return result
