"""Building graphs: names, scopes, lookups, edits, and errors at construction."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

import weft as wf
from weft import errors


@pytest.fixture(autouse=True)
def graph() -> wf.Graph:
    with wf.Graph().as_default() as made:
        yield made


class TestNames:
    def test_default_names_are_the_op_types_made_unique(self) -> None:
        a, b = wf.constant(1.0), wf.constant(2.0)
        assert [a.name, b.name, (a + b).name, (a + b).name] == [
            "Const:0",
            "Const_1:0",
            "add:0",
            "add_1:0",
        ]

    def test_names_differ_in_more_than_case(self) -> None:
        assert wf.constant(1.0, name="x").op.name == "x"
        assert wf.constant(1.0, name="X").op.name == "X_1"

    def test_scopes_nest_and_are_made_unique(self) -> None:
        with wf.name_scope("a"), wf.name_scope("b") as inner:
            assert wf.constant(1.0, name="c").op.name == "a/b/c"
        with wf.name_scope("a") as again:
            assert again == "a_1/"
        with wf.name_scope(inner):
            assert wf.constant(1.0, name="d").op.name == "a/b/d"
        with wf.name_scope(None, "default", []) as scope:
            assert scope == "default/"

    @pytest.mark.parametrize("name", ["a b", "-x", "é", "_hidden"])
    def test_invalid_names_are_refused(self, name: str) -> None:
        with pytest.raises(ValueError, match="not a valid"):
            wf.constant(1.0, name=name)

    def test_lookups(self, graph: wf.Graph) -> None:
        parts = wf.split(wf.zeros([4]), 2, name="parts")
        assert graph.get_tensor_by_name("parts:1") is parts[1]
        assert graph.get_operation_by_name("parts") is parts[0].op
        with pytest.raises(KeyError):
            graph.get_tensor_by_name("parts:2")
        with pytest.raises(KeyError):
            graph.get_operation_by_name("absent")
        with pytest.raises(ValueError, match="node:port"):
            graph.get_tensor_by_name("parts")


class TestErrorsAtConstruction:
    def test_shapes_say_required_and_got_and_the_line(self) -> None:
        with pytest.raises(ValueError, match=r"\[2,3\].*\[4,5\]") as caught:
            wf.matmul(wf.zeros([2, 3]), wf.zeros([4, 5]), name="product")
        error = caught.value
        assert isinstance(error, errors.InvalidArgumentError)
        assert error.op_type == "MatMul" and error.node == "product"
        assert "test_graph.py" in str(error.line)

    def test_types_say_required_and_got(self) -> None:
        with pytest.raises(TypeError, match=r"float32.*int32"):
            wf.add(wf.constant(1.0), wf.constant(1))
        with pytest.raises(TypeError, match="int32"):
            wf.constant(1) + 1.5

    def test_python_values_take_the_others_type(self) -> None:
        x = wf.placeholder(wf.float16, [2])
        assert (2 * x + 1.5).dtype == wf.float16
        assert (1 - wf.constant(1, wf.int64)).dtype == wf.int64

    def test_graphs_do_not_mix(self) -> None:
        with wf.Graph().as_default():
            other = wf.constant(1.0)
        with pytest.raises(ValueError, match="graph"):
            wf.constant(1.0) + other

    def test_a_finalized_graph_does_not_grow(self, graph: wf.Graph) -> None:
        graph.finalize()
        with pytest.raises(errors.FailedPreconditionError, match="finalized"):
            wf.constant(1.0)

    def test_a_tensor_has_no_truth_value(self) -> None:
        with pytest.raises(TypeError):
            bool(wf.constant(True))
        with pytest.raises(TypeError):
            np.array(wf.constant(1.0))

    def test_iteration_needs_a_static_size(self) -> None:
        a, b = wf.constant([1.0, 2.0])
        assert a.shape.as_list() == [] and b.dtype == wf.float32
        with pytest.raises(TypeError, match="iterated"):
            list(wf.placeholder(wf.float32, [None]))

    def test_identity_is_what_equality_means(self) -> None:
        a, b = wf.constant(1.0), wf.constant(1.0)
        assert a == a and a != b and len({a, b}) == 2


class TestScopes:
    def test_control_inputs_go_where_no_data_edge_orders_already(self) -> None:
        a, b = wf.no_op(name="a"), wf.no_op(name="b")
        with wf.control_dependencies([a]):
            c = wf.constant(1.0)
            d = wf.negative(c)
            with wf.control_dependencies([b]):
                e = wf.constant(2.0)
            with wf.control_dependencies(None):
                f = wf.constant(3.0)
        assert list(c.op.control_inputs) == [a]
        assert list(d.op.control_inputs) == []
        assert list(e.op.control_inputs) == [a, b]
        assert list(f.op.control_inputs) == []
        assert c.op in a.control_outputs

    def test_devices_merge_and_inner_parts_win(self) -> None:
        with wf.device("/job:worker/task:17"):
            with wf.device("/GPU:3"):
                inner = wf.constant(1.0)
            with wf.device("/task:2"):
                other = wf.constant(1.0)
            with wf.device(None):
                free = wf.constant(1.0)
        assert inner.device == "/job:worker/task:17/device:GPU:3"
        assert other.device == "/job:worker/task:2"
        assert free.device == ""
        with wf.device(lambda op: "/cpu:0" if op.type == "Const" else "/gpu:0"):
            assert wf.constant(1.0).device == "/device:CPU:0"
        with pytest.raises(ValueError, match="device name"), wf.device("/bogus:0:1:2"):
            wf.constant(1.0)

    def test_colocation(self) -> None:
        with wf.device("/cpu:0"):
            a = wf.constant(1.0, name="a")
        with wf.colocate_with(a):
            b = wf.constant(2.0)
        assert b.op.colocation_groups() == [b"loc:@a"]
        assert b.device == a.device

    def test_collections(self, graph: wf.Graph) -> None:
        a = wf.constant(1.0, name="layer/a")
        wf.add_to_collection("mine", a)
        wf.add_to_collection("mine", wf.constant(1.0, name="b"))
        assert wf.get_collection("mine", scope="layer") == [a]
        wf.get_collection("mine").clear()
        assert len(wf.get_collection("mine")) == 2
        graph.clear_collection("mine")
        assert wf.get_collection("mine") == []

    def test_stacks_must_be_left_in_order(self, graph: wf.Graph) -> None:
        assert wf.get_default_graph() is graph
        with pytest.raises(errors.FailedPreconditionError, match="inside"):
            wf.reset_default_graph()


ACTIONS = ["add", "input", "uses", "all uses", "control", "remove"]


class TestEdits:
    def test_replacing_uses_keeps_both_directions(self, graph: wf.Graph) -> None:
        a, b = wf.constant(1.0), wf.constant(2.0)
        user = a + a
        assert graph.replace_uses(a, b, reason="test") == 1
        assert list(user.op.inputs) == [b, b] and a.consumers() == []
        assert b.consumers() == [user.op]
        graph.check_integrity()

    def test_a_refused_edit_changes_nothing(self, graph: wf.Graph) -> None:
        a, i = wf.constant(1.0), wf.constant(1)
        user = wf.negative(a)
        with pytest.raises(TypeError):
            graph.replace_uses(a, i, reason="test")
        with pytest.raises(ValueError, match="uses it"):
            graph.remove_nodes([a.op], reason="test")
        assert user.op.inputs[0] is a
        graph.check_integrity()

    def test_replacing_many_outputs_at_once_keeps_some_consumers(self, graph: wf.Graph) -> None:
        a, b, c = wf.constant(1.0), wf.constant(2.0), wf.constant(3.0)
        user, kept = wf.add_n([a, b, a, c]), wf.add_n([a, b])
        swapped = {a: b, b: a}  # what replaces an output is not replaced in turn
        assert graph.replace_all_uses(swapped, reason="test", keep=[kept.op]) == 1
        assert list(user.op.inputs) == [b, a, b, c] and list(kept.op.inputs) == [a, b]
        graph.check_integrity()
        with pytest.raises(TypeError):
            graph.replace_all_uses({c: a, b: wf.constant(1)}, reason="test")
        assert list(user.op.inputs) == [b, a, b, c]
        graph.check_integrity()

    def test_removal(self, graph: wf.Graph) -> None:
        a = wf.constant(1.0, name="a")
        b = wf.negative(a, name="b")
        graph.remove_nodes([b.op], reason="test")
        assert a.consumers() == []
        with pytest.raises(KeyError):
            graph.get_operation_by_name("b")
        graph.check_integrity()

    def test_integrity_finds_what_is_missing(self, graph: wf.Graph) -> None:
        a = wf.constant(1.0, name="a")
        wf.negative(a, name="b")
        a._uses = None
        with pytest.raises(errors.InternalError, match=r"a:0: missing users \['b'\]"):
            graph.check_integrity()

    @given(st.data())
    def test_use_lists_survive_any_sequence_of_edits(self, data: st.DataObject) -> None:
        with wf.Graph().as_default() as graph:
            values = [wf.constant(float(i)) for i in range(3)]
            for _ in range(data.draw(st.integers(1, 25))):
                action = data.draw(st.sampled_from(ACTIONS))
                pick = st.sampled_from(values)
                users = [v.op for v in values if v.op.inputs]
                if action == "add":
                    values.append(data.draw(pick) + data.draw(pick))
                elif action == "input" and users:
                    node = data.draw(st.sampled_from(users))
                    position = data.draw(st.integers(0, 1))
                    graph.replace_input(node, position, data.draw(pick), reason="test")
                elif action == "uses":
                    graph.replace_uses(data.draw(pick), data.draw(pick), reason="test")
                elif action == "all uses":
                    replacements = data.draw(st.dictionaries(pick, pick, max_size=3))
                    keep = data.draw(st.lists(pick, max_size=2))
                    keep_nodes = [value.op for value in keep]
                    graph.replace_all_uses(replacements, reason="test", keep=keep_nodes)
                elif action == "control":
                    controls = [v.op for v in data.draw(st.lists(pick, max_size=3))]
                    graph.set_control_inputs(data.draw(pick).op, controls, reason="test")
                elif action == "remove" and len(values) > 1:
                    doomed = data.draw(pick)
                    if not doomed.op.consumers:
                        graph.remove_nodes([doomed.op], reason="test")
                        values.remove(doomed)
                graph.check_integrity()


def test_a_copy_has_the_types_the_shapes_and_the_line_of_its_node(graph: wf.Graph) -> None:
    a = wf.placeholder(wf.float32, [None, 3], name="a")
    b = wf.negative(a, name="b").op
    with wf.Graph().as_default() as other:
        inside = wf.placeholder(wf.float32, [None, 3], name="a")
        twin = other.add_copy(b, "b", (inside,))
    assert twin.graph is other and twin.inputs == (inside,) and twin.attrs is b.attrs
    assert twin.outputs[0].shape.as_list() == [None, 3] and twin.outputs[0].dtype is wf.float32
    assert twin.line == b.line and "test_graph.py" in twin.line
    extra = other.add_derived(b, wf.no_op().op_def, "extra")
    assert extra.line == b.line and not extra.outputs
