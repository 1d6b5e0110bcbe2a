"""Functions that call functions that call functions: how deep is not limited by Python's stack."""

from collections.abc import Iterator

import pytest
from google.protobuf import text_format

import weft as wf
from weft_graph import proto
from weft_graph.ir import deep_stack
from weft_tensor import errors


@pytest.fixture(autouse=True)
def graph() -> Iterator[wf.Graph]:
    """Run each test in a new graph."""
    with wf.Graph().as_default() as graph:
        yield graph


_LAST = 'node_def {name: "r" op: "Square" input: "x" attr {key: "T" value {type: DT_FLOAT}}}'


def _chain(depth: int, call: str, attr: str = "") -> proto.GraphDef:
    """A graph whose node y calls the function f<depth - 1>, that the one before it, and so on.

    Args:
      call: the node in each body but the first, with {inner} for the name of the function.
    """
    bodies = [_LAST, *[call.replace("INNER", f"f{i}") for i in range(depth - 1)]]
    functions = [
        f'function {{ signature {{ name: "f{i}" input_arg {{ name: "x" type: DT_FLOAT }} '
        f'output_arg {{ name: "y" type: DT_FLOAT }} }} {attr} {body} '
        f'ret {{ key: "y" value: "{"r:y:0" if body is _LAST else "r"}" }} }}'
        for i, body in enumerate(bodies)
    ]
    text = f"""
        node {{ name: "x" op: "Placeholder" attr {{ key: "dtype" value {{ type: DT_FLOAT }} }}
                attr {{ key: "shape" value {{ shape {{}} }} }} }}
        node {{ name: "y" op: "f{depth - 1}" input: "x" }}
        library {{ {" ".join(functions)} }}"""
    return text_format.Parse(text, proto.GraphDef())


_CALL = 'node_def { name: "r" op: "INNER" input: "x" }'
_BRANCH = """
    node_def { name: "c" op: "Const" attr { key: "dtype" value { type: DT_BOOL } }
      attr { key: "value" value { tensor { dtype: DT_BOOL tensor_shape {} bool_val: true } } } }
    node_def { name: "r" op: "StatelessIf" input: "c:output:0" input: "x"
      attr { key: "Tcond" value { type: DT_BOOL } }
      attr { key: "Tin" value { list { type: DT_FLOAT } } }
      attr { key: "Tout" value { list { type: DT_FLOAT } } }
      attr { key: "then_branch" value { func { name: "INNER" } } }
      attr { key: "else_branch" value { func { name: "f0" } } } }"""
_NOINLINE = 'attr { key: "_noinline" value { b: true } }'


@pytest.mark.parametrize(
    ("depth", "call", "attr", "differentiated"),
    [
        (1000, _CALL, "", False),
        (120, _CALL, "", True),
        (120, _CALL, _NOINLINE, True),
        (60, _BRANCH, "", True),
    ],
    ids=["calls", "gradients", "kept", "branches"],
)
def test_nested_calls_of_an_imported_graph(depth, call, attr, differentiated) -> None:
    y, x = wf.import_graph_def(_chain(depth, call, attr), return_elements=["y:0", "x:0"], name="")
    wanted = [y, *(wf.gradients(y, x) if differentiated else [])]
    with wf.Session() as session:
        assert session.run(wanted, {x: 3.0}) == [9.0, 6.0][: len(wanted)]


def test_a_call_inside_a_function_has_the_results_names() -> None:
    message = _chain(2, _CALL)
    (ret,) = [f.ret for f in message.library.function if f.signature.name == "f1"]
    ret["y"] = "r:y:0"  # as TensorFlow writes it
    y, x = wf.import_graph_def(message, return_elements=["y:0", "x:0"], name="")
    assert wf.Session().run(y, {x: 3.0}) == 9.0


def _around(inner):
    def body(x):
        return wf.square(x) if inner is None else inner(x)

    return body


def test_nested_functions_of_the_program() -> None:
    inner = None
    for i in range(150):
        inner = wf.Defun(wf.float32, func_name=f"f{i}")(_around(inner))
        y = inner(wf.constant(3.0))  # which builds it
    x = y.op.inputs[0]
    with wf.Session() as session:
        assert session.run([y, *wf.gradients(y, x)]) == [9.0, 6.0]


def test_nesting_without_end_is_refused(monkeypatch) -> None:
    monkeypatch.setattr(deep_stack, "MAX_THREADS", 3)

    def endless() -> None:
        deep_stack.deeper(endless)

    with pytest.raises(errors.ResourceExhaustedError, match="deeper than 3 threads"):
        endless()


def test_what_is_raised_on_another_thread_arrives(graph) -> None:
    def fail(left: int) -> None:
        if not left:
            assert wf.get_default_graph() is graph
            raise errors.DataLossError("at the bottom")
        deep_stack.deeper(fail, left - 1)

    with pytest.raises(errors.DataLossError, match="bottom"):
        fail(2000)


def test_a_reference_variable_is_assigned_two_functions_deep() -> None:
    v = wf.Variable(1.0, use_resource=False)

    @wf.Defun(wf.float32)
    def add(x):
        with wf.control_dependencies([v.assign_add(x)]):
            return wf.identity(x)

    y = wf.Defun(wf.float32)(lambda x: 2.0 * add(x))(wf.constant(3.0))
    with wf.Session() as session:
        session.run(v.initializer)
        assert session.run(y) == 6.0
        assert session.run(v) == 4.0


def test_effects_of_loops_in_loops_come_in_turn() -> None:
    v = wf.Variable(1.0, use_resource=True)

    @wf.Defun(wf.float32)
    def double_often(x):
        def twice(i, x):
            def once(j, x):
                with wf.control_dependencies([v.assign_add(v.read_value(), read_value=False)]):
                    return j + 1, x + v.read_value()

            return i + 1, wf.while_loop(lambda j, _: j < 2, once, [0, x])[1]

        return wf.while_loop(lambda i, _: i < 3, twice, [0, x])[1]

    y = double_often(wf.constant(0.0))
    with wf.Session() as session:
        session.run(v.initializer)
        assert session.run(y) == 2.0 + 4 + 8 + 16 + 32 + 64
        assert session.run(v) == 64.0
