"""Attributes and string forms of graphs, nodes and errors."""

from __future__ import annotations

import numpy as np
import pytest

import weft as wf
from weft import errors


@pytest.fixture(autouse=True)
def graph() -> wf.Graph:
    with wf.Graph().as_default() as made:
        yield made


class TestOfGraphs:
    def test_versions(self, graph: wf.Graph) -> None:
        wf.constant(1.0)
        assert graph.graph_def_versions == graph.as_graph_def().versions
        assert graph.graph_def_versions.producer == wf.version.GRAPH_DEF_VERSION
        assert not graph.building_function

    def test_reprs_say_what_they_are(self, graph: wf.Graph) -> None:
        wf.constant(1.0)
        assert repr(graph).startswith("<weft.Graph with 1 operations at 0x")
        session = wf.Session("inproc://repr")
        assert "Session on 'inproc://repr' of <weft.Graph with 1" in repr(session)
        session.close()
        assert repr(session).endswith(", closed>")


class TestOfNodes:
    def test_control_inputs_are_a_list_of_the_callers_own(self) -> None:
        first = wf.no_op()
        with wf.control_dependencies([first]):
            second = wf.no_op()
        assert first.control_inputs == [] and second.control_inputs == [first]
        second.control_inputs.clear()
        assert second.control_inputs == [first]

    def test_traceback(self) -> None:
        ((file, line, function, text),) = wf.constant(1.0).op.traceback
        assert file == __file__ and line > 0 and function == "test_traceback"
        assert text is not None and "wf.constant(1.0).op.traceback" in text

    def test_results_have_names(self) -> None:
        pair = wf.raw_ops.Switch(data=wf.constant(1.0), pred=True)
        assert pair.output_false is pair[0] and pair.output_true is pair[1]
        found = wf.raw_ops.IdentityN(input=[1.0, 2])
        assert len(found) == 2
        split = wf.linalg.qr([[1.0]])
        assert split.q is split[0] and split.r is split[1]
        assert wf.linalg.slogdet([[1.0]])._fields == ("sign", "log_abs_determinant")
        pooled = wf.nn.max_pool_with_argmax(wf.ones([1, 2, 2, 1]), 2, 1, "SAME")
        assert pooled._fields == ("output", "argmax")


def test_errors_have_the_operation() -> None:
    checked = wf.check_numerics(wf.constant(np.nan), "odd", name="checked")
    with wf.Session() as session, pytest.raises(errors.InvalidArgumentError) as caught:
        session.run(checked)
    error = caught.value
    assert error.op is checked.op and error.op_type == "CheckNumerics"
    assert error.node_def == checked.op.node_def
    again = errors.OpError.from_dict(error.to_dict())
    assert again.op == "CheckNumerics" and again.node_def is None and str(again) == str(error)
    made = errors.InvalidArgumentError(checked.op.node_def, checked.op, "message")
    assert made.op is checked.op and made.node == "checked"
