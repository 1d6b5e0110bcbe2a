"""Conditionals, loops, TensorArrays and recurrent cells return the same as in a session.

They are those of tests/integration/control_flow and tests/graph/control_flow/loops. Lite has
no float64, so their frozen graphs are made ones of float32.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from weft_testing.loading import load

import weft as wf
from weft_graph.messages.tensor_proto import array_to_proto
from weft_lite import Interpreter
from weft_lite.convert import Converter
from weft_lite.errors import LiteError
from weft_tensor import dtypes

TESTS = Path(__file__).parents[2]
RECORDER = load(TESTS / "integration" / "control_flow" / "record.py")
PROGRAMS = RECORDER.load()
LOOPS = load(TESTS / "graph" / "control_flow" / "loops" / "cases.py")

REFUSED = frozenset(
    """
    a_body_adds_to_a_reference_variable a_body_adds_to_a_resource_variable
    a_body_scatters_into_a_variable a_branch_assigns a_branch_that_copies_into_a_variable
    a_cond_in_a_loop_writes_an_array a_condition_that_reads_a_variable
    a_dependency_in_one_function_of_case a_gradient_of_a_loop_in_a_body
    a_jacobian_by_a_loop_over_outputs a_loop_that_prints a_moving_average_updated_in_a_branch
    a_random_number_in_each_branch a_rank_that_changes a_reference_variable_as_loop_variable
    a_shape_that_changes_without_an_invariant a_shape_that_the_body_fixes
    a_sparse_loop_variable_that_grows a_sparse_matrix_as_loop_variable
    a_variable_of_unknown_rank a_variable_with_an_initial_tensor_in_a_body
    a_write_after_a_read an_array_larger_than_it_was_made an_array_of_dynamic_size
    an_array_of_pieces_joined an_inner_loop_as_in_maml an_update_from_outside_in_a_body
    an_update_outside_of_the_branch_runs_either_way assignments_outside_and_inside_of_branches
    beam_search_with_growing_beams bfloat16_variables case_whose_conditions_do_not_hold
    complex_branches complex_variables cond_of_constants_and_python_values
    cond_of_nested_dictionaries cond_of_operations cond_of_slices cond_of_sparse_tensors
    cond_of_strings_and_ints cond_with_branches_of_different_shapes
    dependencies_on_updates_made_outside descent_in_a_body
    descent_in_a_body_on_a_reference_variable every_second_run_updates
    exclusive_conditions_of_which_two_hold gradients_of_elements_of_an_array_in_a_body
    gradients_under_a_dependency_on_the_result half_variables
    higher_derivatives_of_matrix_products insertion_sort integer_variables mandelbrot_escape
    moments_for_training_and_moving_ones_else no_parallel_iterations
    numbers_of_fibonacci_assigned_in_a_body primes_by_a_sieve random_numbers_in_a_body
    rows_of_a_jacobian_in_a_loop shape_invariants_of_arrays_are_scalars
    shapes_of_values_in_a_body string_variables switch_case_of_a_vector switch_case_of_effects
    the_gradient_of_an_aggregate_of_what_was_written training_steps_in_a_branch
    training_steps_on_a_loop words_from_tagged_characters writes_to_an_array_that_are_dropped
    """.split()  # noqa: SIM905  # a table to be read
)
"""Programs that lite refuses: they train, draw, print, or are of strings and complex numbers."""

BOUNDS = {
    "a_vector_that_grows": {"while/Merge_1": [64]},
    "a_vector_that_grows_from_itself": {"while/Merge_1": [64]},
    "rows_joined_in_a_body": {"while/Merge_1": [64, 2]},
}
"""Loop variables that grow need a bound."""


def narrowed(definition: Any) -> Any:
    """A graph of float32 in the place of one of float64."""
    for node in definition.node:
        for attr in node.attr.values():
            if attr.type == dtypes.float64.as_datatype_enum:
                attr.type = dtypes.float32.as_datatype_enum
            for i, kind in enumerate(attr.list.type):
                if kind == dtypes.float64.as_datatype_enum:
                    attr.list.type[i] = dtypes.float32.as_datatype_enum
            if attr.tensor.dtype == dtypes.float64.as_datatype_enum:
                array = wf.make_ndarray(attr.tensor).astype(np.float32)
                attr.tensor.CopyFrom(array_to_proto(array, dtypes.float32))
    return definition


def converter(
    session: Any, inputs: Sequence[Any], outputs: Sequence[Any], bounds: Mapping[str, Any]
) -> Converter:
    """A converter of a session's graph with frozen variables, in float32."""
    names = [each.op.name for each in (*outputs, *inputs)]
    frozen = wf.graph_util.convert_variables_to_constants(
        session, session.graph.as_graph_def(), list(dict.fromkeys(names))
    )
    with wf.Graph().as_default() as graph:
        wf.import_graph_def(narrowed(frozen), name="")
    found = [[graph.get_tensor_by_name(x.name) for x in part] for part in (inputs, outputs)]
    return Converter(graph, *found, bounds)


