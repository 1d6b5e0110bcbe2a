"""Functions as parts of graphs: tracing, captures, names, calls, durable forms, bodies in place."""

from __future__ import annotations

import gc
import weakref
from collections import namedtuple
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

import weft as wf
from weft_graph import proto
from weft_graph.functions.decorator import TensorSpec, function
from weft_graph.functions.defun import Declare, Defun
from weft_graph.functions.function import Function, call_function
from weft_graph.ir.builder import create
from weft_graph.ir.func_attr import NameAttrs
from weft_graph.messages.function_writer import CONTEXTS, RESULTS
from weft_graph.passes import prune
from weft_graph.passes.inline import inline_calls
from weft_graph.serialize import graph_from_bytes, graph_to_bytes
from weft_tensor import errors

CALLS = ("PartitionedCall", "StatefulPartitionedCall")


@pytest.fixture(autouse=True)
def graph() -> Iterator[wf.Graph]:
    with wf.Graph().as_default() as made:
        yield made


def run(fetches: Any, feeds: Any = None, graph: Any = None) -> Any:
    with wf.Session(graph=graph) as session:
        session.run([n for n in session.graph.nodes if n.name.endswith("/Assign")])
        return session.run(fetches, feeds)


def calls(graph: wf.Graph) -> list[Any]:
    return [node for node in graph.nodes if node.type in CALLS]


# --------------------------------------------------------------------------- calling


def test_a_function_is_built_once_and_called_often(graph: wf.Graph) -> None:
    built = []

    @function
    def square(x: Any) -> Any:
        built.append(x)
        return x * x

    results = [square(wf.constant(float(i))) for i in range(4)]
    assert len(built) == 1
    assert list(graph.functions) == ["square"]
    assert [node.name for node in calls(graph)] == ["square", "square_1", "square_2", "square_3"]
    assert run(results) == [0.0, 1.0, 4.0, 9.0]


def test_other_types_shapes_and_python_values_make_other_bodies(graph: wf.Graph) -> None:
    @function
    def scale(x: Any, by: Any = 2) -> Any:
        return x * by

    values = [
        scale(wf.constant([1.0, 2.0])),
        scale(wf.constant([3.0, 4.0])),
        scale(wf.constant([1.0])),
        scale(wf.constant([1, 2])),
        scale(wf.constant([1, 2]), 3),
        scale(wf.constant([1, 2]), by=3),
    ]
    assert list(graph.functions) == ["scale", "scale_1", "scale_2", "scale_3"]
    assert [v.tolist() for v in run(values)] == [[2, 4], [6, 8], [2], [2, 4], [3, 6], [3, 6]]


Pair = namedtuple("Pair", "left right")


def test_structures_come_and_go_as_they_are() -> None:
    @function
    def shuffle(pair: Any, *rest: Any, options: Any) -> Any:
        assert isinstance(pair, Pair)
        assert options["name"] == "swap"
        return {
            "pair": Pair(pair.right, pair.left),
            "rest": [rest[1], (rest[0],)],
            "nothing": None,
            "constant": 7,
            "number": options["factor"] * 2.0,
        }

    x = [wf.constant(float(i)) for i in range(5)]
    result = shuffle(Pair(x[0], x[1]), x[2], x[3], options={"name": "swap", "factor": x[4]})
    assert isinstance(result["pair"], Pair)
    assert result["nothing"] is None
    assert run({k: v for k, v in result.items() if k != "nothing"}) == {
        "pair": Pair(1.0, 0.0),
        "rest": [3.0, (2.0,)],
        "constant": 7,
        "number": 8.0,
    }


def test_sparse_values_and_tensor_arrays_are_arguments_and_results() -> None:
    @function
    def double(slices: Any, sparse: Any, array: Any) -> Any:
        return (
            wf.IndexedSlices(slices.values * 2.0, slices.indices, slices.dense_shape),
            wf.SparseTensor(sparse.indices, sparse.values * 2.0, sparse.dense_shape),
            array.write(1, array.read(0) * 2.0),
        )

    array = wf.TensorArray(wf.float32, 2, clear_after_read=False).write(0, 3.0)
    slices, sparse, after = double(
        wf.IndexedSlices(wf.constant([[1.0]]), wf.constant([2]), wf.constant([4, 1])),
        wf.SparseTensor([[0, 1]], [5.0], [2, 2]),
        array,
    )
    values = run([slices.values, sparse, after.read(1), wf.convert_to_tensor(slices)])
    assert values[0].tolist() == [[2.0]]
    assert values[1].values.tolist() == [10.0]
    assert values[2] == 6.0
    assert values[3].tolist() == [[0.0], [0.0], [2.0], [0.0]]


def test_static_shapes_of_results_come_from_the_body() -> None:
    f = function(lambda x: (wf.matmul(x, wf.ones([3, 5])), wf.reduce_sum(x), wf.shape(x)))
    product, total, shape = f(wf.placeholder(wf.float32, [None, 3]))
    assert product.shape.as_list() == [None, 5]
    assert total.shape.as_list() == []
    assert shape.shape.as_list() == [2]


