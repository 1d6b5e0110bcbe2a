from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from weft_exec.session.session import Session
from weft_graph.ir import builder
from weft_graph.ir.collections_keys import GraphKeys
from weft_graph.ir.graph import Graph
from weft_graph.variables import initializers
from weft_graph.variables.base import VariableAggregation, VariableSynchronization
from weft_graph.variables.partitioned import PartitionedVariable
from weft_graph.variables.partitioning import (
    fixed_size_partitioner,
    min_max_variable_partitioner,
    variable_axis_size_partitioner,
)
from weft_graph.variables.reference import global_variables, local_variables, trainable_variables
from weft_graph.variables.resource import is_resource_variable
from weft_graph.variables.scope import (
    AUTO_REUSE,
    create_partitioned_variables,
    get_local_variable,
    get_variable,
    get_variable_scope,
    no_regularizer,
    variable_scope,
)
from weft_graph.variables.template import make_template
from weft_tensor import dtypes, errors


def test_names_follow_variable_scopes_and_not_name_scopes() -> None:
    graph = Graph()
    inner = variable_scope("b")
    with graph.as_default(), graph.name_scope("names"), variable_scope("a"), inner as scope:
        variable = get_variable("w", [2])
        total = builder.out("AddV2", [variable, 1.0], name="add")
        assert scope.name == "a/b" and scope.original_name_scope == "names/a/b/"
    assert variable.name == "a/b/w:0" and total.name == "names/a/b/add:0"
    assert variable.initializer.name == "a/b/w/Assign"


def test_a_scope_entered_again_gets_a_new_name_scope() -> None:
    with Graph().as_default():
        with variable_scope("scope") as scope:
            first = builder.constant(1.0, name="c")
            variable = get_variable("w", [2])
        with variable_scope("scope", reuse=True):
            second = builder.constant(1.0, name="c")
            assert get_variable("w", [2]) is variable
        with variable_scope("other"), variable_scope(scope, reuse=True) as again:
            third = builder.constant(1.0, name="c")
            assert get_variable("w", [2]) is variable
            assert again.name == "scope" and again.original_name_scope == "scope/"
        with variable_scope(scope, auxiliary_name_scope=False):
            fourth = builder.constant(1.0, name="d")
    assert [first.name, second.name, third.name] == ["scope/c:0", "scope_1/c:0", "other/scope/c:0"]
    assert fourth.name == "d:0"


def test_default_names_are_made_unique() -> None:
    with Graph().as_default():
        made = []
        for _ in range(3):
            with variable_scope(None, default_name="layer"):
                made.append(get_variable("w", [1]).name)
        with variable_scope("outer"):
            with variable_scope(None, "layer"):
                made.append(get_variable("w", [1]).name)
            with variable_scope(None, "layer"):
                made.append(get_variable("w", [1]).name)
    assert made == [
        "layer/w:0",
        "layer_1/w:0",
        "layer_2/w:0",
        "outer/layer/w:0",
        "outer/layer_1/w:0",
    ]


def test_default_names_start_over_in_a_scope_that_is_entered_again() -> None:
    with Graph().as_default():
        for reuse in (False, True):
            with variable_scope("net", reuse=reuse), variable_scope(None, "layer"):
                assert get_variable("w", [1]).name == "net/layer/w:0"
    with pytest.raises(errors.InvalidArgumentError, match="name_or_scope"):
        variable_scope(None, "layer", reuse=True)
    with pytest.raises(errors.InvalidTypeError, match="needs name_or_scope"):
        variable_scope(None)


def test_reuse() -> None:
    with Graph().as_default():
        with variable_scope("a", reuse=AUTO_REUSE):
            first = get_variable("w", [2, 3])
            assert get_variable("w", [2, 3]) is first
            assert get_variable("w") is first
        with variable_scope("a") as scope:
            with pytest.raises(errors.InvalidArgumentError) as caught:
                get_variable("w", [2, 3])
            assert "a/w already exists" in str(caught.value)
            assert "test_variable_scope.py" in str(caught.value)
            scope.reuse_variables()
            assert get_variable("w") is first
        with variable_scope("a", reuse=True):
            with pytest.raises(errors.InvalidArgumentError, match=r"a/v does not exist.*Near.*a/w"):
                get_variable("v", [2])
            with pytest.raises(errors.InvalidArgumentError, match=r"shape \[2\] and found .*2, 3"):
                get_variable("w", [2])
            with pytest.raises(errors.InvalidTypeError, match="specified dtype int32 and found"):
                get_variable("w", [2, 3], dtypes.int32)
            with variable_scope("b") as inner:
                assert inner.reuse is True
        assert get_variable_scope().reuse is False