def ran(interpreter: Interpreter, values: Iterable[Any]) -> list[Any]:
    """The outputs for values of the inputs."""
    details = interpreter.get_input_details()
    values = [np.asarray(value) for value in values]
    for each, value in zip(details, values, strict=True):
        if tuple(each["shape"]) != value.shape:
            interpreter.resize_tensor_input(each["index"], value.shape)
    for each, value in zip(details, values, strict=True):
        interpreter.set_tensor(each["index"], value.astype(each["dtype"]))
    interpreter.invoke()
    return [interpreter.get_tensor(each["index"]) for each in interpreter.get_output_details()]


def agrees(found: Sequence[Any], wanted: Sequence[Any]) -> None:
    for ours, theirs in zip(found, wanted, strict=True):
        assert ours.shape == np.shape(theirs)
        np.testing.assert_allclose(ours, theirs, 1e-3, 1e-4)


CONVERTED = [name for name in PROGRAMS.TABLE if name not in REFUSED]


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if place % 6 == 0 or name in BOUNDS else pytest.mark.long)
        for place, name in enumerate(CONVERTED)
    ],
)
def test_a_program(name: str) -> None:
    run_program(name)


def run_program(name: str) -> None:
    """All runs of a program, on a session and on lite."""
    row = PROGRAMS.TABLE[name]
    built = PROGRAMS.build(wf, row, 0)
    outputs = [value for value in built.values.values() if isinstance(value, wf.Tensor)]
    with wf.Session(graph=built.graph) as session:
        session.run(built.initializer)
        bounds = {name: np.shape(value) for name, value in row.feeds[0].items()}
        bounds |= BOUNDS.get(name, {})
        made = converter(session, list(built.inputs.values()), outputs, bounds)
        interpreter = Interpreter(model_content=made.convert(samples=row.feeds[0]))
        for feed in row.feeds:
            wanted = session.run(outputs, PROGRAMS.fed(built, feed))
            agrees(ran(interpreter, [feed[name] for name in built.inputs]), wanted)


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(REFUSED))
def test_a_program_that_lite_refuses(name: str) -> None:
    with pytest.raises((wf.errors.OpError, LiteError)):
        run_program(name)


LOOP_BOUNDS = {
    "raw_as_dynamic": {"rnn/rnn_output_0": [8]},
    "raw_decoder": {
        "decoder/TensorArray": [8],
        "decoder/rnn_output_0": [8],
        "decoder/rnn_output_1": [8],
    },
    "beam_search": {"while/Merge_1": [3, 16]},
    "attention": {"while/Merge_2": [4, 16, 2]},
}
"""What grows needs a bound."""


def loop_cases() -> list[Any]:
    """The cases of recurrent networks, maps and folds; every third in short runs."""
    return [
        pytest.param(name, marks=[] if place % 3 == 0 else pytest.mark.long)
        for place, name in enumerate(LOOPS.CASES)
        if name != "rows_map_structure"  # whose input has no rank
    ]


@pytest.mark.parametrize("name", loop_cases())
def test_a_case_of_loops(name: str) -> None:
    random, case = np.random.RandomState(0), LOOPS.CASES[name]
    with wf.Graph().as_default(), wf.Session() as session:
        feeds = {
            wf.placeholder(dtype, static, name=f"input{i}"): LOOPS._value(random, shape, dtype)
            for i, (shape, dtype, static) in enumerate(case.feeds)
        }
        outputs = [each for each in wf.nest.flatten(case.build(wf, *feeds))]
        session.run(wf.global_variables_initializer())
        bounds = {x.op.name: value.shape for x, value in feeds.items()}
        bounds |= LOOP_BOUNDS.get(name, {})
        made = converter(session, list(feeds), outputs, bounds)
        interpreter = Interpreter(
            model_content=made.convert({x.op.name: value for x, value in feeds.items()})
        )
        agrees(ran(interpreter, feeds.values()), session.run(outputs, feeds))
