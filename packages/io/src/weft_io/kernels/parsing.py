"""Kernels that parse serialized examples and other formats."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from google.protobuf.message import DecodeError

from weft_exec.kernels.registry import KernelFunction, kernel
from weft_graph import proto
from weft_graph.messages.tensor_proto import array_to_proto, make_ndarray
from weft_io.records.columns import Empty, to_strings
from weft_io.records.csv import CsvDecoder
from weft_io.records.examples import ExampleParser
from weft_io.records.sequences import Features, ParsedSequences, SequenceParser
from weft_io.records.streams import MAX_INFLATED
from weft_io.resources.handles import allocator
from weft_io.resources.values import row_of
from weft_tensor import errors
from weft_tensor.dtypes import DType
from weft_tensor.shape import Dims, format_dims

if TYPE_CHECKING:
    from weft_exec.devices.device import Device
    from weft_graph.ir.node import Node

Array = np.ndarray[Any, Any]
Triples = Sequence[tuple[Array, Array, Array]]


def _bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else value


def _results(outputs: list[Any]) -> Any:
    return outputs[0] if len(outputs) == 1 else tuple(outputs)


def _columns(triples: Triples) -> list[Array]:
    """Concatenate all indices, then all values, then all shapes."""
    return [part for parts in zip(*triples, strict=True) for part in parts]


def _unbatch(triples: Triples) -> list[Array]:
    """Return the columns of a single example, without the batch axis of indices and shapes."""
    return _columns([(indices[:, 1:], values, shape[1:]) for indices, values, shape in triples])


def _names(names: Any, count: int) -> list[bytes]:
    result: list[bytes] = names.reshape(-1).tolist()
    if result and len(result) != count:
        raise errors.InvalidArgumentError(
            f"names must have one entry for each of {count} examples, or none; got {len(result)}"
        )
    return result


# ---------------------------------------------------------------------------- examples


class _Parsers:
    """The parser of a node whose keys are inputs; it is created again when the keys change."""

    def __init__(self, node: Node, empty: Empty) -> None:
        attrs = node.attrs
        self._sparse: int = attrs["Nsparse"]
        self._sparse_types: Sequence[DType] = attrs["sparse_types"]
        self._dense_types: Sequence[DType] = attrs["Tdense"]
        self._shapes: Sequence[Dims] = attrs["dense_shapes"]
        self._empty = empty
        self._current: ExampleParser | None = None

    def get(self, keys: tuple[bytes, ...]) -> ExampleParser:
        parser = self._current
        if parser is None or parser.keys != keys:
            parser = self._current = ExampleParser(
                keys[: self._sparse],
                self._sparse_types,
                keys[self._sparse :],
                self._dense_types,
                self._shapes,
                self._empty,
            )
        return parser


@kernel("ParseExample", heavy=True)
def _parse_example(node: Node, device: Device) -> KernelFunction:
    parsers = _Parsers(node, allocator(device))
    count: int = node.attrs["Nsparse"] + node.attrs["Ndense"]

    def run(serialized: Any, names: Any, *remaining: Any) -> Any:
        if serialized.ndim != 1:
            raise errors.InvalidArgumentError(
                f"serialized must be a vector, got shape {format_dims(serialized.shape)}"
            )
        examples: list[bytes] = serialized.tolist()
        parser = parsers.get(tuple([key.item() for key in remaining[:count]]))
        sparse, dense = parser.parse(examples, _names(names, len(examples)), remaining[count:])
        return _results([*_columns(sparse), *dense])

    return run


@kernel("ParseSingleExample")
def _parse_single_example(node: Node, device: Device) -> KernelFunction:
    attrs = node.attrs
    parser = ExampleParser(
        [_bytes(key) for key in attrs["sparse_keys"]],
        attrs["sparse_types"],
        [_bytes(key) for key in attrs["dense_keys"]],
        attrs["Tdense"],
        attrs["dense_shapes"],
        allocator(device),
    )

    def run(serialized: Any, *defaults: Any) -> Any:
        if serialized.ndim:
            raise errors.InvalidArgumentError(
                f"serialized must have rank 0, got shape {list(serialized.shape)}"
            )
        sparse, dense = parser.parse([serialized.item()], (), defaults)
        return _results([*_unbatch(sparse), *[row_of(value, 0) for value in dense]])

    return run


# --------------------------------------------------------------------------- sequences


def _sequence_parser(
    node: Node, keys: Sequence[Sequence[bytes]], assumed_empty: Sequence[bytes], empty: Empty
) -> SequenceParser:
    attrs = node.attrs
    context = Features(
        keys[0],
        attrs["context_sparse_types"],
        keys[1],
        attrs["Tcontext_dense"],
        attrs["context_dense_shapes"],
    )
    lists = Features(
        keys[2],
        attrs["feature_list_sparse_types"],
        keys[3],
        attrs["feature_list_dense_types"],
        attrs["feature_list_dense_shapes"],
    )
    return SequenceParser(context, lists, frozenset(assumed_empty), empty)


_KEYS: Final = (
    "context_sparse_keys",
    "context_dense_keys",
    "feature_list_sparse_keys",
    "feature_list_dense_keys",
)


@kernel("ParseSequenceExample", heavy=True)
def _parse_sequence_example(node: Node, device: Device) -> KernelFunction:
    keys = [[_bytes(key) for key in node.attrs[name]] for name in _KEYS]
    assumed = [_bytes(key) for key in node.attrs["feature_list_dense_missing_assumed_empty"]]
    parser = _sequence_parser(node, keys, assumed, allocator(device))

    def run(serialized: Any, names: Any, *defaults: Any) -> Any:
        examples: list[bytes] = serialized.tolist()
        parsed = parser.parse(examples, _names(names, len(examples)), defaults)
        return _results(
            [
                *_columns(parsed.context_sparse),
                *parsed.context_dense,
                *_columns(parsed.list_sparse),
                *parsed.list_dense,
                *parsed.lengths,
            ]
        )

    return run


@kernel("ParseSingleSequenceExample")
def _parse_single_sequence_example(node: Node, device: Device) -> KernelFunction:
    attrs = node.attrs
    counts = [
        attrs["Ncontext_sparse"],
        attrs["Ncontext_dense"],
        attrs["Nfeature_list_sparse"],
        attrs["Nfeature_list_dense"],
    ]
    empty = allocator(device)
    cached: tuple[Any, SequenceParser] | None = None

    def parser_of(assumed: list[bytes], keys: list[list[bytes]]) -> SequenceParser:
        nonlocal cached
        current = cached
        if current is None or current[0] != (assumed, keys):
            parser = _sequence_parser(node, keys, assumed, empty)
            cached = current = ((assumed, keys), parser)
        return current[1]

    def run(serialized: Any, assumed: Any, *remaining: Any) -> Any:
        if non_scalars := [
            value for value in (serialized, *remaining[: sum(counts)]) if value.size != 1
        ]:
            raise errors.InvalidArgumentError(
                f"serialized and the keys must have rank 0, got shape {list(non_scalars[0].shape)}"
            )
        if remaining[-1].size > 1:
            raise errors.InvalidArgumentError(
                f"the name must have rank 0, got shape {list(remaining[-1].shape)}"
            )
        keys, index = [], 0
        for count in counts:
            keys.append([key.item() for key in remaining[index : index + count]])
            index += count
        parser = parser_of(assumed.reshape(-1).tolist(), keys)
        names = [remaining[-1].item()] if remaining[-1].size and remaining[-1].item() else []
        parsed = parser.parse([serialized.item()], names, remaining[index:-1])
        return _results(_single(parsed))

    return run


def _single(parsed: ParsedSequences) -> list[Any]:
    return [
        *_unbatch(parsed.context_sparse),
        *[row_of(value, 0) for value in parsed.context_dense],
        *_unbatch(parsed.list_sparse),
        *[row_of(value, 0) for value in parsed.list_dense],
    ]


# ----------------------------------------------------------------------- other formats


@kernel("DecodeCSV")
def _decode_csv(node: Node, device: Device) -> KernelFunction:
    attrs = node.attrs
    if len(_bytes(attrs["field_delim"])) != 1:
        raise errors.InvalidArgumentError(
            f"field_delim must be one byte, got {attrs['field_delim']!r}"
        )
    decoder = CsvDecoder(
        attrs["OUT_TYPE"],
        _bytes(attrs["field_delim"]),
        attrs["use_quote_delim"],
        _bytes(attrs["na_value"]),
        attrs["select_cols"],
    )

    def run(records: Any, *defaults: Any) -> Any:
        for default in defaults:
            if default.size > 1:
                raise errors.InvalidArgumentError(
                    f"a default must have one element or none, got {default.size}"
                )
        selected = [default.reshape(-1)[0] if default.size else None for default in defaults]
        columns = decoder.decode(records.reshape(-1).tolist(), selected)
        return _results([column.reshape(records.shape) for column in columns])

    return run


def _map(function: Callable[[bytes], bytes]) -> KernelFunction:
    def run(x: Any) -> Any:
        return to_strings([function(item) for item in x.reshape(-1).tolist()]).reshape(x.shape)

    return run


@kernel("DecodeJSONExample")
def _decode_json_example(node: Node, device: Device) -> KernelFunction:
    return _map(_example_of_json)


def _example_of_json(text: bytes) -> bytes:
    from google.protobuf import json_format

    message: Any = proto.Example()
    try:
        if text.lstrip()[:1] != b"{":  # protobuf accepts an empty list as an empty message
            raise json_format.ParseError("a JSON object is required")
        json_format.Parse(text, message)
    except (json_format.ParseError, UnicodeDecodeError, RecursionError) as cause:
        excerpt = text[:100].decode("utf-8", "backslashreplace")
        raise errors.InvalidArgumentError(
            f"Error while parsing JSON: {cause}, in {excerpt!r}"
        ) from cause
    serialized: bytes = message.SerializeToString(deterministic=True)
    return serialized


@kernel("DecodeCompressed", heavy=True, alias=True)
def _decode_compressed(node: Node, device: Device) -> KernelFunction:
    compression = node.attrs["compression_type"]
    if compression == "":
        return lambda x: x
    bits = zlib.MAX_WBITS + (16 if compression == "GZIP" else 0)
    limit = min(device.memory_limit or MAX_INFLATED, MAX_INFLATED)

    def run(x: Any) -> Any:
        remaining_bytes = limit
        strings = []
        for data in x.reshape(-1).tolist():
            string = _inflate(data, bits, compression, remaining_bytes)
            remaining_bytes -= len(string)
            strings.append(string)
        return to_strings(strings).reshape(x.shape)

    return run


def _inflate(data: bytes, bits: int, compression: str, remaining_bytes: int) -> bytes:
    """Decompress data; consecutive compressed parts are concatenated.

    Args:
      remaining_bytes: maximum number of bytes of the result.
    """
    parts = []
    remaining = data
    while remaining:
        inflate = zlib.decompressobj(bits)
        try:
            part = inflate.decompress(remaining, remaining_bytes + 1)
        except zlib.error as cause:
            raise _no_data(compression, len(data) - len(remaining), str(cause)) from cause
        remaining_bytes -= len(part)
        if remaining_bytes < 0:
            raise errors.InvalidArgumentError(
                f"the {compression} data of one tensor must have at most {MAX_INFLATED} bytes "
                "when decompressed, and fit in the memory of the device; the remaining "
                f"{len(data)} bytes expand to more"
            )
        if not inflate.eof:
            raise _no_data(compression, len(data), "the data is truncated")
        parts.append(part)
        remaining = inflate.unused_data
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _no_data(compression: str, offset: int, reason: str) -> errors.InvalidArgumentError:
    return errors.InvalidArgumentError(
        f"the bytes are not complete {compression} data from offset {offset} on: {reason}"
    )


@kernel("SerializeTensor")
def _serialize_tensor(node: Node, device: Device) -> KernelFunction:
    dtype = node.attrs["T"].base_dtype

    def run(tensor: Any) -> Any:
        message = array_to_proto(np.asarray(tensor), dtype)
        return np.array(message.SerializeToString(), object)

    return run


@kernel("ParseTensor")
def _parse_tensor(node: Node, device: Device) -> KernelFunction:
    dtype = node.attrs["out_type"]

    def run(serialized: Any) -> Any:
        value = parse_tensor_proto(serialized.item(), dtype)
        return value[()] if not value.ndim and not value.dtype.hasobject else value

    return run


def parse_tensor_proto(data: bytes, dtype: DType) -> np.ndarray[Any, Any]:
    """Return the array in a serialized TensorProto.

    Raises: InvalidArgumentError: the bytes are not a TensorProto, or are of another type.
    """
    try:
        message = proto.TensorProto.FromString(data)
    except DecodeError as cause:
        raise errors.InvalidArgumentError(
            f"Could not parse {len(data)} bytes as a TensorProto: {cause}"
        ) from cause
    if message.dtype != dtype.as_datatype_enum:
        raise errors.InvalidArgumentError(
            f"Type mismatch between parsed tensor ({message.dtype}) and dtype {dtype.name} "
            f"({dtype.as_datatype_enum})"
        )
    return make_ndarray(message)