def test_settings_are_inherited() -> None:
    with Graph().as_default() as graph:
        ones = initializers.ones_initializer()
        settings = {"initializer": ones, "dtype": dtypes.float64, "use_resource": True}
        outer = variable_scope("a", **settings)
        with outer, variable_scope("b", regularizer=lambda v: v * 2.0) as scope:
            variable = get_variable("w", [2])
            plain = get_variable("v", [2], regularizer=no_regularizer, use_resource=False)
        assert variable.dtype is dtypes.float64 and is_resource_variable(variable)
        assert not is_resource_variable(plain)
        (loss,) = graph.get_collection(GraphKeys.REGULARIZATION_LOSSES)
        assert loss.name.startswith("a/b/w/Regularizer/")
        assert scope.global_variables() == [variable, plain]
    session = Session(graph=graph)
    session.run(variable.initializer)
    np.testing.assert_array_equal(session.run(loss), [2.0, 2.0])


def test_initializers_of_all_kinds() -> None:
    with Graph().as_default() as graph:

        def function(shape: Any, dtype: Any) -> Any:
            return builder.constant([1.0, 2.0])

        made = [
            get_variable("class", [2], initializer=initializers.zeros_initializer),
            get_variable("object", [2], initializer=initializers.constant_initializer(3.0)),
            get_variable("function", [2], initializer=function),
            get_variable("thunk", initializer=lambda: builder.constant([4.0])),
            get_variable("value", initializer=[1.0, 2.0]),
            get_variable("integers", [2], dtypes.int32),
            get_variable("text", [1], dtypes.string),
        ]
        with pytest.raises(errors.InvalidArgumentError, match="do not specify shape"):
            get_variable("both", [2], initializer=[1.0, 2.0])
        with pytest.raises(errors.InvalidArgumentError, match="fully defined"):
            get_variable("open", [None, 2])
        with pytest.raises(errors.InvalidArgumentError, match="fully defined"):
            get_variable("nothing")
    session = Session(graph=graph)
    session.run([variable.initializer for variable in made])
    values = [session.run(variable).tolist() for variable in made]
    assert values == [[0, 0], [3, 3], [1, 2], [4], [1, 2], [0, 0], [b""]]


def test_local_variables() -> None:
    with Graph().as_default():
        variable = get_local_variable("n", [1])
        assert local_variables() == [variable]
        assert not global_variables() and not trainable_variables()


def test_scopes_are_left_in_the_reverse_order_of_entering() -> None:
    with Graph().as_default():
        outer = variable_scope("outer")
        outer.__enter__()
        with (
            variable_scope("inner"),
            pytest.raises(RuntimeError, match="'outer/inner' is inside of 'outer'"),
        ):
            outer.__exit__(None, None, None)
        outer.__exit__(None, None, None)
        assert get_variable_scope().name == ""


def test_a_custom_getter_is_told_how_a_variable_is_synchronized() -> None:
    seen: dict[str, Any] = {}

    def getter(getter: Any, *args: Any, **kwargs: Any) -> Any:
        seen.update(kwargs)
        return getter(*args, **kwargs)

    with Graph().as_default(), variable_scope("a", custom_getter=getter):
        get_variable("v", [1])
    assert seen["synchronization"] is VariableSynchronization.AUTO
    assert seen["aggregation"] is VariableAggregation.NONE


def test_custom_getters_wrap_one_another() -> None:
    seen: list[str] = []

    def outer(getter: Any, name: str, *args: Any, **kwargs: Any) -> Any:
        seen.append("outer " + name)
        return getter(name, *args, **kwargs)

    def inner(getter: Any, name: str, *args: Any, **kwargs: Any) -> Any:
        seen.append("inner " + name)
        return builder.out("Identity", [getter(name + "_changed", *args, **kwargs)])

    with Graph().as_default():
        with variable_scope("a", custom_getter=outer), variable_scope("b", custom_getter=inner):
            result = get_variable("w", [2])
        assert seen == ["inner a/b/w", "outer a/b/w_changed"]
        assert result.node.type == "Identity"
        assert [variable.name for variable in global_variables()] == ["a/b/w_changed:0"]


def test_threads_have_scopes_of_their_own() -> None:
    import threading

    found: list[str] = []
    with Graph().as_default() as graph, variable_scope("a"):

        def work() -> None:
            with graph.as_default():
                found.append(get_variable_scope().name)

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert found == [""]


# --------------------------------------------------------------------------- templates


def test_templates_share_variables() -> None:
    def layer(x: Any, width: int) -> Any:
        return x + get_variable("w", [width])

    with Graph().as_default():
        template = make_template("layer", layer, width=2)
        other = make_template("layer", layer, width=2)
        x = builder.constant([1.0, 2.0])
        template(x), template(x), other(x)
        assert [variable.name for variable in global_variables()] == ["layer/w:0", "layer_1/w:0"]
        assert template.trainable_variables[0].name == "layer/w:0"
        assert [layer(x).op.name for layer in (template, other)] == ["layer_3/add", "layer_1_1/add"]
        at_once = [make_template("now", layer, True, width=2) for _ in range(2)]
        names = [each(x).op.name for each in (at_once[0], *at_once)]
        assert names == ["now/add", "now_1/add", "now_1_1/add"]
        fresh = make_template("more", lambda name: get_variable(name, [1]))
        fresh("a")
        with pytest.raises(errors.InvalidArgumentError, match="more/b does not exist"):
            fresh("b")