def test_an_array_is_a_tensor_and_a_list_of_numbers_is_constant(graph: wf.Graph) -> None:
    f = function(lambda x, sizes: wf.reshape(x, sizes))
    value = f(np.arange(6.0), [2, 3])
    assert value.shape.as_list() == [2, 3]
    assert run(value).tolist() == [[0, 1, 2], [3, 4, 5]]
    f(np.arange(6.0) + 1, [2, 3])
    assert len(graph.functions) == 1


def test_an_unhashable_argument_is_refused() -> None:
    with pytest.raises(errors.InvalidTypeError, match="hashable"):
        function(lambda x: wf.constant(1))({1, 2})


def test_a_signature_builds_one_body_for_all_calls(graph: wf.Graph) -> None:
    @function(input_signature=[TensorSpec([None, 2], wf.float32, name="rows")])
    def total(x: Any) -> Any:
        return wf.reduce_sum(x, axis=0)

    values = [total(wf.ones([n, 2])) for n in (1, 2, 5)] + [total([[1.0, 2.0]])]
    assert list(graph.functions) == ["total"]
    assert graph.functions["total"].input_names == ("rows",)
    assert [v.tolist() for v in run(values)] == [[1, 1], [2, 2], [5, 5], [1, 2]]
    with pytest.raises(errors.InvalidArgumentError, match=r"TensorSpec\(shape=\[\?,2\]"):
        total(wf.ones([3, 3]))
    with pytest.raises(errors.InvalidTypeError, match="float32"):
        total(wf.ones([3, 2], wf.int32))
    with pytest.raises(errors.InvalidTypeError, match="TensorSpecs"):
        function(lambda x: x, input_signature=[wf.float32])


def test_relaxed_shapes_leave_open_what_differs(graph: wf.Graph) -> None:
    f = function(lambda x: x * 2.0, experimental_relax_shapes=True)
    shapes = [f(wf.ones([n, 3])).shape.as_list() for n in (1, 2, 3, 4)]
    assert shapes == [[1, 3], [None, 3], [None, 3], [None, 3]]
    assert len(graph.functions) == 2


def test_methods_are_functions_of_their_objects(graph: wf.Graph) -> None:
    class Model:
        def __init__(self, factor: float) -> None:
            self.factor = factor

        @function
        def scale(self, x: Any) -> Any:
            return x * self.factor

    two, three = Model(2.0), Model(3.0)
    x = wf.constant(5.0)
    assert run([two.scale(x), three.scale(x), two.scale(x)]) == [10.0, 15.0, 10.0]
    assert len(graph.functions) == 2


def test_get_concrete_function_gives_the_function(graph: wf.Graph) -> None:
    f = function(lambda x, y: {"sum": x + y}, name="plus")
    concrete = f.get_concrete_function(TensorSpec([2]), TensorSpec(None, wf.float32))
    assert isinstance(concrete, Function)
    assert graph.functions["plus"] is concrete
    assert run(concrete(wf.ones([2]), 2.0))["sum"].tolist() == [3.0, 3.0]
    assert run(call_function("plus", [wf.ones([2]), 1.0]))["sum"].tolist() == [2.0, 2.0]
    assert call_function(concrete, [wf.ones([2]), 1.0], name="mine")["sum"].op.name == "mine"


def test_a_function_without_results_gives_its_node() -> None:
    v = wf.Variable(1.0, use_resource=True)
    node = function(lambda: v.assign_add(1.0).op)()
    assert isinstance(node, wf.Operation)
    with wf.Session() as session:
        session.run(v.initializer)
        session.run(node)
        session.run(node)
        assert session.run(v) == 3.0


def test_functions_call_functions(graph: wf.Graph) -> None:
    inner = function(lambda x: x + 1.0, name="inner")
    outer = function(lambda x: inner(inner(x)) * inner(x), name="outer")
    assert run(outer(wf.constant(2.0))) == 12.0
    assert set(graph.functions) == {"inner", "outer"}
    assert len(calls(graph)) == 1


def test_a_graph_goes_when_nobody_has_it() -> None:
    f = function(lambda x: x + 1.0)
    other = wf.Graph()
    with other.as_default():
        f(wf.constant(1.0))
    gone = weakref.ref(other)
    del other
    gc.collect()
    assert gone() is None


# --------------------------------------------------------------------------- captures


def test_values_from_outside_become_arguments(graph: wf.Graph) -> None:
    outside = wf.placeholder(wf.float32, [2], name="outside")
    f = function(lambda x: x + outside * outside)
    y = f(wf.constant([1.0, 2.0]))
    assert [i.name for i in y.op.inputs] == ["Const:0", "outside:0"]
    made = graph.functions["lambda"]
    assert made.captured_inputs == [outside]
    assert made.inputs[1].shape.as_list() == [2]
    assert run(y, {outside: [3.0, 4.0]}).tolist() == [10.0, 18.0]


