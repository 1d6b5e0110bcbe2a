"""Ops of readers, which read records of files whose names come from a queue (paper, section 4.5).

Programs use the classes of `weft_io.input.readers`; this module creates their nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft_graph.ir.builder import create, out
from weft_graph.ir.named_results import named_results
from weft_graph.ir.node import Node, Output
from weft_graph.ir.op_def import NodeSpec, register_op
from weft_graph.ir.traits import CREATES, READS, WRITES, State, Traits
from weft_graph.ops.resource_state import current_container
from weft_graph.ops.shape_rules import constant_int, with_rank
from weft_tensor import errors
from weft_tensor.shape import Dims, format_dims

# --------------------------------------------------------------------------- declarations

_RESOURCE_ATTRS = {"container": "string = ''", "shared_name": "string = ''"}


def _reader_shape(node: NodeSpec) -> Sequence[Dims]:
    return ((),)


def _fixed_length_shape(node: NodeSpec) -> Sequence[Dims]:
    for name, minimum in (
        ("record_bytes", 1),
        ("header_bytes", 0),
        ("footer_bytes", 0),
        ("hop_bytes", 0),
    ):
        if node.attrs[name] < minimum:
            raise errors.InvalidArgumentError(
                f"{name} must be at least {minimum}, got {node.attrs[name]}"
            )
    return ((),)


def _skip_shape(node: NodeSpec) -> Sequence[Dims]:
    if node.attrs["skip_header_lines"] < 0:
        raise errors.InvalidArgumentError(
            f"skip_header_lines must be at least 0, got {node.attrs['skip_header_lines']}"
        )
    return ((),)


def _scalars(node: NodeSpec) -> None:
    for value in node.inputs:
        with_rank(value.dims, 0, "a handle, a number or a state")


def _read_shape(node: NodeSpec) -> Sequence[Dims]:
    _scalars(node)
    return (), ()


def _read_up_to_shape(node: NodeSpec) -> Sequence[Dims]:
    _scalars(node)
    count = constant_int(node.inputs[2])
    if count is not None and count < 0:
        raise errors.InvalidArgumentError(f"num_records must not be negative, got {count}")
    return (None,), (None,)


def _scalar_shape(node: NodeSpec) -> Sequence[Dims]:
    _scalars(node)
    return ((),)


def _no_outputs(node: NodeSpec) -> Sequence[Dims]:
    _scalars(node)
    return ()


def _restore_shape(node: NodeSpec) -> Sequence[Dims]:
    with_rank(node.inputs[0].dims, 0, "a handle")
    states = node.inputs[1].dims
    if states is not None and len(states) > 1:
        raise errors.InvalidArgumentError(
            f"states must be a scalar or a vector, got shape {format_dims(states)}"
        )
    return ()


_ENCODING = "{'', 'ZLIB', 'GZIP'} = ''"

for _op, _attrs, _rule, _doc in (
    ("WholeFileReaderV2", {}, _reader_shape, "A reader whose records are whole files."),
    ("IdentityReaderV2", {}, _reader_shape, "A reader whose records are the names it is given."),
    (
        "TextLineReaderV2",
        {"skip_header_lines": "int = 0"},
        _skip_shape,
        "A reader whose records are lines.",
    ),
    (
        "FixedLengthRecordReaderV2",
        {
            "header_bytes": "int = 0",
            "record_bytes": "int",
            "footer_bytes": "int = 0",
            "hop_bytes": "int = 0",
        },
        _fixed_length_shape,
        "A reader whose records have one length.",
    ),
    ("TFRecordReaderV2", {}, _reader_shape, "A reader of TFRecord files."),
    (
        "ParquetReaderV2",
        {"columns": "list(string) = []"},
        _reader_shape,
        "A reader whose records are the rows of Parquet files, as serialized examples.",
    ),
):
    _more = {
        "FixedLengthRecordReaderV2": {"encoding": _ENCODING},
        "TFRecordReaderV2": {"compression_type": _ENCODING},
    }.get(_op, {})
    register_op(
        _op,
        (),
        ("reader_handle: resource",),
        {**_attrs, **_RESOURCE_ATTRS, **_more},
        _rule,
        traits=CREATES,
        doc=_doc,
    )

_HANDLE = ("reader_handle: resource",)

register_op(
    "ReaderReadV2",
    (*_HANDLE, "queue_handle: resource"),
    ("key: string", "value: string"),
    shape=_read_shape,
    traits=Traits(state=State.WRITES, differentiable=False, asynchronous=True, reads_files=True),
    doc="The next record, of a file named by the queue.",
)
register_op(
    "ReaderReadUpToV2",
    (*_HANDLE, "queue_handle: resource", "num_records: int64"),
    ("keys: string", "values: string"),
    shape=_read_up_to_shape,
    traits=Traits(state=State.WRITES, differentiable=False, asynchronous=True, reads_files=True),
    doc="The next records of one file, up to a number of them.",
)
for _op, _output, _doc in (
    ("ReaderNumRecordsProducedV2", "records_produced: int64", "How many records were read."),
    ("ReaderNumWorkUnitsCompletedV2", "units_completed: int64", "How many files were read."),
    ("ReaderSerializeStateV2", "state: string", "How far the reader is, as bytes."),
):
    register_op(_op, _HANDLE, (_output,), shape=_scalar_shape, traits=READS, doc=_doc)
register_op(
    "ReaderRestoreStateV2",
    (*_HANDLE, "state: string"),
    (),
    shape=_restore_shape,
    traits=WRITES,
    doc="Go on where one reader of the same kind was, or several.",
)
register_op(
    "ReaderResetV2", _HANDLE, (), shape=_no_outputs, traits=WRITES, doc="Forget everything."
)

# --------------------------------------------------------------------------- functions


def _container() -> dict[str, str]:
    return {"container": current_container()}


def whole_file_reader(shared_name: str = "", name: str | None = None) -> Output:
    """Return the handle of a reader whose records are whole files."""
    return out("WholeFileReaderV2", (), {"shared_name": shared_name, **_container()}, name)


def identity_reader(shared_name: str = "", name: str | None = None) -> Output:
    """Return the handle of a reader whose records are the file names."""
    return out("IdentityReaderV2", (), {"shared_name": shared_name, **_container()}, name)


def text_line_reader(
    skip_header_lines: int = 0, shared_name: str = "", name: str | None = None
) -> Output:
    """Return the handle of a reader whose records are lines."""
    attrs = {"skip_header_lines": skip_header_lines, "shared_name": shared_name, **_container()}
    return out("TextLineReaderV2", (), attrs, name)


def fixed_length_record_reader(
    record_bytes: int,
    header_bytes: int = 0,
    footer_bytes: int = 0,
    hop_bytes: int = 0,
    encoding: str = "",
    shared_name: str = "",
    name: str | None = None,
) -> Output:
    """Return the handle of a reader of fixed-length records."""
    attrs = {
        "record_bytes": record_bytes,
        "header_bytes": header_bytes,
        "footer_bytes": footer_bytes,
        "hop_bytes": hop_bytes,
        "encoding": encoding,
        "shared_name": shared_name,
        **_container(),
    }
    return out("FixedLengthRecordReaderV2", (), attrs, name)


def tf_record_reader(
    compression_type: str = "", shared_name: str = "", name: str | None = None
) -> Output:
    """Return the handle of a reader of TFRecord files."""
    attrs = {"compression_type": compression_type, "shared_name": shared_name, **_container()}
    return out("TFRecordReaderV2", (), attrs, name)


def parquet_reader(
    columns: Sequence[str] = (), shared_name: str = "", name: str | None = None
) -> Output:
    """Return the handle of a reader of rows of Parquet files; all columns by default."""
    attrs = {"columns": tuple(columns), "shared_name": shared_name, **_container()}
    return out("ParquetReaderV2", (), attrs, name)


def reader_read(
    reader_handle: Any, queue_handle: Any, name: str | None = None
) -> tuple[Output, ...]:
    """Return the next record: (key, value), strings of shape ()."""
    node = create("ReaderReadV2", [reader_handle, queue_handle], None, name)
    outputs: tuple[Output, ...] = named_results(node)
    return outputs


def reader_read_up_to(
    reader_handle: Any, queue_handle: Any, num_records: Any, name: str | None = None
) -> tuple[Output, ...]:
    """Return up to `num_records` records of one file: (keys, values), strings of shape (n,)."""
    inputs = [reader_handle, queue_handle, num_records]
    outputs: tuple[Output, ...] = named_results(create("ReaderReadUpToV2", inputs, None, name))
    return outputs


def reader_num_records_produced(reader_handle: Any, name: str | None = None) -> Output:
    """Return the number of records read: int64, shape ()."""
    return out("ReaderNumRecordsProducedV2", [reader_handle], None, name)


def reader_num_work_units_completed(reader_handle: Any, name: str | None = None) -> Output:
    """Return the number of files read to their end: int64, shape ()."""
    return out("ReaderNumWorkUnitsCompletedV2", [reader_handle], None, name)


def reader_serialize_state(reader_handle: Any, name: str | None = None) -> Output:
    """Return the state of a reader: string, shape ()."""
    return out("ReaderSerializeStateV2", [reader_handle], None, name)


def reader_restore_state(reader_handle: Any, state: Any, name: str | None = None) -> Node:
    """Continue from states of readers of the same kind; `state` is a string of shape () or (n,)."""
    return create("ReaderRestoreStateV2", [reader_handle, state], None, name)


def reader_reset(reader_handle: Any, name: str | None = None) -> Node:
    """Reset the reader."""
    return create("ReaderResetV2", [reader_handle], None, name)
