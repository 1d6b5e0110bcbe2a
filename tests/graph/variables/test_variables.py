from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from weft_exec.session.session import Session
from weft_graph.ir import builder
from weft_graph.ir.collections_keys import GraphKeys, add_to_collection, get_collection
from weft_graph.ir.graph import Graph
from weft_graph.ops import state
from weft_graph.variables import creators, reference as variables
from weft_graph.variables.base import VariableAggregation, VariableSynchronization
from weft_graph.variables.creators import variable_creator_scope
from weft_graph.variables.partitioning import fixed_size_partitioner
from weft_graph.variables.reference import RefVariable, Variable
from weft_graph.variables.resource import ResourceVariable, is_resource_variable
from weft_graph.variables.scope import get_variable
from weft_tensor import dtypes, errors

BOTH = pytest.mark.parametrize("use_resource", (False, True), ids=("ref", "resource"))


def names(graph: Graph) -> list[str]:
    return [node.name for node in graph.nodes]


def test_node_names_of_a_reference_variable() -> None:
    with Graph().as_default() as graph:
        variable = Variable([1.0, 2.0], name="W")
        assert names(graph) == ["W/initial_value", "W", "W/Assign", "W/read"]
        assert isinstance(variable, RefVariable) and isinstance(variable, Variable)
        assert variable.name == "W:0" and variable.op.type == "VariableV2"
        assert variable.value().name == "W/read:0"
        assert variable.initializer.name == "W/Assign"
        assert variable.dtype is dtypes.float32.as_ref
        assert variable.shape.as_list() == [2]
        assert variable.initializer.colocation == ("W",)
        assert variable.value().node.colocation == ("W",)


def test_node_names_of_a_resource_variable() -> None:
    with Graph().as_default() as graph:
        variable = Variable([1.0, 2.0], name="W", use_resource=True)
        assert names(graph) == [
            "W/initial_value",
            "W",
            "W/IsInitialized/VarIsInitializedOp",
            "W/Assign",
            "W/Read/ReadVariableOp",
        ]
        assert is_resource_variable(variable) and isinstance(variable, Variable)
        assert variable.name == "W:0" and variable.op.type == "VarHandleOp"
        assert variable.handle.dtype is dtypes.resource
        assert variable.dtype is dtypes.float32
        assert variable.value().shape.as_list() == [2]


@BOTH
def test_names_are_made_unique_with_their_scope(use_resource: bool) -> None:
    with Graph().as_default() as graph:
        made = [Variable(1.0, name="W", use_resource=use_resource) for _ in range(2)]
        made.append(Variable(1.0, use_resource=use_resource))
        with graph.name_scope("outer"):
            made.append(Variable(1.0, name="W", use_resource=use_resource))
    assert [variable.op.name for variable in made] == ["W", "W_1", "Variable", "outer/W"]
    assert made[1].initializer.name == "W_1/Assign"
    graph.check_integrity()


@BOTH
def test_an_initial_value_may_be_a_function(use_resource: bool) -> None:
    with Graph().as_default() as graph:
        variable = Variable(lambda: builder.constant(1.0), name="W", use_resource=use_resource)
    assert names(graph)[0] == "W/Initializer/Const"
    assert variable.initial_value is not None
    assert variable.initial_value.node.colocation == ("W",)


@BOTH
def test_control_inputs_do_not_reach_a_variable(use_resource: bool) -> None:
    with Graph().as_default() as graph, graph.control_dependencies([builder.constant(1.0)]):
        Variable(lambda: builder.constant(1.0), use_resource=use_resource)
    assert not any(node.control_inputs for node in graph.nodes)


def test_bad_arguments() -> None:
    with Graph().as_default():
        with pytest.raises(errors.InvalidArgumentError, match="initial_value"):
            Variable()
        for name in ("a b", "-a"):
            with pytest.raises(errors.InvalidArgumentError, match=f"'{name}'"):
                Variable(1.0, name=name)
        with pytest.raises(errors.InvalidArgumentError, match="known shape"):
            Variable(builder.out("TestOpen", (), {"dtype": dtypes.float32}))
        with pytest.raises(errors.InvalidTypeError, match="list"):
            Variable(1.0, collections="x")  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="no argument 'color'"):
            Variable(1.0, color=3)  # type: ignore[call-arg]
        with pytest.raises(errors.InvalidTypeError, match="truth value"):
            bool(Variable(1.0))
        with pytest.raises(errors.InvalidTypeError, match="constraint"):
            Variable(1.0, constraint=3)