@pytest.mark.parametrize("resource", [True, False])
def test_variables_are_captured_by_what_they_are(resource: bool) -> None:
    v = wf.Variable([1.0, 2.0], use_resource=resource, name="v")
    read = function(lambda x: x * v)
    both = function(lambda x: x * v + wf.reduce_sum(v))
    assert run([read(2.0 * wf.ones([2])), both(wf.ones([2]))])[1].tolist() == [4.0, 5.0]

    @function
    def update(x: Any) -> Any:
        after = v.assign_add(x)
        with wf.control_dependencies([after]):
            return v.read_value() * 1.0

    y = update(wf.ones([2]))
    assert y.op.type == "StatefulPartitionedCall"
    with wf.Session() as session:
        session.run(v.initializer)
        assert session.run(y).tolist() == [2.0, 3.0]
        assert session.run(y).tolist() == [3.0, 4.0]


def test_a_reference_variable_that_is_only_read_is_passed_by_value(graph: wf.Graph) -> None:
    v = wf.Variable([1.0, 2.0], name="v")
    y = function(lambda x: x * v + v)(wf.ones([2]))
    assert y.op.type == "PartitionedCall"
    assert [i.name for i in y.op.inputs][1:] == ["v/read:0"]
    assert run(y).tolist() == [2.0, 4.0]


@pytest.mark.parametrize("resource", [True, False])
def test_variables_are_made_outside_and_once(graph: wf.Graph, resource: bool) -> None:
    @function
    def layer(x: Any) -> Any:
        with wf.variable_scope("layer", reuse=wf.AUTO_REUSE, use_resource=resource):
            w = wf.get_variable("w", [3, 2], initializer=wf.ones_initializer())
        return wf.matmul(x, w)

    first, second = layer(wf.ones([1, 3])), layer(wf.ones([2, 3]))
    assert [v.name for v in wf.trainable_variables()] == ["layer/w:0"]
    assert graph.get_operation_by_name("layer/w").graph is graph
    assert [v.tolist() for v in run([first, second])] == [[[3, 3]], [[3, 3], [3, 3]]]


def test_making_variables_again_is_refused() -> None:
    @function
    def careless(x: Any) -> Any:
        return x * wf.Variable(lambda: 2.0, use_resource=True)

    careless(wf.ones([1]))
    careless(wf.ones([1]))
    with pytest.raises(errors.InvalidArgumentError, match="created variables in its first call"):
        careless(wf.ones([2]))


def test_an_initial_value_from_inside_is_refused() -> None:
    f = function(lambda x: x * wf.Variable(wf.ones([2]) * 2.0, use_resource=True))
    with pytest.raises(errors.InvalidArgumentError, match="function"):
        f(wf.ones([2]))


def test_layers_and_collections_of_the_graph_around(graph: wf.Graph) -> None:
    wf.add_to_collection("mine", 1)

    @function
    def model(x: Any) -> Any:
        assert wf.get_collection("mine") == [1]
        wf.add_to_collection("mine", 2)
        assert wf.get_collection("mine") == [1, 2]
        h = wf.layers.dense(x, 4, activation=wf.nn.relu, name="h")
        assert len(wf.trainable_variables()) == 2
        return wf.layers.dense(h, 1, name="y")

    y = model(wf.ones([2, 3]))
    assert wf.get_collection("mine") == [1]
    assert [v.op.name for v in wf.trainable_variables()] == [
        "h/kernel",
        "h/bias",
        "y/kernel",
        "y/bias",
    ]
    assert run(y).shape == (2, 1)


def test_seeds_hold_inside() -> None:
    wf.set_random_seed(3)
    f = function(lambda: wf.random_uniform([4], seed=5))
    y = f()
    with wf.Session() as a, wf.Session() as b:
        assert a.run(y).tolist() == b.run(y).tolist()


def test_nodes_to_wait_for_from_outside_are_waited_for_by_calls() -> None:
    v = wf.Variable(1.0, use_resource=True)
    update = v.assign_add(1.0).op

    @function
    def f(x: Any) -> Any:
        with wf.control_dependencies([update]):
            return wf.identity(x)

    y = f(wf.constant(5.0))
    assert update in y.op.control_inputs
    with wf.Session() as session:
        session.run(v.initializer)
        assert session.run(y) == 5.0
        assert session.run(v) == 2.0


def test_placing_with_a_variable_from_outside_is_possible() -> None:
    v = wf.Variable([1.0], use_resource=True)

    @function
    def f(x: Any) -> Any:
        with wf.colocate_with(v.op):
            return x + v

    assert run(f(wf.ones([1]))).tolist() == [2.0]


def test_tensors_of_a_body_cannot_be_used_outside() -> None:
    leaked = []
    f = function(lambda x: leaked.append(x * 2.0) or x)
    y = f(wf.constant(1.0))
    with pytest.raises(errors.FailedPreconditionError, match="'lambda' is finished"):
        leaked[0] + 1.0
    with pytest.raises(errors.InvalidArgumentError):
        y + leaked[0]
    with pytest.raises(errors.InvalidArgumentError, match="function 'lambda'"):
        function(lambda x: x + leaked[0])(y)


