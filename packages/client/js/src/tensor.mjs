// Element types and tensors.

import { WeftError } from "./errors.mjs";
import { describe, invalid } from "./options.mjs";

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
  if (typeof dtype === "string") {
    if (Object.hasOwn(TYPES, dtype)) return TYPES[dtype][0];
    if (Object.hasOwn(OTHERS, dtype)) return OTHERS[dtype];
  }
  throw invalid(`unknown element type ${describe(dtype)}; accepted are ` +
    [...Object.keys(TYPES), ...Object.keys(OTHERS)].join(", "));
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

/** The shape of nested arrays, which must be regular. */
function shapeOf(value) {
  if (!Array.isArray(value)) return [];
  const shapes = value.map(shapeOf);
  const ragged = shapes.find((shape) => String(shape) !== String(shapes[0]));
  if (ragged) {
    throw new WeftError(
      "INVALID_ARGUMENT",
      `nested arrays must be equal in shape, got [${shapes[0]}] and [${ragged}] in one array`);
  }
  return [value.length, ...(shapes[0] ?? [])];
}

/** The least and the largest element of a type that is stored as integers; null for others. */
function rangeOf(dtype) {
  const integer = /^q?(u?)int(\d+)$/.exec(dtype);
  const bits = integer?.[2] ?? /^b?float(4|8|16)(?!\d)/.exec(dtype)?.[1];
  if (bits === undefined) return dtype === "bool" ? [0n, 1n] : null;
  const size = 1n << BigInt(bits);
  return integer && !integer[1] ? [-size / 2n, size / 2n - 1n] : [0n, size - 1n];
}

/** A function that converts a value to an element of a type, without changing the number. */
function converterTo(dtype) {
  const range = rangeOf(dtype), Kind = TYPES[dtype][2];
  const isBig = Kind === BigInt64Array || Kind === BigUint64Array;
  const refuse = (item) => {
    const accepted = range ? `integers from ${range[0]} to ${range[1]}` : "numbers";
    const hint = /float(4|8|16)/.test(dtype) ? ", which are their bits" : "";
    throw new WeftError(
      "INVALID_ARGUMENT",
      `elements of ${dtype} must be ${accepted}${hint}, got ${String(item)} (${typeof item})`);
  };
  if (!range) {
    return (item) => {
      const number = typeof item === "bigint" ? Number(item) : item;
      const isNarrowed = Kind === Float32Array && Number.isFinite(number);
      if (typeof number !== "number" || (isNarrowed && !Number.isFinite(Math.fround(number)))) {
        refuse(item);
      }
      return number;
    };
  }
  return (item) => {
    const isInteger = typeof item === "bigint" || Number.isSafeInteger(item) ||
      (dtype === "bool" && typeof item === "boolean");
    const integer = isInteger ? BigInt(item) : refuse(item);
    if (integer < range[0] || integer > range[1]) refuse(item);
    return isBig ? integer : Number(integer);
  };
}

function bytesOfString(item) {
  if (typeof item !== "string" && !(item instanceof Uint8Array)) {
    throw new WeftError(
      "INVALID_ARGUMENT", `elements of string must be strings or Buffers, got ${String(item)}`);
  }
  return Buffer.from(item);
}

/** Numbers of which an element consists. */
function partsOf(dtype) {
  return dtype.startsWith("complex") ? 2 : 1;
}

function checkData(dtype, data) {
  if (!(dtype in TYPES)) {
    throw new WeftError("INVALID_ARGUMENT", `no tensor can have the type ${dtype}`);
  }
  const Kind = TYPES[dtype][2];
  const isRight = Kind
    ? data instanceof Kind
    : Array.isArray(data) && data.every((item) => item instanceof Uint8Array);
  if (isRight) return;
  const name = Kind ? `a ${Kind.name}` : "an array of Buffers";
  throw new WeftError(
    "INVALID_ARGUMENT",
    `the data of a ${dtype} tensor must be ${name}, got ${data?.constructor?.name ?? data}; ` +
      "Tensor.from converts other values");
}

/**
 * A tensor: `data` is a typed array, or an array of Buffers for strings. Complex elements are two
 * numbers each; float16, bfloat16 and smaller types are their bits.
 */
export class Tensor {
  constructor(dtype, shape, data) {
    checkShape(shape);
    checkData(dtype, data);
    const count = product(shape) * partsOf(dtype);
    if (data.length !== count) {
      throw new WeftError(
        "INVALID_ARGUMENT",
        `a ${dtype} tensor of the shape [${shape}] has ${count} numbers, got ${data.length}`);
    }
    this.dtype = dtype;
    this.shape = Object.freeze([...shape]);
    this.data = data;
    Object.freeze(this); // messages rely on the type and shape of the data
  }

  /**
   * A tensor of a number, bigint, boolean, string, typed array, or nested arrays of these.
   *
   * Throws INVALID_ARGUMENT for nested arrays of different shapes, and for an element that the type
   * cannot represent.
   */
  static from(value, dtype, shape) {
    if (value instanceof Tensor) return value;
    const isTyped = ArrayBuffer.isView(value) && !Buffer.isBuffer(value);
    const flat = Array.isArray(value) ? value.flat(Infinity) : isTyped ? value : [value];
    const type = dtype ?? (isTyped ? typeOfArray(value) : typeOf(flat[0]));
    if (type === "string") return new Tensor(type, shape ?? shapeOf(value), flat.map(bytesOfString));
    const [, , Kind] = TYPES[type] ?? [];
    if (!Kind) throw new WeftError("INVALID_ARGUMENT", `no tensor can have the type ${type}`);
    const sizes = shape ?? (isTyped ? [value.length / partsOf(type)] : shapeOf(value));
    const isShared = isTyped && value instanceof Kind;
    return new Tensor(type, sizes, isShared ? value : Kind.from(flat, converterTo(type)));
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
  const name = names.find((dtype) => array instanceof TYPES[dtype][2]);
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
