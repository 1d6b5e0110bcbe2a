// Element types and tensors.

import { WeftError } from "./errors.mjs";

const TYPES = {
  float32: [1, 4, Float32Array], float64: [2, 8, Float64Array], int32: [3, 4, Int32Array],
  uint8: [4, 1, Uint8Array], int16: [5, 2, Int16Array], int8: [6, 1, Int8Array],
  string: [7, 0, null], complex64: [8, 8, Float32Array], int64: [9, 8, BigInt64Array],
  bool: [10, 1, Uint8Array], qint8: [11, 1, Int8Array], quint8: [12, 1, Uint8Array],
  qint32: [13, 4, Int32Array], bfloat16: [14, 2, Uint16Array], qint16: [15, 2, Int16Array],
  quint16: [16, 2, Uint16Array], uint16: [17, 2, Uint16Array], complex128: [18, 16, Float64Array],
  float16: [19, 2, Uint16Array], uint32: [22, 4, Uint32Array], uint64: [23, 8, BigUint64Array],
  float8_e5m2: [24, 1, Uint8Array], float8_e4m3fn: [25, 1, Uint8Array],
  float8_e4m3fnuz: [26, 1, Uint8Array], float8_e4m3b11fnuz: [27, 1, Uint8Array],
  float8_e5m2fnuz: [28, 1, Uint8Array], int4: [29, 1, Int8Array], uint4: [30, 1, Uint8Array],
  int2: [31, 1, Int8Array], uint2: [32, 1, Uint8Array], float4_e2m1fn: [33, 1, Uint8Array],
};
const NAMES = new Map(Object.entries(TYPES).map(([name, [number]]) => [number, name]));
const OTHERS = { resource: 20, variant: 21 };
const MAX_RANK = 32;

/** TensorFlow's number of an element type. */
export function numberOf(dtype) {
  const number = TYPES[dtype]?.[0] ?? OTHERS[dtype];
  if (number === undefined) throw new WeftError("INVALID_ARGUMENT", `there is no type ${dtype}`);
  return number;
}

export function nameOf(number) {
  return NAMES.get(number) ?? Object.keys(OTHERS).find((name) => OTHERS[name] === number);
}

function product(shape) {
  return shape.reduce((count, size) => count * size, 1);
}

function checkShape(shape) {
  if (shape.length > MAX_RANK || shape.some((size) => !Number.isInteger(size) || size < 0)) {
    throw new WeftError("INVALID_ARGUMENT", `no tensor has the shape [${shape}]`);
  }
  if (product(shape) > Number.MAX_SAFE_INTEGER) {
    throw new WeftError("RESOURCE_EXHAUSTED", `a tensor of the shape [${shape}] is too large`);
  }
}

/** The shape of nested arrays, all of which must be equal in length. */
function shapeOf(value) {
  const shape = [];
  for (let inner = value; Array.isArray(inner); inner = inner[0]) shape.push(inner.length);
  return shape;
}

/**
 * A tensor: `data` is a typed array, or an array of Buffers for strings. Complex elements are two
 * numbers each; float16 and bfloat16 are their bits.
 */
export class Tensor {
  constructor(dtype, shape, data) {
    checkShape(shape);
    numberOf(dtype);
    const parts = dtype.startsWith("complex") ? 2 : 1;
    if (data.length !== product(shape) * parts) {
      throw new WeftError(
        "INVALID_ARGUMENT",
        `a ${dtype} tensor of the shape [${shape}] has ${product(shape) * parts} numbers, ` +
          `got ${data.length}`,
      );
    }
    this.dtype = dtype;
    this.shape = shape;
    this.data = data;
  }

  /** A tensor of a number, bigint, boolean, string, typed array, or nested arrays of these. */
  static from(value, dtype, shape) {
    if (value instanceof Tensor) return value;
    if (ArrayBuffer.isView(value) && !Buffer.isBuffer(value)) {
      return new Tensor(dtype ?? typeOfArray(value), shape ?? [value.length], value);
    }
    const sizes = shape ?? shapeOf(value);
    const flat = Array.isArray(value) ? value.flat(Infinity) : [value];
    const type = dtype ?? typeOf(flat[0]);
    if (type === "string") {
      return new Tensor(type, sizes, flat.map((text) => Buffer.from(text)));
    }
    const [, , Kind] = TYPES[type] ?? [];
    if (!Kind) throw new WeftError("INVALID_ARGUMENT", `no tensor can have the type ${type}`);
    const isBig = Kind === BigInt64Array || Kind === BigUint64Array;
    return new Tensor(type, sizes, Kind.from(flat, (item) => (isBig ? BigInt(item) : Number(item))));
  }

  /** A tensor from the bytes of a message. */
  static decode(number, shape, bytes) {
    const dtype = NAMES.get(number);
    if (dtype === undefined) throw damaged(`the element type ${number}`);
    checkShape(shape);
    if (dtype === "string") return new Tensor(dtype, shape, decodeStrings(bytes, product(shape)));
    const [, size, Kind] = TYPES[dtype];
    if (bytes.length !== product(shape) * size) throw damaged("a value of a wrong size");
    const aligned = bytes.byteOffset % 16 ? Buffer.from(bytes) : bytes;
    const store = aligned.byteOffset % 16 ? new Uint8Array(bytes) : aligned;
    const count = bytes.length / Kind.BYTES_PER_ELEMENT;
    return new Tensor(dtype, shape, new Kind(store.buffer, store.byteOffset, count));
  }

  /** The bytes of the elements, which share their memory. */
  bytes() {
    if (this.dtype !== "string") {
      return Buffer.from(this.data.buffer, this.data.byteOffset, this.data.byteLength);
    }
    const offsets = Buffer.alloc(8 * (this.data.length + 1));
    let end = 0n;
    this.data.forEach((text, i) => {
      end += BigInt(text.length);
      offsets.writeBigUInt64LE(end, 8 * (i + 1));
    });
    return Buffer.concat([offsets, ...this.data]);
  }

  /** The only element. */
  item() {
    if (this.data.length !== 1) {
      throw new WeftError("INVALID_ARGUMENT", `a tensor of the shape [${this.shape}] has no item`);
    }
    if (this.dtype === "bool") return this.data[0] !== 0;
    return this.data[0];
  }
}

function typeOf(value) {
  if (typeof value === "boolean") return "bool";
  if (typeof value === "bigint") return "int64";
  if (typeof value === "string" || Buffer.isBuffer(value)) return "string";
  return "float32";
}

function typeOfArray(array) {
  const names = ["float32", "float64", "int32", "uint8", "int16", "int8", "int64", "uint16",
    "uint32", "uint64"];
  const name = names.find((each) => array instanceof TYPES[each][2]);
  if (name === undefined) throw new WeftError("INVALID_ARGUMENT", "an array of an unknown kind");
  return name;
}

function damaged(what) {
  return new WeftError("DATA_LOSS", `the server violates the protocol: ${what}`);
}

function decodeStrings(bytes, count) {
  const start = 8 * (count + 1);
  if (start > bytes.length) throw damaged("the offsets of strings are cut");
  const texts = [];
  let before = Number(bytes.readBigUInt64LE(0));
  if (before) throw damaged("the offsets of strings");
  for (let i = 1; i <= count; i++) {
    const end = Number(bytes.readBigUInt64LE(8 * i));
    if (end < before || end > bytes.length - start) throw damaged("the offsets of strings");
    texts.push(bytes.subarray(start + before, start + end));
    before = end;
  }
  if (before !== bytes.length - start) throw damaged("the offsets of strings");
  return texts;
}
