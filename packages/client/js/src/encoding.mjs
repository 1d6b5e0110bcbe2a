// Protobuf fields of graphs, and the flatbuffer tables of control messages.

import { WeftError } from "./errors.mjs";
import { describe } from "./options.mjs";
import { Tensor, numberOf } from "./tensor.mjs";

// ------------------------------------------------------------------------------ protobuf

export function varint(value) {
  if (typeof value === "number" && value >= 0 && value < 0x80) return Buffer.from([value]);
  let left = BigInt.asUintN(64, BigInt(value));
  const bytes = [];
  do {
    const more = left > 0x7fn;
    bytes.push(Number(left & 0x7fn) | (more ? 0x80 : 0));
    left >>= 7n;
  } while (left);
  return Buffer.from(bytes);
}

export function number(field, value) {
  return Buffer.concat([varint(field << 3), varint(value)]);
}

export function bytes(field, data) {
  const content = Buffer.isBuffer(data) ? data : Buffer.from(data);
  return Buffer.concat([varint((field << 3) | 2), varint(content.length), content]);
}

function string(field, value) {
  if (typeof value !== "string" && !(value instanceof Uint8Array)) {
    throw new TypeError("a string or bytes are needed");
  }
  return bytes(field, value);
}

function bool(field, value) {
  if (typeof value !== "boolean") throw new TypeError("true or false is needed");
  return number(field, value ? 1 : 0);
}

function float(field, value) {
  if (typeof value !== "number") throw new TypeError("a number is needed");
  const content = Buffer.alloc(4);
  content.writeFloatLE(value);
  return Buffer.concat([varint((field << 3) | 5), content]);
}

function shape(field, dims) {
  if (dims === null) return bytes(field, number(3, 1));
  if (!Array.isArray(dims)) throw new TypeError("an array is needed");
  for (const size of Array.from(dims)) {
    if (size !== null && !(Number.isSafeInteger(size) && size >= -1)) {
      throw new RangeError("an invalid size");
    }
  }
  return bytes(field, Buffer.concat(dims.map((size) => bytes(2, number(1, size ?? -1)))));
}

function tensor(field, value) {
  if (!(value instanceof Tensor)) throw new TypeError("a Tensor is needed");
  const parts = [number(1, numberOf(value.dtype)), shape(2, value.shape)];
  if (value.dtype === "string") parts.push(...value.data.map((text) => bytes(8, text)));
  else parts.push(bytes(4, value.bytes()));
  return bytes(field, Buffer.concat(parts));
}

function integer(field, value) {
  const isInteger = typeof value === "bigint" || Number.isSafeInteger(value);
  if (!isInteger || BigInt.asIntN(64, BigInt(value)) !== BigInt(value)) {
    throw new RangeError("an integer of 64 bits is needed");
  }
  return number(field, value);
}

/** For each kind of attribute: its field in an AttrValue and in a list, writer, accepted values. */
const KINDS = {
  string: [2, 2, string, "a string or a Uint8Array"],
  int: [3, 3, integer, "an integer of 64 bits"],
  float: [4, 4, float, "a number"],
  bool: [5, 5, bool, "true or false"],
  type: [6, 6, (field, value) => number(field, numberOf(value)), "the name of an element type"],
  shape: [7, 7, shape, "null or an array of integers from 0, and -1 or null for unknown sizes"],
  tensor: [8, 8, tensor, "a Tensor"],
  func: [10, 9, (field, value) => bytes(field, string(1, value)), "the name of a function"],
};

/** An attribute of a NodeDef; `kind` is that of a declaration, such as "list(int)". */
export function attribute(name, kind, value) {
  const inner = kind.startsWith("list(") ? kind.slice(5, -1) : null;
  const [single, several, write, accepted] = KINDS[inner ?? kind];
  try {
    if (inner && !Array.isArray(value)) throw new TypeError("an array is needed");
    const content = inner
      ? bytes(1, Buffer.concat(Array.from(value, (item) => write(several, item))))
      : write(single, value);
    return bytes(5, Buffer.concat([bytes(1, name), bytes(2, content)]));
  } catch (error) {
    if (!(error instanceof TypeError || error instanceof RangeError)) throw error;
    throw new WeftError(
      "INVALID_ARGUMENT",
      `the attribute '${name}' of type ${kind} cannot have the value ${describe(value)}; it must be ` +
        (inner ? `an array of values, each ${accepted}` : accepted));
  }
}

