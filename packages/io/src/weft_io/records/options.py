"""Compression options of TFRecord files."""

from __future__ import annotations

__all__ = ["TFRecordCompressionType", "TFRecordOptions"]

import zlib
from typing import Any, ClassVar, Final

from weft_io.records.streams import GZIP, NONE, ZLIB
from weft_tensor import errors


class TFRecordCompressionType:
    """The kinds of compression, as numbers.

    Examples:
      >>> options = wf.io.TFRecordOptions(wf.io.TFRecordCompressionType.GZIP)
      >>> wf.io.TFRecordOptions.get_compression_type_string(options)
      'GZIP'
    """

    NONE = 0
    ZLIB = 1
    GZIP = 2


_KINDS: Final[dict[Any, str]] = {
    None: NONE,
    NONE: NONE,
    ZLIB: ZLIB,
    GZIP: GZIP,
    TFRecordCompressionType.NONE: NONE,
    TFRecordCompressionType.ZLIB: ZLIB,
    TFRecordCompressionType.GZIP: GZIP,
}

_FLUSHES: Final = (zlib.Z_NO_FLUSH, zlib.Z_PARTIAL_FLUSH, zlib.Z_SYNC_FLUSH, zlib.Z_FULL_FLUSH)


class TFRecordOptions:
    """Compression options of a TFRecord file; all except the kind only affect writing.

    Args:
      compression_type: "", "ZLIB" or "GZIP", a TFRecordCompressionType, None, or other options.
      flush_mode: mode of `flush`: Z_PARTIAL_FLUSH, Z_SYNC_FLUSH (the default), Z_FULL_FLUSH, or
        Z_NO_FLUSH, which does nothing.
      input_buffer_size, output_buffer_size: accepted and ignored.
      window_bits: 9 to 15, base two logarithm of the window.
      compression_level: 0 to 9, -1 for zlib's default.
      compression_method: 8 (deflated).
      mem_level: 1 to 9.
      compression_strategy: 0 to 4: Z_DEFAULT_STRATEGY, Z_FILTERED, Z_HUFFMAN_ONLY, Z_RLE, Z_FIXED.
    Raises: InvalidArgumentError: a value is out of range.

    Examples:
      >>> options = wf.io.TFRecordOptions("ZLIB", compression_level=9)
      >>> with wf.python_io.TFRecordWriter("small.tfrecord", options) as writer:
      ...     writer.write(b"record")
      >>> list(wf.python_io.tf_record_iterator("small.tfrecord", options))
      [b'record']
    """

    compression_type_map: ClassVar[dict[int, str]] = {
        TFRecordCompressionType.ZLIB: ZLIB,
        TFRecordCompressionType.GZIP: GZIP,
        TFRecordCompressionType.NONE: NONE,
    }

    def __init__(
        self,
        compression_type: Any = None,
        flush_mode: int | None = None,
        input_buffer_size: int | None = None,
        output_buffer_size: int | None = None,
        window_bits: int | None = None,
        compression_level: int | None = None,
        compression_method: int | None = None,
        mem_level: int | None = None,
        compression_strategy: int | None = None,
    ) -> None:
        self.get_compression_type_string(compression_type)
        self.compression_type = compression_type
        self.flush_mode = _check_range("flush_mode", flush_mode, _FLUSHES, zlib.Z_SYNC_FLUSH)
        self.input_buffer_size = input_buffer_size
        self.output_buffer_size = output_buffer_size
        self.window_bits = _check_range("window_bits", window_bits, range(9, 16), zlib.MAX_WBITS)
        self.compression_level = _check_range(
            "compression_level", compression_level, range(-1, 10), -1
        )
        self.compression_method = _check_range(
            "compression_method", compression_method, (8,), zlib.DEFLATED
        )
        self.mem_level = _check_range("mem_level", mem_level, range(1, 10), zlib.DEF_MEM_LEVEL)
        self.compression_strategy = _check_range(
            "compression_strategy", compression_strategy, range(5), 0
        )

    @classmethod
    def get_compression_type_string(cls, options: Any) -> str:
        """Return the name of the compression in ops and files: "", "ZLIB" or "GZIP".

        Args:
          options: TFRecordOptions, or a value of their `compression_type`.
        Raises: InvalidArgumentError: the compression is unknown.
        """
        if isinstance(options, TFRecordOptions):
            return cls.get_compression_type_string(options.compression_type)
        try:
            return _KINDS[options]
        except (KeyError, TypeError):
            raise errors.InvalidArgumentError(
                f"compression_type must be '', 'ZLIB' or 'GZIP', got {options!r}"
            ) from None

    @classmethod
    def of(cls, options: Any) -> TFRecordOptions:
        """Return `options`, converted from a compression if necessary."""
        return options if isinstance(options, TFRecordOptions) else cls(options)

    def compressor(self) -> Any:
        """Return a `zlib.compressobj` with these options; None for no compression."""
        kind = self.get_compression_type_string(self)
        if kind == NONE:
            return None
        return zlib.compressobj(
            self.compression_level,
            self.compression_method,
            self.window_bits + (16 if kind == GZIP else 0),
            self.mem_level,
            self.compression_strategy,
        )


def _check_range(
    name: str, value: int | None, allowed: range | tuple[int, ...], default: int
) -> int:
    if value is None:
        return default
    if value not in allowed:
        values = f"{allowed.start} to {allowed.stop - 1}" if isinstance(allowed, range) else allowed
        raise errors.InvalidArgumentError(f"{name} must be one of {values}, got {value!r}")
    return value