def test_a_body_cannot_return_the_inside_of_a_branch() -> None:
    inside = []

    def branchy(x: Any) -> Any:
        wf.cond(wf.reduce_sum(x) > 0.0, lambda: inside.append(x * 2.0) or x, lambda: x)
        return inside[0]

    with pytest.raises(errors.InvalidArgumentError, match="inside a branch or a loop"):
        function(branchy)(wf.ones([2]))


def test_what_is_no_tensor_cannot_be_returned() -> None:
    with pytest.raises(errors.InvalidTypeError, match="must return tensors"):
        function(lambda: object())()


# --------------------------------------------------------------------------- several graphs


def test_each_graph_has_bodies_of_its_own() -> None:
    f = function(lambda x: x + 1.0)
    graphs = [wf.Graph(), wf.Graph()]
    for each in graphs:
        with each.as_default():
            assert run(f(wf.constant(1.0)), graph=each) == 2.0
        assert list(each.functions) == ["lambda"]


def test_a_concrete_function_can_be_called_in_another_graph() -> None:
    inner = function(lambda x: x * 3.0, name="inner")
    outer = function(lambda x: inner(x) + 1.0, name="outer")
    concrete = outer.get_concrete_function(TensorSpec([]))
    with wf.Graph().as_default() as other:
        y = call_function(concrete, [2.0])
        assert set(other.functions) == {"inner", "outer"}
        assert run(y) == 7.0


def test_a_capture_of_another_graph_is_refused() -> None:
    v = wf.Variable(1.0, use_resource=True)
    f = function(lambda x: x + v)
    concrete = f.get_concrete_function(TensorSpec([]))
    with wf.Graph().as_default():
        with pytest.raises(errors.InvalidArgumentError, match="graph"):
            f(wf.constant(1.0))
        with pytest.raises(errors.InvalidArgumentError, match="graph"):
            call_function(concrete, [wf.constant(1.0)])
        handle = wf.Variable(5.0, use_resource=True)
        assert run(call_function(concrete, [1.0, handle.handle])) == 6.0


def test_names_do_not_collide(graph: wf.Graph) -> None:
    first = function(lambda x: x + 1.0, name="f")
    second = function(lambda x: x * 2.0, name="f")
    x = wf.constant(3.0)
    assert run([first(x), second(x), first(x)]) == [4.0, 6.0, 4.0]
    assert set(graph.functions) == {"f", "f_1"}


def test_another_function_of_the_same_name_is_refused(graph: wf.Graph) -> None:
    function(lambda x: x + 1.0, name="f")(wf.constant(1.0))
    with wf.Graph().as_default():
        other = function(lambda x: x * 5.0, name="f").get_concrete_function(TensorSpec([]))
    with graph.as_default(), pytest.raises(errors.AlreadyExistsError, match="'f'"):
        call_function(other, [wf.constant(1.0)])
    Defun(wf.float32, func_name="g")(lambda x: x + 1.0)(1.0)
    with pytest.raises(errors.AlreadyExistsError, match="'g'"):
        Defun(wf.float32, func_name="g")(lambda x: x + 2.0)(1.0)
    assert Defun(wf.float32, func_name="g")(lambda x: x + 1.0)(1.0).op.type == "PartitionedCall"


# --------------------------------------------------------------------------- errors


def test_wrong_calls_say_what_was_required_and_where() -> None:
    f = function(lambda x, y: x + y, name="plus")
    concrete = f.get_concrete_function(TensorSpec([2]), TensorSpec([2]))
    with pytest.raises(
        errors.InvalidArgumentError, match=r"takes 2 arguments \(x, y\), got 1"
    ) as e:
        concrete(wf.ones([2]))
    assert e.value.op_type == "PartitionedCall"
    assert e.value.line is not None and "test_functions.py" in e.value.line
    with pytest.raises(errors.InvalidArgumentError, match=r"argument y .* shape \[2\], got \[3\]"):
        concrete(wf.ones([2]), wf.ones([3]))
    with pytest.raises(errors.InvalidTypeError, match="argument x of") as e:
        concrete(wf.ones([2], wf.int32), wf.ones([2]))
    assert e.value.line is not None and "test_functions.py" in e.value.line
    with pytest.raises(errors.InvalidTypeError, match="missing a required argument"):
        f(wf.ones([2]))
    with pytest.raises(errors.NotFoundError, match="similar names: plus"):
        call_function("pluss", [wf.ones([2])])
    with pytest.raises(errors.InvalidTypeError, match="function or its name"):
        call_function(3)  # type: ignore[arg-type]