def _declare() -> None:
    from weft_graph.ir.op_def import register_op

    register_op("TestOpen", outputs=("output: dtype",), attrs={"dtype": "type"})


_declare()


def test_a_variable_of_open_shape() -> None:
    with Graph().as_default():
        open_ = builder.out("TestOpen", (), {"dtype": dtypes.float32})
        assert Variable(open_, validate_shape=False).shape.ndims is None
        part = Variable(np.ones((2, 3)), shape=(None, 3))
        assert part.shape.as_list() == [None, 3]


def test_collections() -> None:
    with Graph().as_default():
        plain = Variable(1.0)
        fixed = Variable(1.0, trainable=False)
        local = Variable(1.0, collections=[GraphKeys.LOCAL_VARIABLES], trainable=False)
        assert variables.global_variables() == [plain, fixed]
        assert variables.trainable_variables() == [plain]
        assert variables.local_variables() == [local]
        assert variables.global_variables("Variable_1") == [fixed]
        add_to_collection("mine", plain)
        assert get_collection("mine") == [plain]


@BOTH
def test_operators(use_resource: bool) -> None:
    with Graph().as_default() as graph:
        variable = Variable([1.0, 2.0], use_resource=use_resource)
        total = 1.0 + variable * 2.0
        row = -variable
    session = Session(graph=graph)
    session.run(variable.initializer)
    np.testing.assert_array_equal(session.run(total), [3.0, 5.0])
    np.testing.assert_array_equal(session.run(row), [-1.0, -2.0])


@BOTH
def test_assignment_returns_the_value_after_it(use_resource: bool) -> None:
    with Graph().as_default() as graph:
        variable = Variable([1.0, 2.0], use_resource=use_resource)
        assigned = variable.assign([5.0, 6.0])
        added = assigned + 1.0
        node = variable.assign_sub([1.0, 1.0], read_value=False)
        more = state.assign_add(variable, [1.0, 1.0])
    session = Session(graph=graph)
    session.run(variable.initializer)
    np.testing.assert_array_equal(session.run(added), [6.0, 7.0])
    assert session.run(node) is None
    np.testing.assert_array_equal(session.run(variable), [4.0, 5.0])
    np.testing.assert_array_equal(session.run(more), [5.0, 6.0])


@BOTH
def test_updates_in_order(use_resource: bool) -> None:
    with Graph().as_default() as graph:
        variable = Variable(1.0, use_resource=use_resource)
        before = variable.read_value()
        with graph.control_dependencies([before]):
            double = variable.assign(before * 2.0)
        with graph.control_dependencies([double.op]):
            after = variable.read_value()
    session = Session(graph=graph)
    session.run(variable.initializer)
    assert session.run([before, after]) == [1.0, 2.0]


@BOTH
def test_reads_inside_control_dependencies_come_after_them(use_resource: bool) -> None:
    with Graph().as_default() as graph:
        variable = Variable([1.0, 2.0], name="W", use_resource=use_resource)
        update = variable.assign_add([10.0, 10.0])
        with graph.control_dependencies([update]):
            after = [variable * 1.0, builder.convert_to_tensor(variable), variable.value()]
        with graph.control_dependencies(()):
            before = builder.convert_to_tensor(variable)
    if not use_resource:
        assert before.node.name == "W/read"
        assert after[1].node.name.startswith("W/read_")
    session = Session(graph=graph)
    session.run(variable.initializer)
    for i, output in enumerate(after):
        np.testing.assert_array_equal(session.run(output), [11.0 + 10 * i, 12.0 + 10 * i])
    np.testing.assert_array_equal(session.run(before), [31.0, 32.0])


@BOTH
def test_eval_and_load(use_resource: bool) -> None:
    with Graph().as_default() as graph:
        variable = Variable([1.0, 2.0], use_resource=use_resource)
        with Session(graph=graph) as session:
            session.run(variable.initializer)
            np.testing.assert_array_equal(variable.eval(), [1.0, 2.0])
            variable.load([3.0, 4.0])
            np.testing.assert_array_equal(variable.eval(session), [3.0, 4.0])
    with pytest.raises(ValueError, match="needs a session") as caught:
        variable.eval()
    assert isinstance(caught.value, errors.FailedPreconditionError)