# --------------------------------------------------------------------------- partitions


def test_partitioned_variables() -> None:
    with Graph().as_default() as graph:
        with variable_scope("a", partitioner=fixed_size_partitioner(3)):
            variable = get_variable("w", [7, 2], initializer=initializers.ones_initializer())
            scalar = get_variable("s", [])
        assert isinstance(variable, PartitionedVariable)
        assert [part.name for part in variable] == [f"a/w/part_{i}:0" for i in range(3)]
        assert [part.shape.as_list() for part in variable] == [[3, 2], [2, 2], [2, 2]]
        info = list(variable)[1]._get_save_slice_info()
        assert info is not None and info.spec == "7 2 3,2:0,2" and info.full_name == "a/w"
        with variable_scope("a", reuse=True, partitioner=fixed_size_partitioner(3)):
            assert get_variable("w", [7, 2]) is variable
        with variable_scope("a", reuse=True):
            assert get_variable("w", [7, 2]) is get_variable("w") is variable
            with pytest.raises(errors.InvalidArgumentError, match=r"shape \[2,7\] and found"):
                get_variable("w", [2, 7])
        for reuse in (False, AUTO_REUSE):
            with (
                variable_scope("a", reuse=reuse),
                pytest.raises(errors.InvalidArgumentError, match="with reuse=True"),
            ):
                get_variable("w", [7, 2])
        doubled = builder.out("Mul", [variable, 2.0])
        assigned = variable.assign(np.arange(14, dtype=np.float32).reshape(7, 2))
    session = Session(graph=graph)
    session.run([part.initializer for part in variable])
    np.testing.assert_array_equal(session.run(doubled), np.full((7, 2), 2.0))
    session.run(assigned)
    np.testing.assert_array_equal(session.run(variable.as_tensor()).reshape(-1), np.arange(14))
    assert scalar.shape.as_list() == []


def test_parts_take_their_slice_of_an_initial_value() -> None:
    value = np.arange(10, dtype=np.float32).reshape(2, 5)
    with Graph().as_default() as graph:
        by_value = get_variable("v", initializer=value, partitioner=fixed_size_partitioner(2, 1))
        eye = get_variable(
            "i",
            [4, 4],
            initializer=initializers.identity_initializer(),
            partitioner=fixed_size_partitioner(2),
        )
        parts = create_partitioned_variables([4, 2], [2, 1], initializers.zeros_initializer())
    session = Session(graph=graph)
    session.run([part.initializer for variable in (by_value, eye, parts) for part in variable])
    np.testing.assert_array_equal(session.run(by_value.as_tensor()), value)
    np.testing.assert_array_equal(session.run(eye.as_tensor()), np.eye(4))
    assert [part.shape.as_list() for part in parts] == [[2, 2], [2, 2]]


def test_partitioners() -> None:
    arguments = {"shape": [100, 25], "dtype": dtypes.float32}
    assert fixed_size_partitioner(4)(**arguments) == [4, 1]
    assert fixed_size_partitioner(400)(**arguments) == [100, 1]
    assert variable_axis_size_partitioner(2500)(**arguments) == [4, 1]
    assert variable_axis_size_partitioner(2500, max_shards=2)(**arguments) == [2, 1]
    assert variable_axis_size_partitioner(1)(**arguments) == [100, 1]
    assert min_max_variable_partitioner(8, min_slice_size=2000)(**arguments) == [5, 1]
    assert min_max_variable_partitioner(2, axis=1, min_slice_size=1)(**arguments) == [1, 2]
    with pytest.raises(errors.InvalidArgumentError):
        variable_axis_size_partitioner(0)
    with Graph().as_default(), pytest.raises(errors.InvalidArgumentError, match="one axis only"):
        get_variable("w", [4, 4], partitioner=lambda **_: [2, 2])


def test_names_of_variables_that_are_made_in_parts() -> None:
    with Graph().as_default(), variable_scope("hi"):
        made = [
            create_partitioned_variables([4], [2], initializers.zeros_initializer(), name=name)
            for name in (None, None, "w")
        ]
    wholes = [parts[0]._get_save_slice_info().full_name for parts in made]
    assert wholes == ["hi/PartitionedVariable", "hi/PartitionedVariable_1", "hi/w"]
    assert [parts[1].name for parts in made] == [f"{name}/part_1:0" for name in wholes]


def test_parts_must_have_elements() -> None:
    with Graph().as_default():
        for slicing in ([1, 4], [3, 1], [1], [0, 1], [2, 2]):
            with pytest.raises(errors.InvalidArgumentError):
                create_partitioned_variables([2, 3], slicing, initializers.ones_initializer())