/** The fields of a message that have bytes: pairs of a number and the bytes. */
function* bytesFields(message) {
  let place = 0;
  const readVarint = () => {
    for (let shift = 0n, value = 0n; shift < 64n; shift += 7n) {
      const byte = message[place++];
      if (byte === undefined) break;
      value |= BigInt(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    throw new RangeError("a number is cut");
  };
  while (place < message.length) {
    const tag = readVarint(), type = Number(tag & 7n);
    let size = { 1: 8, 5: 4 }[type] ?? 0;
    if (type === 0) readVarint();
    else if (type === 2) size = Number(readVarint());
    else if (!size) throw new RangeError("a field of an unknown kind");
    if (size > message.length - place) throw new RangeError("a field is cut");
    if (type === 2) yield [Number(tag >> 3n), message.subarray(place, place + size)];
    place += size;
  }
}

function firstField(message, field) {
  for (const [number, content] of bytesFields(message)) if (number === field) return content;
  throw new RangeError(`the field ${field} is missing`);
}

/** The names of the nodes and functions of a serialized GraphDef. */
export function namesInGraphDef(graphDef) {
  const nodes = [], functions = [];
  try {
    for (const [field, content] of bytesFields(graphDef)) {
      if (field === 1) nodes.push(firstField(content, 1).toString());
      if (field !== 2) continue;
      for (const [inner, definition] of bytesFields(content)) {
        if (inner === 1) functions.push(firstField(firstField(definition, 1), 1).toString());
      }
    }
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    throw new WeftError("DATA_LOSS", `the bytes are not a serialized GraphDef: ${error.message}`);
  }
  return { nodes, functions };
}

// ------------------------------------------------------------------- tables (flatbuffers)

/** Write a table of fields: bigints are numbers, booleans flags, strings, Buffers, or lists. */
export function writeTable(fields) {
  const kinds = fields.map((value) => (typeof value === "bigint" ? 8 : typeof value === "boolean" ? 1 : 4));
  const isDefault = (value) => !value || value.length === 0;
  const start = Math.ceil((8 + 2 * fields.length + 4) / 8) * 8 - 4;
  const places = fields.map(() => 0);
  let size = 4;
  for (const width of [8, 4, 1]) {
    fields.forEach((value, i) => {
      if (kinds[i] !== width || isDefault(value)) return;
      places[i] = size;
      size += width;
    });
  }
  const head = Buffer.alloc(start + size);
  const vtable = start - (4 + 2 * fields.length);
  head.writeUInt32LE(start, 0);
  head.writeUInt16LE(4 + 2 * fields.length, vtable);
  head.writeUInt16LE(size, vtable + 2);
  places.forEach((place, i) => head.writeUInt16LE(place, vtable + 4 + 2 * i));
  head.writeInt32LE(start - vtable, start);
  const chunks = [head];
  let length = head.length;
  const append = (chunk) => {
    const padding = Buffer.alloc((4 - (length % 4)) % 4);
    chunks.push(padding, chunk);
    length += padding.length + chunk.length;
    return length - chunk.length;
  };
  const text = (value) => {
    const content = Buffer.from(value);
    const chunk = Buffer.alloc(4 + content.length + 1);
    chunk.writeUInt32LE(content.length, 0);
    content.copy(chunk, 4);
    return chunk;
  };
  fields.forEach((value, i) => {
    if (!places[i]) return;
    const place = start + places[i];
    if (kinds[i] === 8) head.writeBigUInt64LE(value, place);
    else if (kinds[i] === 1) head[place] = 1;
    else if (Array.isArray(value)) {
      const vector = Buffer.alloc(4 + 4 * value.length);
      vector.writeUInt32LE(value.length, 0);
      const at = append(vector);
      head.writeUInt32LE(at - place, place);
      value.forEach((item, j) => {
        const entry = 4 + 4 * j;
        vector.writeUInt32LE(append(text(item)) - (at + entry), entry);
      });
    } else head.writeUInt32LE(append(text(value)) - place, place);
  });
  return Buffer.concat(chunks);
}

/** A table in untrusted bytes. */
export class Table {
  constructor(data) {
    this.data = data;
    try {
      this.start = this.follow(0);
      this.vtable = this.start - data.readInt32LE(this.start);
      this.size = data.readUInt16LE(this.vtable);
    } catch (error) {
      throw new WeftError("DATA_LOSS", `the reply of the server cannot be read: ${error.message}`);
    }
  }

  follow(place) {
    return place + this.data.readUInt32LE(place);
  }

  place(slot) {
    const entry = 4 + 2 * slot;
    if (entry + 2 > this.size) return 0;
    const offset = this.data.readUInt16LE(this.vtable + entry);
    return offset ? this.start + offset : 0;
  }

  number(slot) {
    const place = this.place(slot);
    return place ? this.data.readBigUInt64LE(place) : 0n;
  }

  texts(slot) {
    const place = this.place(slot);
    if (!place) return [];
    const list = this.follow(place);
    const count = this.data.readUInt32LE(list);
    if (count > this.data.length / 4) throw new RangeError("a list is longer than its message");
    return Array.from({ length: count }, (_, i) => {
      const text = this.follow(list + 4 + 4 * i);
      const size = this.data.readUInt32LE(text);
      if (size > this.data.length - text - 4) throw new RangeError("a text is cut");
      return this.data.toString("utf8", text + 4, text + 4 + size);
    });
  }
}

/** Read a reply; errors of damaged bytes become those of the protocol. */
export function readTable(data, read) {
  try {
    return read(new Table(data));
  } catch (error) {
    if (error instanceof WeftError) throw error;
    throw new WeftError("DATA_LOSS", `the reply of the server cannot be read: ${error.message}`);
  }
}
