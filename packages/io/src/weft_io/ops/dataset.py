"""Ops of datasets and iterators; the public classes are in `weft_io.data`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from weft_graph.ir.graph import Graph
from weft_graph.ir.node import Output
from weft_graph.ir.op_def import NodeSpec, register_op
from weft_graph.ir.traits import (
    CREATES,
    NOT_DIFFERENTIABLE,
    READS,
    WAITS,
    WRITES,
    Role,
    State,
    Traits,
)
from weft_graph.ops.shape_rules import scalar, with_rank
from weft_tensor.shape import Dims

_FORM: Final = {"output_types": "list(type) >= 1", "output_shapes": "list(shape) >= 1"}
_INPUT: Final = "input_dataset: variant"
_FUNCTION: Final = {"f": "func", "Targuments": "list(type)"}
_CAPTURED: Final = "other_arguments: Targuments"


def _no_outputs(node: NodeSpec) -> Sequence[Dims]:
    return ()


def _declare(
    op: str,
    inputs: Sequence[str],
    attrs: dict[str, str],
    doc: str,
    traits: Traits = NOT_DIFFERENTIABLE,
) -> None:
    register_op(op, tuple(inputs), ("handle: variant",), attrs, scalar, traits=traits, doc=doc)


# ----------------------------------------------------------------------------- sources

_COMPONENTS: Final = {"Toutput_types": "list(type) >= 1", "output_shapes": "list(shape) >= 1"}

_declare("TensorDataset", ["components: Toutput_types"], _COMPONENTS, "One element.", CREATES)
_declare(
    "TensorSliceDataset",
    ["components: Toutput_types"],
    _COMPONENTS,
    "The rows of tensors.",
    CREATES,
)
_declare(
    "RangeDataset",
    ["start: int64", "stop: int64", "step: int64"],
    _FORM,
    "Numbers in order.",
    CREATES,
)
_declare(
    "PythonGeneratorDataset",
    ["args: Targs"],
    {"token": "string", "Targs": "list(type)", **_FORM},
    "What a Python generator gives that a token stands for.",
    Traits(state=State.CREATES, host_code=True, differentiable=False),
)
_FILES = Traits(state=State.CREATES, reads_files=True, differentiable=False)

for _op in ("TFRecordDataset", "TextLineDataset"):
    _declare(
        _op,
        ["filenames: string", "compression_type: string", "buffer_size: int64"],
        {},
        "The records of files.",
        _FILES,
    )
_declare(
    "FixedLengthRecordDatasetV2",
    [
        "filenames: string",
        "header_bytes: int64",
        "record_bytes: int64",
        "footer_bytes: int64",
        "buffer_size: int64",
        "compression_type: string",
    ],
    {},
    "The records of files whose records have one length.",
    _FILES,
)

# --------------------------------------------------------------------- transformations

_declare(
    "MapDataset",
    [_INPUT, _CAPTURED],
    {
        **_FUNCTION,
        **_FORM,
        "use_inter_op_parallelism": "bool = true",
        "preserve_cardinality": "bool = false",
    },
    "A function of each element.",
)
_declare(
    "ParallelMapDataset",
    [_INPUT, _CAPTURED, "num_parallel_calls: int32"],
    {
        **_FUNCTION,
        **_FORM,
        "use_inter_op_parallelism": "bool = true",
        "sloppy": "bool = false",
        "preserve_cardinality": "bool = false",
    },
    "A function of several elements at once, results in order.",
)
_declare(
    "FilterDataset",
    [_INPUT, _CAPTURED],
    {"predicate": "func", "Targuments": "list(type)", **_FORM},
    "The elements of which a function is true.",
)
_declare(
    "FlatMapDataset",
    [_INPUT, _CAPTURED],
    {**_FUNCTION, **_FORM},
    "The datasets that a function makes, one after another.",
)
_declare(
    "InterleaveDataset",
    [_INPUT, _CAPTURED, "cycle_length: int64", "block_length: int64"],
    {**_FUNCTION, **_FORM},
    "The datasets that a function makes, in turns.",
)
_declare(
    "ParallelInterleaveDatasetV2",
    [
        _INPUT,
        _CAPTURED,
        "cycle_length: int64",
        "block_length: int64",
        "num_parallel_calls: int64",
    ],
    {**_FUNCTION, **_FORM, "sloppy": "bool = false"},
    "The same, read ahead.",
)
_declare(
    "ShuffleDataset",
    [_INPUT, "buffer_size: int64", "seed: int64", "seed2: int64"],
    {"reshuffle_each_iteration": "bool = true", **_FORM},
    "Elements in a random order.",
    CREATES,
)
_declare(
    "BatchDatasetV2",
    [_INPUT, "batch_size: int64", "drop_remainder: bool"],
    {"parallel_copy": "bool = false", **_FORM},
    "Elements in batches.",
)
_declare(
    "PaddedBatchDatasetV2",
    [
        _INPUT,
        "batch_size: int64",
        "padded_shapes: N * int64",
        "padding_values: Toutput_types",
        "drop_remainder: bool",
    ],
    {"parallel_copy": "bool = false", **_COMPONENTS, "N": "int >= 1"},
    "Elements in batches, padded to one size.",
)
for _op, _more, _doc in (
    ("UnbatchDataset", [], "The rows of elements."),
    ("RepeatDataset", ["count: int64"], "A dataset several times."),
    ("TakeDataset", ["count: int64"], "The first elements."),
    ("SkipDataset", ["count: int64"], "All elements but the first."),
):
    _declare(_op, [_INPUT, *_more], _FORM, _doc)
_declare(
    "PrefetchDataset",
    [_INPUT, "buffer_size: int64"],
    {**_FORM, "slack_period": "int = 0", "legacy_autotune": "bool = true"},
    "A dataset that is read ahead.",
)
_declare(
    "ShardDataset",
    [_INPUT, "num_shards: int64", "index: int64"],
    {"require_non_empty": "bool = false", **_FORM},
    "Every n-th element.",
)
_declare(
    "CacheDataset",
    [_INPUT, "filename: string"],
    _FORM,
    "A dataset whose elements are kept, in memory or a file.",
    Traits(state=State.CREATES, reads_files=True, writes_files=True, differentiable=False),
)
_declare(
    "ZipDataset",
    ["input_datasets: N * variant"],
    {**_FORM, "N": "int >= 1"},
    "Datasets side by side.",
)
_declare(
    "ConcatenateDataset",
    [_INPUT, "another_dataset: variant"],
    _FORM,
    "One dataset after another.",
)

# --------------------------------------------------------------------------- iterators


def _component_shapes(node: NodeSpec) -> Sequence[Dims]:
    with_rank(node.inputs[0].dims, 0, "the iterator's handle")
    shapes: Sequence[Dims] = node.attrs["output_shapes"]
    return shapes


register_op(
    "IteratorV2",
    (),
    ("handle: resource",),
    {"shared_name": "string", "container": "string", **_FORM},
    scalar,
    traits=CREATES,
    doc="A place in a dataset that it is given later.",
)
register_op(
    "OneShotIterator",
    (),
    ("handle: resource",),
    {
        "dataset_factory": "func",
        **_FORM,
        "container": "string = ''",
        "shared_name": "string = ''",
    },
    scalar,
    traits=CREATES,
    doc="A place in the dataset that a function makes.",
)
register_op(
    "MakeIterator",
    ("dataset: variant", "iterator: resource"),
    (),
    {},
    _no_outputs,
    traits=WRITES,
    doc="Let an iterator begin a pass over a dataset.",
)
register_op(
    "IteratorGetNext",
    ("iterator: resource",),
    ("components: output_types",),
    _FORM,
    _component_shapes,
    traits=WAITS,
    doc="The next element.",
)
register_op(
    "IteratorToStringHandle",
    ("resource_handle: resource",),
    ("string_handle: string",),
    {},
    scalar,
    traits=Traits(state=State.READS, differentiable=False, local_handle=True),
    doc="A string that stands for an iterator.",
)
register_op(
    "IteratorFromStringHandleV2",
    ("string_handle: string",),
    ("resource_handle: resource",),
    {"output_types": "list(type) = []", "output_shapes": "list(shape) = []"},
    scalar,
    traits=CREATES,
    doc="The iterator that a string stands for.",
)
register_op(
    "IteratorSerializeState",
    ("iterator: resource",),
    ("state: string",),
    {},
    scalar,
    traits=READS,
    doc="Where an iterator is, as bytes.",
)
register_op(
    "IteratorRestoreState",
    ("iterator: resource", "state: string"),
    (),
    {},
    _no_outputs,
    traits=WRITES,
    doc="Let an iterator go on from where another was.",
)


def iterators_of(graph: Graph) -> list[Output]:
    """Return the handles of a graph's iterators, except those looked up by string handles."""
    makers = ("IteratorV2", "OneShotIterator")
    return [node.outputs[0] for node in graph.get_operations() if node.type in makers]


def is_serialized(iterator: Output) -> bool:
    """Return True if a node serializes the iterator's state."""
    return any(node.type == "IteratorSerializeState" for node in iterator.consumers())


def is_fed(iterator: Output) -> bool:
    """Return True if an iterator is looked up by a string that is fed."""
    node = iterator.node
    result = node.type == "IteratorFromStringHandleV2"
    return result and node.inputs[0].node.role is Role.PLACEHOLDER