@BOTH
def test_a_failing_assignment_names_both_shapes(use_resource: bool) -> None:
    with Graph().as_default():
        variable = Variable([1.0, 2.0], use_resource=use_resource)
        with pytest.raises(errors.InvalidArgumentError, match=r"\[2\], got \[3\]"):
            variable.assign([1.0, 2.0, 3.0])
        with pytest.raises(errors.InvalidTypeError):
            variable.assign(builder.constant([1, 2]))


def test_initializing_many() -> None:
    with Graph().as_default() as graph:
        first, second = Variable(1.0), Variable(2.0, use_resource=True)
        local = Variable(3.0, collections=[GraphKeys.LOCAL_VARIABLES], trainable=False)
        report = variables.report_uninitialized_variables()
        check = variables.assert_variables_initialized()
        initializer = variables.global_variables_initializer()
        local_initializer = variables.local_variables_initializer()
    assert initializer.name == "init" and local_initializer.name == "init_1"
    session = Session(graph=graph)
    assert session.run(report).tolist() == [b"Variable", b"Variable_1", b"Variable_2"]
    with pytest.raises(errors.FailedPreconditionError):
        session.run(check)
    session.run(initializer)
    assert session.run(report).tolist() == [b"Variable_2"]
    session.run(local_initializer)
    assert session.run(report).tolist() == []
    session.run(check)
    assert session.run([first, second, local]) == [1.0, 2.0, 3.0]


@BOTH
def test_an_initial_value_may_use_another_variable(use_resource: bool) -> None:
    for _ in range(3):
        with Graph().as_default() as graph:
            first = Variable([1.0, 2.0], name="first", use_resource=use_resource)
            second = Variable(first * 2.0, name="second", use_resource=use_resource)
            third = Variable(second.initialized_value() + 1.0, use_resource=use_resource)
            initializer = variables.global_variables_initializer()
        session = Session(graph=graph)
        session.run(initializer)
        np.testing.assert_array_equal(session.run(second), [2.0, 4.0])
        np.testing.assert_array_equal(session.run(third), [3.0, 5.0])


def test_creators() -> None:
    seen: list[str] = []

    def outer(next_creator: Any, **kwargs: Any) -> Any:
        seen.append("outer")
        return next_creator(**kwargs)

    def inner(next_creator: Any, **kwargs: Any) -> Any:
        seen.append("inner")
        kwargs["use_resource"] = True
        return next_creator(**kwargs)

    with Graph().as_default():
        with variable_creator_scope(outer), variable_creator_scope(inner):
            made = Variable(1.0)
        assert seen == ["inner", "outer"] and isinstance(made, ResourceVariable)
        assert isinstance(Variable(1.0), RefVariable)


def test_resource_variables_by_default() -> None:
    with Graph().as_default():
        creators.enable_resource_variables()
        try:
            assert is_resource_variable(Variable(1.0))
        finally:
            creators.disable_resource_variables()
        assert not is_resource_variable(Variable(1.0))


@BOTH
def test_to_and_from_proto(use_resource: bool) -> None:
    with Graph().as_default() as graph:
        with graph.name_scope("a"):
            variable = Variable([1.0, 2.0], name="W", use_resource=use_resource, trainable=False)
        message = variable.to_proto()
        assert message.variable_name == "a/W:0" and message.is_resource == use_resource
        again = Variable.from_proto(message)
        assert type(again) is type(variable)
        assert again.op is variable.op and again.initializer is variable.initializer
        assert again.initial_value is variable.initial_value and not again.trainable
        assert again.dtype is variable.dtype
        inner = variable.to_proto(export_scope="a")
        assert inner.variable_name == "W:0"
        assert variable.to_proto(export_scope="b") is None
        assert Variable.from_proto(inner, import_scope="a").op is variable.op
        with pytest.raises(errors.NotFoundError):
            Variable.from_proto(inner)


def test_a_caching_device_is_not_one_of_the_devices_around() -> None:
    with Graph().as_default() as graph, graph.device("/job:ps/task:1"):
        variable = Variable([1.0], caching_device="/job:worker", use_resource=True)
    assert variable.value().device == "/job:worker"
    with graph.as_default(), graph.colocate_with(variable.op):
        beside = Variable([1.0], caching_device="/job:worker", use_resource=True)
    assert beside.value().device == "/job:worker"
    assert "_class" not in beside.value().node.attrs


@BOTH
def test_a_caching_device(use_resource: bool) -> None:
    with Graph().as_default():
        variable = Variable([1.0], caching_device="/cpu:0", use_resource=use_resource)
        assert variable.value() is variable.value()
        assert variable.value().device.endswith("CPU:0")


