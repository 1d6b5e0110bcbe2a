"""Ops of further dataset transformations: windows, and those of `wf.data.experimental`."""

from __future__ import annotations

from typing import Final

from weft_graph.ir.op_def import register_op
from weft_graph.ir.traits import CREATES, NOT_DIFFERENTIABLE, State, Traits
from weft_graph.ops.shape_rules import scalar

_FORM: Final = {"output_types": "list(type) >= 1", "output_shapes": "list(shape) >= 1"}
_INPUT: Final = "input_dataset: variant"
_FILES: Final = Traits(state=State.CREATES, reads_files=True, differentiable=False)


def _declare(
    op: str,
    inputs: tuple[str, ...],
    attrs: dict[str, str],
    doc: str,
    traits: Traits = NOT_DIFFERENTIABLE,
) -> None:
    register_op(op, inputs, ("handle: variant",), attrs, scalar, traits=traits, doc=doc)


_declare(
    "WindowDataset",
    (_INPUT, "size: int64", "shift: int64", "stride: int64", "drop_remainder: bool"),
    _FORM,
    "Datasets of elements that follow each other.",
)
_declare(
    "ScanDataset",
    (_INPUT, "initial_state: Tstate", "other_arguments: Targuments"),
    {
        "f": "func",
        "Tstate": "list(type) >= 1",
        "Targuments": "list(type)",
        **_FORM,
        "preserve_cardinality": "bool = false",
        "use_default_device": "bool = true",
    },
    "What a function of a state and an element gives beside the next state.",
)
_declare(
    "TakeWhileDataset",
    (_INPUT, "other_arguments: Targuments"),
    {"predicate": "func", "Targuments": "list(type)", **_FORM},
    "The elements before the first of which a function is false.",
)
_declare(
    "GroupByWindowDataset",
    (
        _INPUT,
        "key_func_other_arguments: Tkey_func_other_arguments",
        "reduce_func_other_arguments: Treduce_func_other_arguments",
        "window_size_func_other_arguments: Twindow_size_func_other_arguments",
    ),
    {
        **{f"{item}_func": "func" for item in ("key", "reduce", "window_size")},
        **{
            f"T{item}_func_other_arguments": "list(type)"
            for item in ("key", "reduce", "window_size")
        },
        **_FORM,
    },
    "The datasets that a function makes of groups of elements of one key.",
)
_declare(
    "GroupByReducerDataset",
    (
        _INPUT,
        "key_func_other_arguments: Tkey_func_other_arguments",
        "init_func_other_arguments: Tinit_func_other_arguments",
        "reduce_func_other_arguments: Treduce_func_other_arguments",
        "finalize_func_other_arguments: Tfinalize_func_other_arguments",
    ),
    {
        **{f"{item}_func": "func" for item in ("key", "init", "reduce", "finalize")},
        **{
            f"T{item}_func_other_arguments": "list(type)"
            for item in ("key", "init", "reduce", "finalize")
        },
        **_FORM,
    },
    "For each key what functions make of all its elements.",
)
_declare("UniqueDataset", (_INPUT,), _FORM, "Each element once.")
_declare(
    "IgnoreErrorsDataset",
    (_INPUT,),
    {**_FORM, "log_warning": "bool = false"},
    "The elements that do not fail.",
)
_declare(
    "AssertCardinalityDataset",
    (_INPUT, "cardinality: int64"),
    _FORM,
    "Elements, of which there are so many.",
)
_declare(
    "DirectedInterleaveDataset",
    ("selector_input_dataset: variant", "data_input_datasets: N * variant"),
    {**_FORM, "N": "int >= 1", "stop_on_empty_dataset": "bool = false"},
    "The next element of the dataset whose number comes next.",
)
_declare(
    "DenseToSparseBatchDataset",
    (_INPUT, "batch_size: int64", "row_shape: int64"),
    _FORM,
    "Elements in batches that are sparse tensors.",
)
_declare("RandomDataset", ("seed: int64", "seed2: int64"), _FORM, "Random integers.", CREATES)
_declare(
    "CSVDataset",
    (
        "filenames: string",
        "compression_type: string",
        "buffer_size: int64",
        "header: bool",
        "field_delim: string",
        "use_quote_delim: bool",
        "na_value: string",
        "select_cols: int64",
        "record_defaults: output_types",
    ),
    _FORM,
    "The records of files of comma-separated values.",
    _FILES,
)
_declare(
    "SqlDataset",
    ("driver_name: string", "data_source_name: string", "query: string"),
    _FORM,
    "The rows that a query of a database gives.",
    _FILES,
)
