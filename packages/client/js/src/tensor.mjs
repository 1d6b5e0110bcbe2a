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
const MAX_RANK = 32, MAX_FLOAT32 = "3.4028235e+38";

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
  if (!Array.isArray(shape)) {
    throw invalid(`a shape must be an array of sizes, got ${describe(shape)}`);
  }
  if (shape.length > MAX_RANK || shape.some((size) => !Number.isInteger(size) || size < 0)) {
    throw new WeftError("INVALID_ARGUMENT", `no tensor has the shape [${shape}]`);
  }
  if (product(shape) > Number.MAX_SAFE_INTEGER) {
    throw new WeftError("RESOURCE_EXHAUSTED", `a tensor of the shape [${shape}] is too large`);
  }
}

/** The shape of nested arrays, which must be regular; typed arrays have one axis. */
function shapeOf(value) {
  if (isTypedArray(value)) return [value.length];
  if (!Array.isArray(value)) return [];
  const shapes = Array.from(value, shapeOf);
  const ragged = shapes.find((shape) => String(shape) !== String(shapes[0]));
  if (ragged) {
    throw invalid(
      `nested arrays must be equal in shape, got [${shapes[0]}] and [${ragged}] in one array`);
  }
  return [value.length, ...(shapes[0] ?? [])];
}

function isTypedArray(value) {
  return ArrayBuffer.isView(value) && !Buffer.isBuffer(value) && !(value instanceof DataView);
}

/** Return the elements of nested arrays, in which a missing element is undefined. */
function flatten(value, elements = [], depth = 0) {
  if (depth > MAX_RANK) throw invalid(`arrays may be nested ${MAX_RANK} deep, got more`);
  if (isTypedArray(value)) for (const item of value) elements.push(item);
  else if (Array.isArray(value)) for (const item of value) flatten(item, elements, depth + 1);
  else elements.push(value);
  return elements;
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
    const largest = Kind === Float32Array ? ` between -${MAX_FLOAT32} and ${MAX_FLOAT32}` : "";
    const accepted = range
      ? `integers from ${range[0]} to ${range[1]}`
      : typeof item === "number" ? `numbers${largest}` : "numbers";
    const isInexact = range && Number.isInteger(item) && !Number.isSafeInteger(item);
    const hint = /float(4|8|16)/.test(dtype)
      ? ", which are their bits"
      : isInexact ? ", as a bigint from 2 ** 53 on" : "";
    const isObject = ["object", "function"].includes(typeof item);
    const text = isObject ? describe(item) : `${String(item)} (${typeof item})`;
    throw invalid(`elements of ${dtype} must be ${accepted}${hint}, got ${text}`);
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

/** Check the elements of a type of fewer bits than its typed array has. */
function checkRange(dtype, data) {
  const range = rangeOf(dtype), size = TYPES[dtype][1];
  if (!range || range[1] - range[0] === (1n << BigInt(8 * size)) - 1n) return;
  const [least, largest] = range.map(Number);
  const wrong = data.find((item) => item < least || item > largest);
  if (wrong !== undefined) converterTo(dtype)(wrong);
}

function bytesOfString(item) {
  if (typeof item !== "string" && !(item instanceof Uint8Array)) {
    throw invalid(`elements of string must be strings or Buffers, got ${describe(item)}`);
  }
  return Buffer.from(item);
}

/** Numbers of which an element consists. */
function partsOf(dtype) {
  return dtype.startsWith("complex") ? 2 : 1;
}

function checkType(dtype) {
  if (typeof dtype === "string" && Object.hasOwn(TYPES, dtype)) return;
  throw invalid(
    `no tensor can have the type ${describe(dtype)}; accepted are ${Object.keys(TYPES).join(", ")}`);
}

function checkData(dtype, data) {
  checkType(dtype);
  const Kind = TYPES[dtype][2];
  const isRight = Kind
    ? data instanceof Kind
    : Array.isArray(data) && data.every((item) => item instanceof Uint8Array);
  if (isRight) {
    checkRange(dtype, data);
    return;
  }
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
   * A tensor of a number, bigint, boolean, string, typed array, tensor, or nested arrays of these.
   * It shares the memory of a typed array or tensor of its type.
   *
   * Throws INVALID_ARGUMENT for nested arrays of different shapes, and for an element that the type
   * cannot represent.
   */
  static from(value, dtype, shape) {
    const source = value instanceof Tensor ? value : null;
    if (source && [undefined, source.dtype].includes(dtype)) {
      return shape === undefined ? source : new Tensor(source.dtype, shape, source.data);
    }
    const isTyped = isTypedArray(source ? source.data : value);
    const sizes = shape ?? source?.shape;
    const flat = source ? source.data : isTyped ? value : flatten(value);
    const type = dtype ?? (isTyped ? typeOfArray(value) : typeOfElements(value, flat));
    checkType(type);
    if (source && (source.dtype === "string" || partsOf(type) !== partsOf(source.dtype))) {
      throw invalid(`a tensor of ${source.dtype} cannot be converted to ${type}`);
    }
    if (type === "string") {
      return new Tensor(type, sizes ?? shapeOf(value), Array.from(flat, bytesOfString));
    }
    const [, , Kind] = TYPES[type];
    const data = isTyped && flat instanceof Kind ? flat : Kind.from(flat, converterTo(type));
    return new Tensor(type, sizes ?? (isTyped ? [data.length / partsOf(type)] : shapeOf(value)), data);
  }

  /** A tensor of the same elements that shares no memory with this one. */
  copy() {
    const Kind = TYPES[this.dtype][2]; // slices of a Buffer would share its memory
    const data = Kind ? new Kind(this.data) : this.data.map((text) => Buffer.from(text));
    return new Tensor(this.dtype, this.shape, data);
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

/** The type of nested arrays: that of the first typed array, or of the first element. */
function typeOfElements(value, elements) {
  let first = value;
  while (Array.isArray(first)) first = first[0];
  return isTypedArray(first) ? typeOfArray(first) : typeOf(elements[0]);
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
  if (name === undefined) {
    throw invalid(`no element type is stored in a ${array.constructor.name}; accepted are ` +
      names.map((dtype) => TYPES[dtype][2].name).join(", "));
  }
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