def test_scatter_methods() -> None:
    from weft_graph.ir.indexed_slices import IndexedSlices

    with Graph().as_default() as graph:
        variable = Variable(np.zeros((3, 2), np.float32))
        slices = IndexedSlices(builder.constant([[1.0, 2.0]]), builder.constant([2]))
        added = variable.scatter_add(slices)
        with pytest.raises(errors.InvalidTypeError, match="IndexedSlices"):
            variable.scatter_add(3)
    session = Session(graph=graph)
    session.run(variable.initializer)
    np.testing.assert_array_equal(session.run(added), [[0, 0], [0, 0], [1, 2]])


def test_static_checks_of_updates() -> None:
    with Graph().as_default():
        variable = Variable(np.zeros((4, 2), np.float32))
        with pytest.raises(errors.InvalidArgumentError, match=r"\[3,2\] or rank 0, got \[3\]"):
            state.scatter_add(variable, [0, 1, 2], [1.0, 2.0, 3.0])
        with pytest.raises(errors.InvalidArgumentError, match="must not exceed"):
            state.scatter_nd_add(variable, [[0, 1, 2]], [1.0])
        with pytest.raises(errors.InvalidTypeError, match="reference to a variable"):
            builder.out("AssignAdd", [builder.constant(1.0), 1.0])


def test_reading_through_a_handle_of_another_type_is_refused() -> None:
    with Graph().as_default():
        variable = Variable([1.0], use_resource=True)
        with pytest.raises(errors.InvalidTypeError, match="holds float32"):
            builder.out("ReadVariableOp", [variable.handle], {"dtype": dtypes.int32})


def test_initializer_of_tables() -> None:
    with Graph().as_default():
        table = builder.create("NoOp", (), None, "a_table")
        add_to_collection(GraphKeys.TABLE_INITIALIZERS, table)
        node = variables.tables_initializer()
        assert node.name == "init_all_tables" and node.control_inputs == [table]
        assert variables.initialize_all_tables("again").name == "again"


@BOTH
@pytest.mark.parametrize("get", (False, True), ids=("Variable", "get_variable"))
def test_what_is_synchronized_when_read_is_not_trainable_by_default(
    use_resource: bool, get: bool
) -> None:
    on_read = VariableSynchronization.ON_READ

    def make(**settings: Any) -> Variable:
        if get:
            return get_variable("v", [4], use_resource=use_resource, **settings)
        return Variable([0.0] * 4, use_resource=use_resource, **settings)

    for settings, wanted in (
        ({"synchronization": on_read}, False),
        ({"synchronization": on_read, "trainable": True}, True),
        ({"synchronization": VariableSynchronization.ON_WRITE}, True),
        ({"aggregation": VariableAggregation.SUM}, True),
    ):
        with Graph().as_default():
            variable = make(**settings)
            assert variable.trainable is wanted
            assert variables.trainable_variables() == [variable] * wanted
            assert variable.to_proto().trainable is wanted
            assert variable.synchronization == settings.get("synchronization", 0)
    with Graph().as_default():
        for setting in ("synchronization", "aggregation"):
            with pytest.raises(errors.InvalidArgumentError, match=setting):
                make(**{setting: "sum"})


def test_parts_that_are_synchronized_when_read_are_not_trainable() -> None:
    with Graph().as_default():
        settings = {"synchronization": VariableSynchronization.ON_READ}
        get_variable("v", [4], partitioner=fixed_size_partitioner(2), **settings)
        assert len(get_collection(GraphKeys.GLOBAL_VARIABLES)) == 2
        assert variables.trainable_variables() == []


def test_the_shape_of_a_resource_variable_is_known_while_the_graph_is_built() -> None:
    with Graph().as_default(), Session() as session:
        whole = Variable(np.zeros([2, 3]), use_resource=True)
        open_rows = Variable(np.zeros([2, 3]), use_resource=True, shape=[None, 3])
        shapes = [builder.out("VariableShape", [v.handle]) for v in (whole, open_rows)]
        filled = [builder.out("Fill", [shape, 1.0]).dims for shape in shapes]
        assert filled == [(2, 3), (None, 3)]
        with pytest.raises(errors.FailedPreconditionError):  # the value is still asked for
            session.run(shapes[0])
        session.run(whole.initializer)
        assert session.run(shapes[0]).tolist() == [2, 3]