def test_a_call_by_hand_must_fit(graph: wf.Graph) -> None:
    function(lambda x: x + 1.0, name="f")(wf.constant(1.0))
    attrs = {"Tin": [wf.float32], "Tout": [wf.float32], "f": NameAttrs("f")}
    create("PartitionedCall", [[wf.constant(2.0)]], attrs)
    with pytest.raises(errors.InvalidTypeError):
        create("PartitionedCall", [[wf.constant(2)]], attrs)
    with pytest.raises(errors.InvalidArgumentError, match="1 outputs"):
        create("PartitionedCall", [[wf.constant(2.0)]], {**attrs, "Tout": [wf.float32] * 2})
    missing = create("PartitionedCall", [[wf.constant(2.0)]], {**attrs, "f": NameAttrs("g")})
    assert missing.outputs[0].shape.ndims is None
    with pytest.raises(errors.NotFoundError, match="no function named 'g'"):
        run(missing.outputs[0])


def test_a_function_that_calls_itself_says_what_to_do() -> None:
    @function
    def forever(x: Any) -> Any:
        return forever(x)

    with pytest.raises(errors.InvalidArgumentError, match=r"calls itself.*Declare"):
        forever(wf.constant(1.0))


# --------------------------------------------------------------------------- Defun


def test_defun(graph: wf.Graph) -> None:
    @Defun(wf.float32, wf.int32, func_name="Mix", out_names=["total", "number"])
    def mix(x: Any, n: Any) -> Any:
        return x + wf.cast(n, wf.float32), n * 2

    assert "Mix" not in graph.functions
    total, number = mix(1.5, 2)
    assert mix.name == "Mix"
    assert graph.functions["Mix"] is mix.function
    assert run([total, number]) == [3.5, 4]
    assert [arg.name for arg in mix.definition.signature.output_arg] == ["total", "number"]
    assert mix.declared_input_types == [wf.float32, wf.int32]
    assert Defun(wf.float32)(lambda x: None)(1.0).type == "PartitionedCall"


def test_defun_without_types_takes_those_of_its_arguments(graph: wf.Graph) -> None:
    @Defun(func_name="twice")
    def twice(x: Any) -> Any:
        return x + x

    assert run([twice(wf.constant(2)), twice(wf.constant(2.5)), twice(3)]) == [4, 5.0, 6]
    assert set(graph.functions) == {"twice_int32", "twice_float32"}


def test_defun_with_a_shape_function() -> None:
    f = Defun(wf.float32, shape_func=lambda op: [op.inputs[0].shape])(lambda x: x * 2.0)
    assert f(wf.ones([2, 3])).shape.as_list() == [2, 3]


def test_defun_checks_the_python_function() -> None:
    with pytest.raises(errors.InvalidArgumentError, match="takes 1 arguments"):
        Defun(wf.float32, wf.float32)(lambda x: x)
    with pytest.raises(errors.InvalidArgumentError, match="default arguments"):
        Defun(wf.float32)(lambda x=1: x)
    with pytest.raises(errors.InvalidArgumentError, match="not support keyword"):
        Defun(wf.float32)(lambda *, x: x)
    with pytest.raises(errors.InvalidTypeError, match="requires a function"):
        Defun(wf.float32)(3)  # type: ignore[arg-type]
    with pytest.raises(errors.InvalidArgumentError, match="not both"):
        Defun(wf.float32, grad_func=lambda: 0, python_grad_func=lambda: 0)
    with pytest.raises(errors.InvalidArgumentError, match="2 results"):
        Defun(wf.float32, out_names=["a"])(lambda x: (x, x))(1.0)


def test_a_declared_function_can_be_called_before_it_is_there(graph: wf.Graph) -> None:
    later = Declare("Later", [("x", wf.float32)], [("y", wf.float32)])
    y = later(2.0)
    assert y.shape.ndims is None
    with pytest.raises(errors.NotFoundError, match="no function named 'Later'"):
        run(y)
    Defun(wf.float32, func_name="Later")(lambda x: x * 4.0).add_to_graph(graph)
    assert run(y) == 8.0
    with pytest.raises(errors.InvalidArgumentError, match="takes 1 arguments"):
        later(1.0, 2.0)
    with pytest.raises(errors.InvalidTypeError):
        later(wf.constant(1))


# --------------------------------------------------------------------------- durable forms


def build_everything() -> list[Any]:
    v = wf.Variable([1.0, 2.0], use_resource=True, name="v")
    w = wf.Variable([0.5, 0.25], name="w")
    x = wf.placeholder(wf.float32, [None, 2], name="x")
    inner = function(lambda x: wf.tanh(x) * w, name="inner")

    @function
    def outer(x: Any, n: int) -> Any:
        y = wf.cond(wf.reduce_sum(x) > 0.0, lambda: inner(x), lambda: x * v)
        y = wf.while_loop(lambda i, y: i < n, lambda i, y: (i + 1, y + inner(y)), [0, y])[1]
        after = v.assign_add([1.0, 1.0])
        with wf.control_dependencies([after]):
            return y, v.read_value()

    y, after = outer(x, 3)
    grads = wf.gradients(wf.reduce_sum(y * y), [x, v, w])
    return [y, after, *grads]


