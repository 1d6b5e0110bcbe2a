"""Calls that define graphs by messages, for clients without op declarations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any

import numpy as np
import pytest
from weft_testing.tasks import free_ports, jobs

import weft as wf
from weft_distrib.protocol import messages
from weft_distrib.protocol.tables import decode, encode
from weft_distrib.security.roles import Role
from weft_distrib.wire import methods
from weft_distrib.wire.address import address_of
from weft_distrib.wire.handshake import ANY_INCARNATION, ConnectionOptions
from weft_distrib.wire.listener import ask, dial
from weft_distrib.wire.methods import RunStep
from weft_graph import proto


class Client:
    """A client that only speaks frames."""

    def __init__(self, server: wf.train.Server) -> None:
        address = address_of(server.value_target.removeprefix("weft://"))
        opening = ConnectionOptions(messages.VERSION, role=Role.CLIENT, local=False)
        self.channel = dial(address, "the server", opening, ANY_INCARNATION, 30)
        reply = self.call(methods.CREATE_SESSION, messages.OpenSession())[1]
        self.session = decode(messages.Session, reply).session

    def call(
        self, method: int, request: Any, values: Sequence[Any] = ()
    ) -> tuple[Sequence[Any], bytes]:
        return ask(self.channel, method, encode(request), values, 60)

    def define(self, *nodes: proto.NodeDef, library: Any = None, **constants: Any) -> None:
        graph_def = proto.GraphDef(node=nodes, library=library)
        request = messages.Define(self.session, list(constants))
        self.call(methods.DEFINE, request, [as_array(graph_def), *constants.values()])

    def gradients(self, ys: list[str], xs: list[str], **options: Any) -> messages.Gradients:
        request = messages.Differentiate(self.session, ys, xs, **options)
        return decode(messages.Gradients, self.call(methods.DIFFERENTIATE, request)[1])

    def run(self, fetches: Sequence[str], feeds: dict[str, Any] | None = None) -> list[Any]:
        feeds = feeds or {}
        signature = messages.Signature(self.session, list(feeds), list(fetches))
        planned = decode(messages.Planned, self.call(methods.PLAN, signature)[1])
        step = RunStep(self.session, planned.signature)
        return list(ask(self.channel, methods.RUN_STEP, step.pack(), list(feeds.values()), 60)[0])


def as_array(message: Any) -> np.ndarray:
    return np.frombuffer(message.SerializeToString(), np.uint8)


def node(op: str, name: str, *inputs: str, **attrs: Any) -> proto.NodeDef:
    node_def = proto.NodeDef(name=name, op=op, input=inputs)
    for key, value in attrs.items():
        if isinstance(value, wf.DType):
            node_def.attr[key].type = value.as_datatype_enum
        elif isinstance(value, bool):
            node_def.attr[key].b = value
        elif isinstance(value, int):
            node_def.attr[key].i = value
        elif isinstance(value, list):
            node_def.attr[key].shape.SetInParent()
            for size in value:
                node_def.attr[key].shape.dim.add(size=size)
        else:
            node_def.attr[key].s = value
    return node_def


@pytest.fixture(scope="module")
def server() -> Iterator[wf.train.Server]:
    made = wf.train.Server.create_local_server()
    yield made
    made.close()


@pytest.fixture
def client(server: wf.train.Server) -> Iterator[Client]:
    made = Client(server)
    yield made
    made.channel.close()


X = np.array([[1.0, 2.0], [3.0, 4.0]], np.float32)


def test_the_status_needs_no_grpc(client: Client, server: wf.train.Server) -> None:
    status = decode(messages.Status, client.call(methods.STATUS, messages.Empty())[1])
    assert status.version == messages.VERSION and status.incarnation == server.incarnation


def test_element_types_and_counts_follow_from_inputs(client: Client) -> None:
    client.define(
        node("MatMul", "product", "x", "x:0", transpose_b=True),
        node("Pack", "pair", "product", "x"),
        node("Unpack", "parts", "pair", num=2),
        node("ConcatV2", "row", "parts:1", "parts", "one"),
        node("IdentityN", "both", "row", "one"),
        x=X,
        one=np.int32(1),
    )
    row, one = client.run(["both:0", "both:1"])
    np.testing.assert_array_equal(row, np.concatenate([X, X @ X.T], 1))
    assert one == 1


def test_counts_of_several_lists_can_be_stated(client: Client) -> None:
    stitch = node("DynamicStitch", "stitched", "i", "j", "x", "y")
    counted = proto.NodeDef()
    counted.CopyFrom(stitch)
    counted.attr["_input_counts"].list.i.extend([2, 2])
    constants = {"i": np.array([1]), "j": np.array([0]), "x": X[:1], "y": X[1:]}
    indices = {key: np.int32(value) for key, value in constants.items() if key in "ij"}
    with pytest.raises(wf.errors.InvalidArgumentError, match="requires the attribute"):
        client.define(stitch, **constants | indices)
    client.define(counted, **constants | indices)
    np.testing.assert_array_equal(client.run(["stitched:0"])[0], X[::-1])


def test_nodes_are_placed_with_earlier_ones(client: Client) -> None:
    client.define(node("VariableV2", "v", dtype=wf.float32, shape=[2, 2]), x=X)
    slot = node("VariableV2", "slot", dtype=wf.float32, shape=[2, 2])
    slot.attr["_class"].list.s.append(b"loc:@v")
    client.define(slot, node("Assign", "init", "slot", "x"))
    np.testing.assert_array_equal(client.run(["init:0"])[0], X)


def test_nodes_refer_to_earlier_definitions(client: Client) -> None:
    client.define(node("Placeholder", "fed", dtype=wf.float32, shape=[-1, 2]), x=X)
    client.define(node("MatMul", "product", "fed", "x", "^x"))
    client.define(node("Neg", "negative", "product"))
    (value,) = client.run(["negative:0"], {"fed:0": X})
    np.testing.assert_array_equal(value, -X @ X)
    names = messages.Names(client.session, ["fed:0", "product:0"])
    types, ranks, sizes = client.call(methods.SHAPES, names)[0]
    assert types.tolist() == [1, 1] and ranks.tolist() == [2, 2]
    assert sizes.tolist() == [-1, 2, -1, 2]


@pytest.mark.parametrize(
    ("nodes", "code", "words"),
    [
        ([node("Nonsense", "n")], wf.errors.NotFoundError, "Nonsense"),
        ([node("Neg", "x", "x")], wf.errors.AlreadyExistsError, "'x'"),
        ([node("Neg", "n", "nothing")], wf.errors.NotFoundError, "'nothing'"),
        ([node("Neg", "n", "x:3")], wf.errors.NotFoundError, "x:3.*1 outputs"),
        ([node("Neg", "good", "x"), node("Neg", "n")], wf.errors.OpError, "requires"),
        ([node("MatMul", "n", "x", "one")], wf.errors.OpError, "int32"),
        ([node("Neg", "n", "x", sparkle=True)], wf.errors.InvalidArgumentError, "sparkle"),
    ],
    ids=["op", "name", "input", "port", "inputs", "type", "attribute"],
)
def test_a_refused_definition_leaves_the_graph(
    client: Client, nodes: Any, code: Any, words: str
) -> None:
    client.define(x=X, one=np.int32(1))
    with pytest.raises(code, match=words):
        client.define(*nodes, late=X)
    client.define(node("Neg", "n", "x"), node("Neg", "good", "x"), late=X)
    np.testing.assert_array_equal(client.run(["n:0"])[0], -X)


def test_a_repeated_definition_changes_nothing(client: Client) -> None:
    nodes = as_array(proto.GraphDef(node=[node("Neg", "n", "x")]))
    first = messages.Define(client.session, ["x"], number=1)
    for _ in range(2):
        client.call(methods.DEFINE, first, [nodes, X])
    body = as_array(proto.GraphDef(node=[node("Placeholder", "a", dtype=wf.float32)]))
    function = messages.DefineFunction(client.session, "Same", ["a"], ["a:0"], number=2)
    for _ in range(2):
        client.call(methods.DEFINE_FUNCTION, function, [body])
    refused = messages.Define(client.session, number=3)
    for _ in range(2):  # an error is not a definition
        with pytest.raises(wf.errors.AlreadyExistsError):
            client.call(methods.DEFINE, refused, [nodes])
    corrected = messages.Define(client.session, ["late"], number=3)
    client.call(methods.DEFINE, corrected, [as_array(proto.GraphDef()), X])
    np.testing.assert_array_equal(client.run(["n:0", "late:0"]), [-X, X])


def test_an_output_can_be_fed_once(client: Client) -> None:
    client.define(node("Neg", "n", "x"), x=X)
    signature = messages.Signature(client.session, ["x:0", "x:0"], ["n:0"])
    with pytest.raises(wf.errors.InvalidArgumentError, match="x:0 is fed more than once"):
        client.call(methods.PLAN, signature)


@pytest.mark.parametrize(
    ("name", "example"), [("", "x:0"), ("y:-5", "y:0"), ("y:²", "y:0"), (":0", "x:0")]
)
def test_invalid_names_of_outputs_are_shown_with_a_valid_one(
    client: Client, name: str, example: str
) -> None:
    client.define(y=np.float32(1))
    message = f"named node:port, for example {example}; got '{name}'"
    with pytest.raises(wf.errors.InvalidArgumentError, match=message):
        client.run([name])


def test_the_names_of_added_nodes_are_returned(client: Client) -> None:
    client.define(node("MatMul", "product", "x", "x"), x=X)
    request = messages.Differentiate(
        client.session, ["product:0"], ["x:0"], nodes=True, names=True, scope="slopes"
    )
    (nodes, names), _ = client.call(methods.DIFFERENTIATE, request)
    added = proto.GraphDef.FromString(nodes.tobytes())
    assert [name.decode() for name in names] == [n.name for n in added.node]
    assert all(name.startswith(b"slopes/") for name in names)


def test_repeated_gradients_have_the_same_names(client: Client) -> None:
    client.define(node("MatMul", "product", "x", "x"), x=X)
    first = client.gradients(["product:0"], ["x:0"], number=1)
    assert client.gradients(["product:0"], ["x:0"], number=1) == first
    assert client.gradients(["product:0"], ["x:0"], number=2) != first


def test_gradients_are_added_at_the_master(client: Client) -> None:
    client.define(node("MatMul", "product", "x", "x"), node("Neg", "unused", "x"), x=X, start=2 * X)
    slopes = client.gradients(["product:0"], ["x:0", "unused:0"], grad_ys=["start:0"])
    assert slopes.values[1] == "" and slopes.indices == ["", ""]
    (value,) = client.run([slopes.values[0]])
    np.testing.assert_allclose(value, 2 * X @ X.T + X.T @ (2 * X))
    again = client.gradients([slopes.values[0]], ["start:0"])
    assert client.run([again.values[0]])[0].shape == (2, 2)
    with pytest.raises(wf.errors.NotFoundError, match="nowhere"):
        client.gradients(["product:0"], ["nowhere:0"])


def test_gradients_of_gathers_are_sparse_or_dense(client: Client) -> None:
    rows = node("GatherV2", "rows", "table", "ids", "axis")
    client.define(rows, table=np.ones([4, 2], np.float32), ids=np.array([1, 1]), axis=np.int32(0))
    sparse = client.gradients(["rows:0"], ["table:0"])
    values, indices = client.run([sparse.values[0], sparse.indices[0]])
    assert values.shape == (2, 2) and indices.tolist() == [1, 1]
    request = messages.Differentiate(
        client.session, ["rows:0"], ["table:0"], dense=True, nodes=True
    )
    (nodes,), meta = client.call(methods.DIFFERENTIATE, request)
    dense = decode(messages.Gradients, meta)
    assert dense.indices == [""]
    np.testing.assert_array_equal(client.run(dense.values)[0][:, 0], [0, 2, 0, 0])
    added = proto.GraphDef.FromString(nodes.tobytes())
    assert dense.values[0].partition(":")[0] in {n.name for n in added.node}


def define_function(client: Client, name: str, **options: Any) -> None:
    body = proto.GraphDef(
        node=[
            node("Placeholder", "a", dtype=wf.float32, shape=[]),
            node("Placeholder", "b", dtype=wf.float32),
            node("Mul", "product", "a", "b"),
            node("Add", "sum", "product", "one"),
        ]
    )
    request = messages.DefineFunction(client.session, name, constants=["one"], **options)
    client.call(methods.DEFINE_FUNCTION, request, [as_array(body), np.float32(1)])


def test_functions_are_defined_called_and_saved(client: Client, server: wf.train.Server) -> None:
    define_function(
        client, "Affine", inputs=["a", "b"], outputs=["sum:0", "a:0"], results=["y", "a"]
    )
    call = node("Affine", "call", "x", "x")
    client.define(call, node("Mul", "twice", "call:0", "call:1"), x=np.float32(3))
    assert client.run(["twice:0"]) == [30.0]
    slopes = client.gradients(["twice:0"], ["x:0"])
    assert client.run(slopes.values) == [28.0]
    listed = decode(
        messages.Names, client.call(methods.FUNCTIONS, messages.Names(client.session))[1]
    )
    assert "Affine" in listed.names
    request = messages.Names(client.session, ["Affine"])
    (library,), _ = client.call(methods.FUNCTIONS, request)
    with wf.Graph().as_default():
        wf.import_graph_def(proto.GraphDef.FromString(library.tobytes()), name="")
        y, a = wf.call_function("Affine", [2.0, 5.0])
        assert wf.Session().run([y, a]) == [11.0, 2.0]


def test_functions_of_python_are_called(client: Client) -> None:
    with wf.Graph().as_default() as graph:

        @wf.Defun(wf.float32, func_name="Cube")
        def cube(x: Any) -> Any:
            return x * x * x

        cube.add_to_graph(graph)
        library = graph.as_graph_def().library
    client.define(node("Cube", "cubed", "x"), library=library, x=np.float32(2))
    client.define(node("Cube", "again", "cubed"))
    assert client.run(["again:0"]) == [512.0]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"inputs": ["sum"], "outputs": ["sum"]}, "Placeholder"),
        ({"inputs": ["a", "a"], "outputs": ["sum"]}, "Placeholder"),
        ({"inputs": ["a"], "outputs": ["nowhere"]}, "nowhere"),
        ({"inputs": ["a", "b"], "outputs": ["sum"], "results": ["y", "z"]}, "2 names"),
    ],
    ids=["no placeholder", "twice", "output", "names"],
)
def test_a_refused_function_leaves_the_library(client: Client, options: Any, words: str) -> None:
    with pytest.raises(wf.errors.OpError, match=words):
        define_function(client, "Wrong", **options)
    reply = client.call(methods.FUNCTIONS, messages.Names(client.session))[1]
    assert decode(messages.Names, reply).names == []


def test_a_function_cannot_have_the_name_of_an_op(client: Client) -> None:
    with pytest.raises(wf.errors.AlreadyExistsError, match="'Neg', which is the name of an op"):
        define_function(client, "Neg", inputs=["a"], outputs=["a"])
    with wf.Graph().as_default() as graph:
        wf.Defun(wf.float32, func_name="Neg")(lambda x: x).add_to_graph(graph)
        library = graph.as_graph_def().library
    with pytest.raises(wf.errors.AlreadyExistsError, match="'Neg', which is the name of an op"):
        client.define(library=library)
    client.define(node("Neg", "y", "x"), x=X)
    np.testing.assert_array_equal(client.run(["y:0"])[0], -X)


def test_a_functional_loop_has_the_types_of_its_body(client: Client) -> None:
    for name, op in (("Below", "Less"), ("Twice", "Add")):
        argument = node("Placeholder", "i", dtype=wf.int32, shape=[])
        other = "ten" if op == "Less" else "i"
        body = proto.GraphDef(node=[argument, node(op, "result", "i", other)])
        request = messages.DefineFunction(client.session, name, ["i"], ["result"])
        request.constants = ["ten"]
        client.call(methods.DEFINE_FUNCTION, request, [as_array(body), np.int32(10)])
    loop = node("While", "loop", "start")
    loop.attr["cond"].func.name, loop.attr["body"].func.name = "Below", "Twice"
    client.define(loop, node("Neg", "negative", "loop"), start=np.int32(3))
    assert client.run(["negative:0"]) == [-12]


def test_constants_have_quantized_types(client: Client) -> None:
    request = messages.Define(client.session, ["q"], [], 0, ["qint8"])
    graph_def = proto.GraphDef(node=[node("Identity", "same", "q")])
    client.call(methods.DEFINE, request, [as_array(graph_def), np.int8([1, 2])])
    types = client.call(methods.SHAPES, messages.Names(client.session, ["same:0"]))[0][0]
    assert types.tolist() == [wf.qint8.as_datatype_enum]
    wrong = messages.Define(client.session, ["w"], [], 0, ["float32"])
    with pytest.raises(wf.errors.OpError, match="must be of float32, got int8") as caught:
        client.call(methods.DEFINE, wrong, [as_array(proto.GraphDef()), np.int8([1, 2])])
    assert caught.value.node == "w" and not caught.value.line


def test_a_variable_is_trained(client: Client) -> None:
    client.define(
        node("VariableV2", "v", dtype=wf.float32, shape=[2, 2]),
        node("Assign", "init", "v", "x"),
        node("Mul", "square", "v", "v"),
        x=X,
        rate=np.float32(0.25),
    )
    slopes = client.gradients(["square:0"], ["v:0"])
    client.define(node("ApplyGradientDescent", "train", "v", "rate", slopes.values[0]))
    client.run(["init:0"])
    client.run(["train:0"])
    np.testing.assert_array_equal(client.run(["v:0"])[0], X / 2)


def test_a_session_is_of_its_connection(client: Client, server: wf.train.Server) -> None:
    other = Client(server)
    other.session = client.session
    with pytest.raises(wf.errors.AbortedError, match="this connection has no session"):
        other.define(x=X)
    other.channel.close()


@pytest.mark.parametrize("values", [[], [X], [np.zeros([2], np.uint8)]], ids=["no", "type", "data"])
def test_what_is_no_graph_def_is_refused(client: Client, values: list[Any]) -> None:
    with pytest.raises(wf.errors.OpError, match="GraphDef"):
        client.call(methods.DEFINE, messages.Define(client.session), values)


def test_the_value_port_can_be_fixed() -> None:
    (port,) = free_ports(1)
    with closing(wf.train.Server(jobs(local=1), value_port=port)) as first:
        assert first.value_target == f"weft://localhost:{port}"
        with pytest.raises(wf.errors.UnavailableError, match=f"value port {port}"):
            wf.train.Server(jobs(local=1), value_port=port)
        client = Client(first)
        client.define(x=X)
        client.channel.close()


def test_a_peer_has_to_know_the_task(server: wf.train.Server) -> None:
    address = address_of(server.value_target.removeprefix("weft://"))
    with pytest.raises(wf.errors.AbortedError):
        dial(
            address,
            "the server",
            ConnectionOptions(messages.VERSION, local=False),
            ANY_INCARNATION,
            30,
        )
