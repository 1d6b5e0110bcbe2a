"""Lookup tables, against dictionaries."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from weft_testing.parts import Parts

from weft_exec.session.session import Session
from weft_graph import Graph
from weft_graph.control_flow.functional import map_fn
from weft_graph.ir.builder import convert_to_tensor, create
from weft_graph.ir.collections_keys import GraphKeys
from weft_graph.ir.indexed_slices import SparseTensor
from weft_graph.ops.array import placeholder
from weft_graph.variables.reference import tables_initializer
from weft_io.lookup.initializers import KeyValueTensorInitializer
from weft_io.lookup.tables import DenseHashTable, MutableHashTable, StaticHashTable
from weft_io.lookup.vocabulary import (
    IdTableWithHashBuckets,
    StaticVocabularyTable,
    StrongHashSpec,
)
from weft_io.resources.key_index import index_for
from weft_io.resources.table import Table
from weft_tensor import dtypes, errors

Pairs = KeyValueTensorInitializer


@pytest.fixture(autouse=True)
def _graph() -> Iterator[None]:
    with Graph().as_default():
        yield


@pytest.fixture
def session() -> Iterator[Session]:
    with Session() as found:
        yield found


def listed(value: Any) -> Any:
    return np.asarray(value).tolist()


def pairs_of(exported: Any) -> dict[Any, Any]:
    keys, values = exported
    return dict(zip(listed(keys), listed(values), strict=True))


# ---------------------------------------------------------------------------- the index


@pytest.mark.parametrize(
    ("dtype", "width"),
    [("int64", 1), ("int64", 3), ("uint8", 1), ("float32", 1), ("string", 1), ("string", 2)],
)
def test_an_index_does_what_a_dictionary_does(dtype: str, width: int) -> None:
    kind = dtypes.as_dtype(dtype)
    draw = np.random.default_rng(3)
    index = index_for(kind, width)
    wanted: dict[Any, int] = {}

    def keys_of(count: int) -> np.ndarray[Any, Any]:
        numbers = draw.integers(0, 200 if width == 1 else 7, (count, width)) * 3 - 40
        if kind is dtypes.string:
            return np.array([[b"%d" % n for n in row] for row in numbers], object).reshape(
                -1, width
            )
        return numbers.astype(kind.numpy)

    for turn in range(40):
        keys = keys_of(int(draw.integers(0, 120)))
        items = list(map(tuple, keys.tolist()))
        if turn % 3 == 2:
            holes, movers = index.remove(keys)
            names = {row: key for key, row in wanted.items()}
            for key in set(items):
                wanted.pop(key, None)
            for hole, row in zip(holes.tolist(), movers.tolist(), strict=True):
                wanted[names[row]] = hole
        else:
            rows = index.add(keys).tolist()
            wanted |= dict(zip(items, rows, strict=True))
        assert len(index) == len(wanted)
        assert sorted(wanted.values()) == list(range(len(wanted)))
        asked = keys_of(60)
        found = index.find(asked).tolist()
        assert found == [wanted.get(key, -1) for key in map(tuple, asked.tolist())]


def test_equal_numbers_are_equal_keys() -> None:
    index = index_for(dtypes.float32, 1)
    index.add(np.array([0.0, 1.5], np.float32))
    assert listed(index.find(np.array([-0.0, 1.5, 2.5], np.float32))) == [0, 1, -1]


# ---------------------------------------------------------------------------- static tables

TYPES: dict[str, Any] = {
    "int32": np.array([3, -1, 7], np.int32),
    "int64": np.array([1 << 62, -(1 << 62), 0]),
    "uint64": np.array([1 << 63, 5, 0], np.uint64),
    "float32": np.array([0.5, -1, 2], np.float32),
    "float64": np.array([0.1, np.inf, -3]),
    "bool": np.array([True, False]),
    "string": np.array([b"a", b"", b"\xff\0"], object),
}
VALUES = TYPES | {
    "complex64": np.array([1j, 2, 3], np.complex64),
    "float16": np.array([1, 2, 3], np.float16),
    "bfloat16": np.array([1, 2, 3], dtypes.bfloat16.numpy),
    "int8": np.array([1, -2, 3], np.int8),
}


def test_keys_and_values_of_all_types(session: Session) -> None:
    with Parts() as parts:
        for key_type, all_keys in TYPES.items():
            for value_type, all_values in VALUES.items():
                with parts.part(f"{key_type} to {value_type}"):
                    count = min(len(all_keys), len(all_values))
                    check_pairs(session, all_keys[:count], all_values[:count])


def check_pairs(session: Session, keys: Any, values: Any) -> None:
    key_type, value_type = (dtypes.from_numpy(each.dtype) for each in (keys, values))
    static = StaticHashTable(Pairs(keys, values), values[0])
    change = MutableHashTable(key_type, value_type, values[0], checkpoint=False)
    session.run([static.initializer, change.insert(keys, values)])
    asked = np.array([keys[::-1]])
    for table in (static, change):
        found, size, exported = session.run([table.lookup(asked), table.size(), table.export()])
        assert found.dtype == values.dtype
        assert listed(found) == [listed(values[::-1])]
        assert size == len(keys)
        assert pairs_of(exported) == pairs_of((keys, values))


def test_what_is_not_there_has_the_default_value(session: Session) -> None:
    table = StaticHashTable(Pairs([1, 2], ["one", "two"]), "none")
    session.run(tables_initializer())
    assert listed(session.run(table.lookup([[2, 9]]))) == [[b"two", b"none"]]
    assert session.run(table.lookup(9)) == b"none"
    sparse = SparseTensor([[0, 1], [2, 0]], [1, 7], [3, 2])
    found = session.run(table[sparse])
    assert listed(found.values) == [b"one", b"none"]
    assert listed(found.indices) == [[0, 1], [2, 0]]
    assert session.run(table.lookup(np.zeros([0, 3], np.int32))).shape == (0, 3)
    nothing = StaticHashTable(Pairs(np.zeros(0, np.int64), np.zeros(0, np.int64)), -1)
    session.run(nothing.initializer)
    assert listed(session.run(nothing.lookup([1, 2]))) == [-1, -1]


def test_shapes_are_known_where_they_can_be() -> None:
    table = StaticHashTable(Pairs([1, 2], [1.0, 2.0]), 0.0)
    asked = placeholder(dtypes.int32, [None, 3])
    assert table.lookup(asked).shape.as_list() == [None, 3]
    wide = MutableHashTable(dtypes.int32, dtypes.float32, [0.0, 0.0])
    assert wide.lookup(asked).shape.as_list() == [None, 3, 2]
    assert [part.shape.as_list() for part in wide.export()] == [[None], [None, 2]]
    dense = DenseHashTable(dtypes.int32, dtypes.float32, 0.0, [0, 0, 0], [1, 1, 1])
    assert dense.lookup(asked).shape.as_list() == [None]


def test_an_initializer_runs_again_only_with_the_same(session: Session) -> None:
    keys = placeholder(dtypes.int64, [None])
    table = StaticHashTable(Pairs(keys, keys), -1)
    for again in ([1, 2], [2, 1]):
        session.run(table.initializer, {keys: again})
    for other in ([1, 3], [1], [1, 2, 3], [1, 1]):
        with pytest.raises(errors.FailedPreconditionError, match="different data"):
            session.run(table.initializer, {keys: other})
    assert session.run(table.size()) == 2


def test_a_static_table_refuses(session: Session) -> None:
    table = StaticHashTable(Pairs([1, 2], [3, 4]), -1)
    handle = table.resource_handle
    changes = [
        create("LookupTableInsertV2", [handle, [5], [6]]),
        create("LookupTableRemoveV2", [handle, [1]]),
    ]
    with Parts() as parts:
        for fetch in (table.lookup([1]), table.size(), table.export()):
            with (
                parts.part(f"{fetch}"),
                pytest.raises(errors.FailedPreconditionError, match="not initialized"),
            ):
                session.run(fetch)
        session.run(table.initializer)
        for node in changes:
            with parts.part(node.type), pytest.raises(errors.UnimplementedError, match="static"):
                session.run(node)
        twice = StaticHashTable(Pairs([1, 5, 1], [2, 2, 3]), -1)
        with (
            parts.part("two values"),
            pytest.raises(errors.FailedPreconditionError, match=r"Key 1 has 2 and .* value 3"),
        ):
            session.run(twice.initializer)
    equal = StaticHashTable(Pairs([1, 1], [2, 2]), -1)
    session.run(equal.initializer)
    assert session.run(equal.size()) == 1


BAD: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "no initializer": (lambda: StaticHashTable(3, 1), TypeError, "requires an initializer"),
    "rank 2": (
        lambda: StaticHashTable(Pairs([[1]], [[2]]), 1),
        errors.InvalidArgumentError,
        "keys must have rank 1",
    ),
    "sizes": (
        lambda: StaticHashTable(Pairs([1, 2], [2]), 1),
        errors.InvalidArgumentError,
        "got 2 and 1",
    ),
    "keys of another type": (
        lambda: StaticHashTable(Pairs([1], [2]), 1).lookup(convert_to_tensor([1.5])),
        TypeError,
        "must be int32, got float32",
    ),
    "default of another shape": (
        lambda: StaticHashTable(Pairs([1], [2]), [1, 2]),
        errors.InvalidArgumentError,
        "default_value must be a scalar",
    ),
    "default of another type": (
        lambda: StaticHashTable(Pairs([1], [2]), "x"),
        TypeError,
        "default_value must be int32",
    ),
    "inserted shapes": (
        lambda: MutableHashTable(dtypes.int32, dtypes.int32, [0, 0]).insert([1, 2], [3, 4]),
        errors.InvalidArgumentError,
        r"must have shape \[2,2\]",
    ),
    "no buckets": (
        lambda: StaticVocabularyTable(None, 0),
        errors.InvalidArgumentError,
        "must be > 0",
    ),
    "ids of another type": (
        lambda: StaticVocabularyTable(Pairs(["a"], [1], None, dtypes.int32), 1),
        TypeError,
        "expected int64",
    ),
    "words of another kind": (
        lambda: StaticVocabularyTable(
            Pairs(["a"], [1], None, dtypes.int64), 1, lookup_key_dtype=dtypes.int64
        ),
        TypeError,
        "expected string",
    ),
    "half a key": (lambda: StrongHashSpec([1]), errors.InvalidArgumentError, "size 2"),
}


def test_bad_arguments_are_refused_when_a_table_is_made() -> None:
    with Parts() as parts:
        for name, (make, error, words) in BAD.items():
            with parts.part(name), pytest.raises(error, match=words):
                make()


# ---------------------------------------------------------------------------- mutable tables


def test_a_mutable_table_of_tensors(session: Session) -> None:
    table = MutableHashTable(dtypes.string, dtypes.float32, [0.0, -1.0])
    session.run(table.insert([["a", "b"]], [[[1.0, 2.0], [3.0, 4.0]]]))
    session.run(table.insert(["c", "a", "c"], [[5.0, 5.0], [6.0, 6.0], [7.0, 7.0]]))
    assert listed(session.run(table.lookup(["c", "a", "x"]))) == [[7, 7], [6, 6], [0, -1]]
    one_each = table.lookup(["c", "x"], dynamic_default_values=[[8.0, 8.0], [9.0, 9.0]])
    assert listed(session.run(one_each)) == [[7, 7], [9, 9]]
    session.run(table.remove(["a", "zz", "a"]))
    assert session.run(table.size()) == 2
    assert pairs_of(session.run(table.export())) == {b"b": [3, 4], b"c": [7, 7]}
    session.run(table.erase(["b", "c"]))
    assert listed(session.run(table.lookup(["b"]))) == [[0, -1]]


def test_a_dense_table_has_vectors_for_keys(session: Session) -> None:
    table = DenseHashTable(dtypes.int64, dtypes.string, "none", [0, 0], [-1, -1])
    session.run(table.insert([[1, 2], [2, 1]], ["a", "b"]))
    assert listed(session.run(table.lookup([[[2, 1]], [[1, 1]]]))) == [[b"b"], [b"none"]]
    session.run(table.remove([[1, 2]]))
    assert listed(session.run(table.export())[0]) == [[2, 1]]
    for key in ([[0, 0]], [[3, 3], [-1, -1]]):
        with pytest.raises(errors.InvalidArgumentError, match="_key as a table key is not allowed"):
            session.run(table.lookup(key))


def test_a_dense_table_checks_its_arguments(session: Session) -> None:
    def dense(*keys: Any, buckets: int = 4) -> Any:
        return DenseHashTable(dtypes.int64, dtypes.int64, 0, *keys, buckets).size()

    with Parts() as parts:
        for what, make, words in (
            ("one key", lambda: dense(1, 1), "must differ"),
            ("shapes", lambda: dense([1], 1), "of the same shape"),
            ("rank", lambda: dense([[1]], [[2]]), "scalars or non-empty vectors"),
            ("nothing", lambda: dense([], []), "scalars or non-empty vectors"),
            ("buckets", lambda: dense(1, 2, buckets=3), "a power of 2"),
        ):
            with parts.part(what), pytest.raises(errors.InvalidArgumentError, match=words):
                session.run(make())
    assert session.run(dense([1, 2], [1, 3])) == 0


def test_exported_tables_of_tensorflow_are_imported(session: Session) -> None:
    """The exported arrays contain the two special keys, once for each free bucket."""
    table = DenseHashTable(dtypes.int64, dtypes.int64, 0, empty_key=-1, deleted_key=-2)
    given = [[-1, 5, -2, -1, 6], [0, 50, 1, 0, 60]]
    session.run(create("LookupTableImportV2", [table.resource_handle, *map(np.int64, given)]))
    assert pairs_of(session.run(table.export())) == {5: 50, 6: 60}


def test_shared_names_and_former_handles() -> None:
    one = MutableHashTable(dtypes.int64, dtypes.int64, 0, name="one", shared_name="table")
    other = MutableHashTable(dtypes.int64, dtypes.int64, 0, name="other", shared_name="table")
    attrs = {"key_dtype": dtypes.int64, "value_dtype": dtypes.int64, "shared_name": "table"}
    former = create("MutableHashTable", (), attrs).outputs[0]
    found = create("LookupTableFind", [former, np.int64([1]), np.int64(0)]).outputs[0]
    wrong = MutableHashTable(dtypes.int64, dtypes.string, "", shared_name="table").size()
    with Session() as session:
        session.run(one.insert([1], [7]))
        assert listed(session.run([other.lookup([1]), found])) == [[7], [7]]
        with pytest.raises(errors.InvalidArgumentError, match="maps int64 to int64, but"):
            session.run(wrong)
    with Session() as session:
        assert session.run(other.size()) == 0


def test_inserting_and_finding_at_once() -> None:
    table = Table("t", dtypes.int64, dtypes.int64)
    failed: list[Any] = []

    def insert(start: int) -> None:
        for i in range(start, start + 3000, 30):
            table.insert(np.arange(i, i + 30), np.arange(i, i + 30) * 2)

    def find() -> None:
        for _ in range(100):
            keys = np.arange(0, 9000, 7)
            found = table.find(keys, np.int64(-1))
            failed.extend(found[(found != -1) & (found != keys * 2)].tolist())

    threads = [threading.Thread(target=insert, args=(n,)) for n in (0, 3000, 6000)]
    threads += [threading.Thread(target=find) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert listed(table.find(np.arange(9000), np.int64(-1))) == [2 * n for n in range(9000)]


# ---------------------------------------------------------------------------- vocabularies


def test_words_that_are_not_in_a_vocabulary_have_buckets(session: Session) -> None:
    words = Pairs(["a", "b"], [0, 1], value_dtype=dtypes.int64)
    table = StaticVocabularyTable(words, 3)
    session.run(table.initializer)
    # The buckets are those of TensorFlow.
    assert listed(session.run(table.lookup([["a", "x"], ["y", "zz"]]))) == [[0, 4], [4, 3]]
    assert session.run([table.size(), table.lookup("b")]) == [5, 1]
    assert session.run(table.lookup(np.zeros((2, 0), object))).shape == (2, 0)
    numbers = StaticVocabularyTable(
        Pairs([5, 6], [0, 1], dtypes.int64, dtypes.int64), 3, lookup_key_dtype=dtypes.int32
    )
    session.run(numbers.initializer)
    assert listed(session.run(numbers.lookup(np.int32([5, 7, 8, 9])))) == [0, 3, 3, 4]
    only = StaticVocabularyTable(None, 3)
    assert listed(session.run(only.lookup(["5", "7", "8"]))) == [1, 1, 1]
    secret = IdTableWithHashBuckets(None, 1 << 40, StrongHashSpec([1, 2]))
    assert session.run(secret.lookup("a")) != session.run(
        IdTableWithHashBuckets(None, 1 << 40, StrongHashSpec([1, 3])).lookup("a")
    )


def test_a_table_in_the_collections() -> None:
    StaticHashTable(Pairs([1], [2]), 0)
    MutableHashTable(dtypes.int64, dtypes.int64, 0)
    DenseHashTable(dtypes.int64, dtypes.int64, 0, 1, 2, checkpoint=False)
    graph = convert_to_tensor(0).graph
    assert len(graph.get_collection(GraphKeys.TABLE_INITIALIZERS)) == 1
    assert len(graph.get_collection(GraphKeys.SAVEABLE_OBJECTS)) == 1


def test_tables_of_a_loop_are_made_once_outside(session: Session) -> None:
    def found(x: Any) -> Any:
        pairs = KeyValueTensorInitializer([1, 2], [5, 10], dtypes.int32, dtypes.int32)
        return StaticHashTable(pairs, -1).lookup(x)

    twice = [map_fn(found, np.int32([2, 4, 1])) for _ in range(2)]
    session.run(tables_initializer())
    assert [list(each) for each in session.run(twice)] == [[10, -1, 5]] * 2


def test_the_size_of_a_vocabulary_without_words(session: Session) -> None:
    assert session.run(StaticVocabularyTable(None, 5).size()) == 5