def written_and_read(graph: wf.Graph) -> Iterator[wf.Graph]:
    message = graph.as_graph_def()
    data = message.SerializeToString(deterministic=True)
    with wf.Graph().as_default() as imported:
        wf.import_graph_def(proto.GraphDef.FromString(data), name="")
    assert imported.as_graph_def().SerializeToString(deterministic=True) == data
    yield imported
    read = graph_from_bytes(graph_to_bytes(graph))
    assert read.as_graph_def().SerializeToString(deterministic=True) == data
    assert graph_to_bytes(read) == graph_to_bytes(graph)
    yield read


def test_graphs_with_functions_are_written_and_read(graph: wf.Graph) -> None:
    fetches = [t.name for t in build_everything()]
    feeds = {"x:0": [[0.1, 0.2], [0.3, -0.4]]}
    wanted = run(fetches, feeds)
    for other in written_and_read(graph):
        for a, b in zip(run(fetches, feeds, other), wanted, strict=True):
            np.testing.assert_array_equal(a, b)
        assert isinstance(other.functions["outer"], Function)
        with other.as_default():
            again = call_function("outer", [other.get_tensor_by_name("x:0")])
            np.testing.assert_array_equal(run(again[0], feeds), wanted[0])


def test_functions_that_were_read_are_differentiated(graph: wf.Graph) -> None:
    y, _, *grads = build_everything()
    feeds = {"x:0": [[0.1, 0.2], [0.3, -0.4]]}
    wanted = run(grads, feeds)
    assert y.op.name == "outer"
    for other in written_and_read(graph):
        with other.as_default():
            xs = [other.get_tensor_by_name(name) for name in ("x:0", "v:0", "w:0")]
            y = other.get_tensor_by_name("outer:0")
            mine = wf.gradients(wf.reduce_sum(y * y), xs)
            for a, b in zip(run(mine, feeds), wanted, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-6)


def test_an_import_into_a_scope_brings_the_library(graph: wf.Graph) -> None:
    y = function(lambda x: x * 2.0, name="double")(wf.constant(4.0, name="x"))
    message = graph.as_graph_def()
    with wf.Graph().as_default() as other:
        (first,) = wf.import_graph_def(message, return_elements=[y.name], name="a")
        (second,) = wf.import_graph_def(message, {"x": wf.constant(1.0)}, [y.name], "b")
        assert list(other.functions) == ["double"]
        assert run([first, second]) == [8.0, 2.0]
        message.library.function[0].node_def[0].op = "Sub"
        count = len(other.nodes)
        with pytest.raises(errors.AlreadyExistsError, match="'double'"):
            wf.import_graph_def(message)
        assert len(other.nodes) == count


def test_functions_join_a_graph_only_if_all_of_it_does(graph: wf.Graph) -> None:
    function(lambda x: x * 2.0, name="double")(wf.constant(4.0))
    message = graph.as_graph_def()
    message.node.add(name="bad", op="NoSuchOp")
    with wf.Graph().as_default() as other:
        with pytest.raises(errors.NotFoundError):
            wf.import_graph_def(message)
        assert not other.functions and not other.nodes


def test_a_given_gradient_is_written_and_read(graph: wf.Graph) -> None:
    backward = Defun(wf.float32, wf.float32, func_name="B")(lambda x, dy: dy * 100.0)
    f = Defun(wf.float32, func_name="F", grad_func=backward)(lambda x: x * 2.0)
    x = wf.constant(3.0, name="x")
    y = f(x)
    assert run(wf.gradients(y, x)) == [100.0]
    message = graph.as_graph_def()
    assert [(g.function_name, g.gradient_func) for g in message.library.gradient] == [("F", "B")]
    for other in written_and_read(graph):
        with other.as_default():
            (grad,) = wf.gradients(
                other.get_tensor_by_name(y.name), other.get_tensor_by_name("x:0")
            )
            assert run(grad) == 100.0


# --------------------------------------------------------------------------- hostile files


def definition() -> proto.GraphDef:
    with wf.Graph().as_default() as graph:
        v = wf.Variable([1.0, 2.0], use_resource=True, name="v")

        @function
        def f(x: Any) -> Any:
            y = wf.cond(wf.reduce_sum(x) > 0.0, lambda: x * v, lambda: -x)
            y = wf.while_loop(lambda i, y: i < 2, lambda i, y: (i + 1, y * x), [0, y])[1]
            v.assign_add(y)
            first, rest = wf.split(y, [1, 1])
            return first, rest

        f(wf.placeholder(wf.float32, [2], name="x"))
    return graph.as_graph_def()


def use(message: proto.GraphDef) -> None:
    with wf.Graph().as_default() as graph:
        wf.import_graph_def(message, name="")
        run("f:0", {"x:0": [1.0, 2.0]}, graph)


def node_of(message: proto.GraphDef, op: str) -> Any:
    return next(n for n in message.library.function[0].node_def if n.op == op)


def rename(field: str, value: Any) -> Any:
    def change(message: proto.GraphDef) -> None:
        setattr(node_of(message, "Neg"), field, value)

    return change


