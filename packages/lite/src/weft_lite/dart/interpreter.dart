/// Runs `.weftlite` models through the library of `weft-lite build`.
library weft_lite;

import 'dart:convert';
import 'dart:ffi';
import 'dart:typed_data';

import 'package:ffi/ffi.dart';

import 'src/bindings.dart';

export 'src/bindings.dart' show WeftLiteBindings;

const int _alignment = 64;

/// An error of the runtime. The message says what is wrong and where.
class LiteException implements Exception {
  LiteException(this.status, this.message);

  /// The canonical code, such as 3 for an invalid argument and 15 for a damaged file.
  final int status;
  final String message;

  @override
  String toString() => 'LiteException($status): $message';
}

/// Runs a model. An interpreter may be used by one isolate at a time.
class Interpreter {
  /// Open a model. [library] is the shared library, such as
  /// `DynamicLibrary.open('libweft_lite.so')`, or `DynamicLibrary.process()` on iOS.
  Interpreter(DynamicLibrary library, Uint8List model) : _bindings = WeftLiteBindings(library) {
    try {
      final file = _take(model.length);
      file.asTypedList(model.length).setAll(0, model);
      final bytes = calloc<Size>();
      final handle = calloc<Pointer<Void>>();
      _blocks.addAll([bytes.cast(), handle.cast()]);
      _check(_bindings.wl_query(file.cast(), model.length, nullptr, bytes.cast(), _error.cast()));
      final memory = _take(bytes.value);
      _check(_bindings.wl_open(file.cast(), model.length, memory.cast(), bytes.value, nullptr,
          handle.cast(), _error.cast()));
      _handle = handle.value;
    } catch (_) {
      close();
      rethrow;
    }
  }

  final WeftLiteBindings _bindings;
  final Pointer<WlError> _error = calloc<WlError>();
  final List<Pointer<Void>> _blocks = [];
  Pointer<Void> _handle = nullptr;

  int get inputCount => _bindings.wl_input_count(_handle);
  int get outputCount => _bindings.wl_output_count(_handle);

  /// The bytes of an input, without a copy.
  Uint8List input(int i) => _bytes(_bindings.wl_input(_handle, i));

  /// The bytes of an output, without a copy.
  Uint8List output(int i) => _bytes(_bindings.wl_output(_handle, i));

  /// The elements of an input of type float32, without a copy.
  Float32List inputFloats(int i) => _floats(_bindings.wl_input(_handle, i));

  /// The elements of an output of type float32, without a copy.
  Float32List outputFloats(int i) => _floats(_bindings.wl_output(_handle, i));

  /// Give an input another shape, within its bound. Views must be taken anew.
  void resizeInput(int i, List<int> shape) {
    final dims = calloc<Int32>(shape.length + 1);
    try {
      dims.asTypedList(shape.length).setAll(0, shape);
      _check(_bindings.wl_resize(
          _handle, _bindings.wl_input(_handle, i), shape.length, dims.cast(), _error.cast()));
      _check(_bindings.wl_plan(_handle, _error.cast()));
    } finally {
      calloc.free(dims);
    }
  }

  /// Compute the outputs from the inputs.
  void invoke() => _check(_bindings.wl_invoke(_handle, _error.cast()));

  /// Free the memory. The interpreter and views of its tensors cannot be used afterwards.
  void close() {
    _blocks.forEach(calloc.free);
    _blocks.clear();
    calloc.free(_error);
    _handle = nullptr;
  }

  Pointer<Uint8> _take(int bytes) {
    final block = calloc<Uint8>(bytes + _alignment);
    _blocks.add(block.cast());
    return Pointer.fromAddress((block.address + _alignment - 1) ~/ _alignment * _alignment);
  }

  WlInfo _info(int tensor, Pointer<WlInfo> info) {
    _bindings.wl_tensor_info(_handle, tensor, info.cast());
    return info.ref;
  }

  Uint8List _bytes(int tensor) {
    final info = calloc<WlInfo>();
    try {
      final Pointer<Uint8> data = _bindings.wl_data(_handle, tensor).cast();
      return data.asTypedList(_info(tensor, info).bytes);
    } finally {
      calloc.free(info);
    }
  }

  Float32List _floats(int tensor) {
    final bytes = _bytes(tensor);
    return bytes.buffer.asFloat32List(bytes.offsetInBytes, bytes.length ~/ 4);
  }

  void _check(int status) {
    if (status == 0) return;
    final text = <int>[];
    for (var i = 0; i < 384 && _error.ref.text[i] != 0; i++) {
      text.add(_error.ref.text[i] & 255);
    }
    throw LiteException(status, utf8.decode(text, allowMalformed: true));
  }
}