def _input(text: str) -> Any:
    def change(message: proto.GraphDef) -> None:
        node_of(message, "Neg").input[0] = text

    return change


def _result(text: str) -> Any:
    def change(message: proto.GraphDef) -> None:
        ret = message.library.function[0].ret
        ret[sorted(ret)[0]] = text

    return change


def _contexts(text: bytes) -> Any:
    def change(message: proto.GraphDef) -> None:
        message.library.function[0].attr[CONTEXTS].s = text

    return change


def _more_inputs(message: proto.GraphDef) -> None:
    message.library.function[0].signature.input_arg.add(name="more", type=1)


def _other_type(message: proto.GraphDef) -> None:
    message.library.function[0].signature.output_arg[0].type = 3


def _missing_result(message: proto.GraphDef) -> None:
    ret = message.library.function[0].ret
    del ret[sorted(ret)[0]]


def _cycle(message: proto.GraphDef) -> None:
    neg = node_of(message, "Neg")
    other = message.library.function[0].node_def.add(
        name="back", op="Neg", input=[f"{neg.name}:y:0"]
    )
    other.attr["T"].type = 1
    neg.input[0] = "back:y:0"


def _same_names(message: proto.GraphDef) -> None:
    node_of(message, "Neg").name = node_of(message, "Sum").name


def _argument_name(message: proto.GraphDef) -> None:
    node_of(message, "Neg").name = "x"


def _twice(message: proto.GraphDef) -> None:
    message.library.function.add().CopyFrom(message.library.function[0])


def _two_arguments(message: proto.GraphDef) -> None:
    message.library.function[0].signature.input_arg[1].name = "x"


def _control_output(message: proto.GraphDef) -> None:
    message.library.function[0].signature.control_output.append("more")


def _effect(message: proto.GraphDef) -> None:
    ret = message.library.function[0].control_ret
    ret[sorted(ret)[0]] = "nowhere"


def _results(message: proto.GraphDef) -> None:
    message.library.function[0].attr[RESULTS].i = 99


def _polymorphic(message: proto.GraphDef) -> None:
    arg = message.library.function[0].signature.input_arg[0]
    arg.type, arg.type_attr = 0, "T"


def _split(message: proto.GraphDef) -> None:
    node_of(message, "SplitV").attr["num_split"].i = 2**40


HOSTILE = [
    (rename("op", "NoSuchOp"), errors.NotFoundError, "NoSuchOp"),
    (rename("name", "bad name"), errors.InvalidArgumentError, "bad name"),
    (_input("nowhere:y:0"), errors.InvalidArgumentError, "nowhere"),
    (_input("nowhere"), errors.InvalidArgumentError, "nowhere"),
    (_input("Sum:output:1"), errors.InvalidArgumentError, "Sum:output:1"),
    (_input("Sum:nothing:0"), errors.InvalidArgumentError, "Sum:nothing:0"),
    (_input("Sum:output:-1"), errors.InvalidArgumentError, "Sum:output:-1"),
    (_input("x:0"), errors.InvalidArgumentError, "x:0"),
    (_input(""), errors.InvalidArgumentError, "neither an input of the function"),
    (_input("^nowhere"), errors.InvalidArgumentError, "nowhere"),
    (_input("v"), errors.InvalidTypeError, "float32"),
    (_result("nowhere:y:0"), errors.InvalidArgumentError, "nowhere"),
    (_result("v"), errors.InvalidTypeError, "another type"),
    (_contexts(b"{"), errors.InvalidArgumentError, "damaged"),
    (_contexts(b"[" * 100_000), errors.InvalidArgumentError, "damaged"),
    (_contexts(b"3"), errors.InvalidArgumentError, "must be a list"),
    (_contexts(b"[3]"), errors.InvalidArgumentError, "must be of type"),
    (_contexts(b'[{"name": 3}]'), errors.InvalidArgumentError, "must be of type str"),
    (_more_inputs, errors.InvalidArgumentError, "the call has 2"),
    (_other_type, errors.InvalidTypeError, "another type"),
    (_missing_result, errors.InvalidArgumentError, "its outputs are"),
    (_cycle, errors.InvalidArgumentError, "cycle"),
    (_same_names, errors.InvalidArgumentError, "not unique"),
    (_argument_name, errors.InvalidArgumentError, "name of a node"),
    (_twice, errors.InvalidArgumentError, "defined twice"),
    (_two_arguments, errors.InvalidArgumentError, "one name"),
    (_control_output, errors.InvalidArgumentError, "control outputs"),
    (_effect, errors.InvalidArgumentError, "is not a node"),
    (_results, errors.InvalidArgumentError, "must be 0 to"),
    (_polymorphic, errors.UnimplementedError, "depends on attributes"),
    (_split, errors.InvalidArgumentError, "1099511627776"),
]


@pytest.mark.parametrize(("change", "error", "text"), HOSTILE)
def test_wrong_definitions_are_refused(change: Any, error: type[Exception], text: str) -> None:
    message = definition()
    use(message)
    change(message)
    with pytest.raises(error, match="'f'") as caught:
        use(message)
    assert text in str(caught.value)


@given(st.data())
def test_damaged_definitions_never_do_harm(data: st.DataObject) -> None:
    message = definition()
    raw = bytearray(message.library.function[0].SerializeToString(deterministic=True))
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    try:
        changed = proto.FunctionDef.FromString(bytes(raw))
    except Exception:  # because protobuf's own errors are not what is tested
        return
    message.library.function[0].CopyFrom(changed)
    try:
        with wf.Graph().as_default() as graph:
            wf.import_graph_def(message, name="")
            for name in list(graph.functions):
                graph.functions[name].definition.SerializeToString()
            graph.check_integrity()
    except errors.OpError:
        pass


# --------------------------------------------------------------------------- bodies in place


def pruned(*fetches: Any) -> Any:
    return prune([], list(fetches), [])


def test_a_body_takes_the_place_of_its_call() -> None:
    f = function(lambda x: (x * x, x + 1.0), name="f")
    square, plus = f(wf.constant(2.0, name="two"))
    step = pruned(square)
    assert inline_calls(step) == 1
    assert step.changes["inline"] == 1
    assert [(n.name, n.type) for n in step.graph.nodes] == [("two", "Const"), ("f/mul", "Mul")]
    step.graph.check_integrity()
    assert step.fetches[0].node.name == "f/mul"
    step = pruned(square, plus)
    inline_calls(step)
    assert {n.name for n in step.graph.nodes} >= {"f/mul", "f/add", "f/add/y"}
    assert inline_calls(step) == 0


def test_inlined_nodes_have_lines_devices_and_places_of_their_calls() -> None:
    v = wf.Variable([1.0], use_resource=True, name="v")

    @function
    def f(x: Any) -> Any:
        with wf.device("/device:CPU:0"):
            y = x * v
        return y + 1.0

    with wf.device("/job:localhost"), wf.colocate_with(v.op, ignore_existing=True):
        pass
    with wf.device("/job:localhost/task:0"):
        y = f(wf.ones([1]))
    step = pruned(y)
    inline_calls(step)
    by_name = {n.name: n for n in step.graph.nodes}
    assert by_name["f/mul"].device == "/job:localhost/task:0/device:CPU:0"
    assert by_name["f/add"].device == "/job:localhost/task:0"
    assert "test_functions.py" in by_name["f/mul"].line


def test_names_of_inlined_nodes_give_way_to_those_of_the_graph() -> None:
    f = function(lambda x: x * x, name="f")
    y = f(wf.constant(2.0))
    with wf.name_scope("f/"):
        mine = wf.multiply(3.0, 4.0, name="mul")
    step = pruned(y, mine)
    inline_calls(step)
    assert {n.name for n in step.graph.nodes if n.type == "Mul"} == {"f/mul", "f/mul_1"}
    assert run([y, mine]) == [4.0, 12.0]


def test_many_calls_of_a_large_function_stay() -> None:
    def body(x: Any) -> Any:
        for _ in range(150):
            x = wf.tanh(x) + 0.5
        return x

    def chain(count: int) -> Any:
        f = function(body, name="large")
        y = wf.constant([0.1])
        for _ in range(count):
            y = f(y)
        step = pruned(y)
        inline_calls(step)
        return sum(n.type in CALLS for n in step.graph.nodes)

    assert chain(3) == 0
    assert chain(70) == 70


def test_what_a_call_cannot_hold_takes_its_place() -> None:
    v = wf.Variable([1.0])

    def draws(x: Any) -> Any:
        return x + wf.random_uniform([1], seed=1)

    def updates(x: Any) -> Any:
        return x + wf.assign_add(v, x)

    def plain(x: Any) -> Any:
        return x + 1.0

    for body, stays in ((draws, 0), (updates, 0), (plain, 1)):
        f = Defun(wf.float32, noinline=True)(body)
        step = pruned(f(wf.ones([1])))
        inline_calls(step)
        assert sum(n.type in CALLS for n in step.graph.nodes) == stays


@pytest.mark.parametrize("decorate", [wf.Defun(wf.float32), wf.function])
def test_a_variable_of_a_body_has_the_name_of_its_scope(decorate: Any) -> None:
    with wf.Graph().as_default():

        @decorate
        def plus(x: Any) -> Any:
            return x + wf.get_variable("v", [], initializer=wf.ones_initializer())

        with wf.variable_scope("one"), wf.name_scope("other"):
            plus(wf.constant(1.0))
        assert [v.name for v in wf.global_variables()] == ["one/v:0"]


def test_a_definition_has_the_docstring() -> None:
    @Defun(wf.float32)
    def successor(x: Any) -> Any:
        """The next number."""
        return x + 1.0

    assert successor.definition.signature.description == "The next number."
    assert not Defun(wf.float32)(lambda x: x + 1.0).definition.signature.description
