// Calls over one connection: frames on a socket, or on TLS.

import net from "node:net";
import tls from "node:tls";

import { callAt } from "./deadline.mjs";
import { WeftError, errorOf } from "./errors.mjs";
import { Tensor, numberOf } from "./tensor.mjs";

const HEAD = 1, DATA = 2, CANCEL = 3, PING = 4, PONG = 5;
const FRAME_BYTES = 16, MAX_HEAD_BYTES = 1 << 24, CHUNK_BYTES = 1 << 20;
const INLINE_BYTES = 1 << 14, MAX_INLINE_BYTES = 1 << 20, MAX_VALUES_BYTES = 2 ** 36;
const MAX_VALUES = 2 ** 16 - 1;
const DEAD = 1, INLINE = 2;
const VERSION = 2n, CLIENT = 1;

function frame(kind, size, number) {
  const bytes = Buffer.alloc(FRAME_BYTES);
  bytes[0] = kind;
  bytes.writeUInt32LE(size, 4);
  bytes.writeBigUInt64LE(number, 8);
  return bytes;
}

/** The frames of a call, as lists of buffers; large values follow its head, and are not copied. */
function encodeCall(number, method, meta, values) {
  if (values.length > MAX_VALUES) {
    throw new WeftError(
      "INVALID_ARGUMENT", `a call has at most ${MAX_VALUES} values, got ${values.length}`);
  }
  const fixed = Buffer.alloc(8);
  fixed.writeUInt16LE(method, 0);
  fixed.writeUInt16LE(values.length, 2);
  fixed.writeUInt32LE(meta.length, 4);
  const descriptions = [], inline = [], outside = [];
  let left = MAX_INLINE_BYTES, total = 0;
  for (const value of values) {
    const data = value.bytes();
    total += data.length;
    const isInline = data.length <= INLINE_BYTES && data.length <= left;
    if (isInline) left -= data.length;
    (isInline ? inline : outside).push(data);
    const description = Buffer.alloc(16 + 8 * value.shape.length);
    description[0] = numberOf(value.dtype);
    description[1] = value.shape.length;
    description[2] = isInline ? INLINE : 0;
    description.writeBigUInt64LE(BigInt(data.length), 8);
    value.shape.forEach((size, i) => description.writeBigInt64LE(BigInt(size), 16 + 8 * i));
    descriptions.push(description);
  }
  const head = Buffer.concat([fixed, meta, ...descriptions, ...inline]);
  if (head.length > MAX_HEAD_BYTES || total > MAX_VALUES_BYTES) {
    throw new WeftError("RESOURCE_EXHAUSTED", `a call of ${total} bytes exceeds the limits`);
  }
  const frames = [[frame(HEAD, head.length, number), head]];
  for (const data of outside) {
    for (let start = 0; start < data.length; start += CHUNK_BYTES) {
      const chunk = data.subarray(start, start + CHUNK_BYTES);
      frames.push([frame(DATA, chunk.length, number), chunk]);
    }
  }
  return frames;
}

function damaged(what) {
  return new WeftError("DATA_LOSS", `the server violates the protocol: ${what}`);
}

/** A reply that is on its way in; the values of one that nobody waits for are dropped. */
class Incoming {
  constructor(head, isDropped) {
    this.isDropped = isDropped;
    if (head.length < 8) throw damaged("a head is cut");
    this.code = head.readUInt16LE(0);
    const count = head.readUInt16LE(2), metaBytes = head.readUInt32LE(4);
    let place = 8 + metaBytes;
    if (place > head.length) throw damaged("the meta of a reply is cut");
    this.meta = head.subarray(8, place);
    this.values = [];
    let total = 0;
    for (let i = 0; i < count; i++) {
      const rank = head[place + 1];
      if (place + 16 + 8 * rank > head.length) throw damaged("the description of a value is cut");
      const size = Number(head.readBigUInt64LE(place + 8));
      const shape = Array.from({ length: rank }, (_, j) =>
        Number(head.readBigInt64LE(place + 16 + 8 * j)));
      const value = { type: head[place], flags: head[place + 2], shape, size, filled: 0 };
      if (!(value.flags & DEAD)) total += size;
      if (total > MAX_VALUES_BYTES) throw new WeftError("RESOURCE_EXHAUSTED", "a reply is too large");
      this.values.push(value);
      place += 16 + 8 * rank;
    }
    for (const value of this.values) {
      if (value.flags & DEAD || !(value.flags & INLINE)) continue;
      if (value.size > head.length - place) throw damaged("a value in the head is cut");
      if (!isDropped) value.data = Buffer.from(head.subarray(place, place + value.size));
      value.filled = value.size;
      place += value.size;
    }
    if (place !== head.length) throw damaged("a head has more bytes than its values");
  }

  target() {
    const value = this.values.find(
      ({ flags, filled, size }) => !(flags & DEAD) && filled < size);
    if (value && !value.data && !this.isDropped) value.data = Buffer.from(new ArrayBuffer(value.size));
    return value;
  }

  add(chunk) {
    let start = 0;
    while (start < chunk.length) {
      const value = this.target();
      if (!value) throw damaged("more data than a reply has");
      const count = Math.min(chunk.length - start, value.size - value.filled);
      if (!this.isDropped) chunk.copy(value.data, value.filled, start);
      value.filled += count;
      start += count;
    }
  }

  tensors() {
    return this.values.map((value) =>
      value.flags & DEAD
        ? null
        : Tensor.decode(value.type, value.shape, value.data ?? Buffer.alloc(0)));
  }
}

/**
 * Frames to send over a socket, which receives the next one when it has sent the former. So the
 * frames of a cancelled call can be dropped, except one that has begun.
 */
class SendQueue {
  #socket;
  #messages = []; // { number, frames, next }; `next` is the index of the next frame
  #isBlocked = false;

  constructor(socket) {
    this.#socket = socket;
    socket.on("drain", () => {
      this.#isBlocked = false;
      this.#send();
    });
  }

  get isEmpty() {
    return !this.#messages.length && !this.#socket.writableLength;
  }

  add(number, frames) {
    this.#messages.push({ number, frames, next: 0 });
    this.#send();
  }

  /** Drop the rest of a message, and tell the server about it, unless nothing of it was sent. */
  cancel(number) {
    const index = this.#messages.findIndex((message) => message.number === number);
    const isUnsent = index >= 0 && !this.#messages[index].next;
    if (index >= 0) this.#messages.splice(index, 1);
    if (isUnsent) return;
    this.#messages.unshift({ number: null, frames: [[frame(CANCEL, 0, number)]], next: 0 });
    this.#send();
  }

  #send() {
    while (this.#messages.length && !this.#isBlocked) {
      const message = this.#messages[0];
      this.#socket.cork();
      for (const buffer of message.frames[message.next]) {
        this.#isBlocked = !this.#socket.write(buffer);
      }
      this.#socket.uncork();
      message.frames[message.next] = null;
      message.next++;
      if (message.next === message.frames.length) this.#messages.shift();
    }
  }
}

/** A connection to a server; `call` may be used by any number of callers at once. */
export class Connection {
  #socket;
  #outgoing;
  #calls = new Map();
  #incoming = new Map();
  #chunks = [];
  #buffered = 0;
  #next = 1n;
  #lost = null;

  /** Connect before a deadline. */
  static async open(host, port, credentials, deadline) {
    const connection = new Connection();
    const socket = await connect(host, port, credentials, deadline);
    connection.#begin(socket);
    const hello = Buffer.alloc(24 + credentials.token.length);
    hello.writeBigUInt64LE(VERSION, 0);
    hello[16] = CLIENT;
    hello.writeUInt16LE(credentials.token.length, 18);
    credentials.token.copy(hello, 24);
    try {
      await connection.call(0, hello, [], deadline);
    } catch (error) {
      connection.close(error);
      throw error;
    }
    return connection;
  }

  #begin(socket) {
    this.#socket = socket;
    this.#outgoing = new SendQueue(socket);
    socket.setNoDelay(true);
    socket.on("data", (chunk) => {
      try {
        this.#receive(chunk);
      } catch (error) {
        this.close(error instanceof WeftError ? error : damaged(error.message));
      }
    });
    socket.on("error", (error) => this.close(refusal(error)));
    socket.on("close", () =>
      this.close(new WeftError("UNAVAILABLE", "the server has ended the connection")));
  }

  /**
   * Call a method; returns the meta and values of the reply. A deadline does not end the connection,
   * which other sessions may use: the rest of the call is not sent, and its reply is dropped.
   */
  call(method, meta, values, deadline) {
    if (this.#lost) return Promise.reject(this.#lost);
    const number = this.#next++;
    let frames;
    try {
      frames = encodeCall(number, method, meta, values);
    } catch (error) {
      return Promise.reject(error);
    }
    return new Promise((resolve, reject) => {
      const stop = callAt(deadline, () => this.#cancel(number));
      this.#calls.set(number, { resolve, reject, stop });
      this.#outgoing.add(number, frames);
    });
  }

  #cancel(number) {
    const call = this.#calls.get(number);
    if (!this.#calls.delete(number)) return;
    this.#outgoing.cancel(number);
    call.reject(
      new WeftError("DEADLINE_EXCEEDED", "the server did not answer before the deadline"));
  }

  #receive(chunk) {
    this.#chunks.push(chunk);
    this.#buffered += chunk.length;
    for (;;) {
      if (this.#buffered < FRAME_BYTES) return;
      const data = this.#joined(FRAME_BYTES);
      const size = data.readUInt32LE(4);
      if (size > MAX_HEAD_BYTES) throw damaged("a frame of an invalid size");
      if (this.#buffered < FRAME_BYTES + size) return;
      const whole = this.#joined(FRAME_BYTES + size).subarray(0, FRAME_BYTES + size);
      this.#drop(FRAME_BYTES + size);
      this.#handle(whole[0], whole[1], whole.readBigUInt64LE(8), whole.subarray(FRAME_BYTES));
    }
  }

  /** The buffered bytes, of which at least `size` are in one piece. */
  #joined(size) {
    if (this.#chunks[0].length < size) this.#chunks = [Buffer.concat(this.#chunks)];
    return this.#chunks[0];
  }

  #drop(size) {
    this.#chunks[0] = this.#chunks[0].subarray(size);
    if (!this.#chunks[0].length) this.#chunks.shift();
    this.#buffered -= size;
  }

  #handle(kind, isReply, number, payload) {
    if (kind === PING) {
      // What is not sent yet is a sign of life, too, and does not grow with pings.
      if (this.#outgoing.isEmpty) this.#outgoing.add(null, [[frame(PONG, 0, number)]]);
    } else if (kind === PONG || kind === CANCEL) return;
    else if (kind === HEAD && isReply === 1) {
      if (number === 0n || number >= this.#next || this.#incoming.has(number)) {
        throw damaged(`a reply to the call ${number}, which was not made or has one`);
      }
      this.#take(number, new Incoming(payload, !this.#calls.has(number)));
    } else if (kind === DATA && isReply === 1 && this.#incoming.has(number)) {
      const incoming = this.#incoming.get(number);
      incoming.add(payload);
      this.#take(number, incoming);
    } else throw damaged("a frame of an unknown kind");
  }

  #take(number, incoming) {
    if (incoming.target()) {
      this.#incoming.set(number, incoming);
      return;
    }
    this.#incoming.delete(number);
    const call = this.#calls.get(number);
    if (!call) return; // cancelled
    const values = incoming.tensors(); // before the call is forgotten: it may throw
    this.#calls.delete(number);
    call.stop();
    if (incoming.code) call.reject(errorOf(incoming.code, incoming.meta));
    else call.resolve({ meta: incoming.meta, values });
  }

  /** End the connection; pending calls fail with `error`. */
  close(error = new WeftError("CANCELLED", "the client was closed")) {
    if (this.#lost) return;
    this.#lost = error;
    for (const call of this.#calls.values()) {
      call.stop();
      call.reject(error);
    }
    this.#calls.clear();
    this.#socket.destroy();
  }
}

function connect(host, port, credentials, deadline) {
  return new Promise((resolve, reject) => {
    const isSecure = Boolean(credentials.certificate);
    const address = { host: !isSecure && host === "localhost" ? "127.0.0.1" : host, port };
    const socket = isSecure
      ? tls.connect({
          ...address, cert: credentials.certificate, key: credentials.key,
          ca: credentials.authority, minVersion: "TLSv1.3",
          servername: net.isIP(host) ? undefined : host,
        })
      : net.connect(address);
    const stop = callAt(deadline, () => {
      socket.destroy();
      reject(new WeftError("DEADLINE_EXCEEDED", "the server did not answer in time"));
    });
    const fail = (error) => {
      stop();
      reject(refusal(error));
    };
    socket.once("error", fail);
    socket.once(isSecure ? "secureConnect" : "connect", () => {
      stop();
      socket.off("error", fail);
      resolve(socket);
    });
  });
}

/** The error for a failure of a socket or of TLS. */
function refusal(error) {
  if (error instanceof WeftError) return error;
  const code = String(error.code ?? "");
  const isTls = /^(ERR_SSL|ERR_TLS|CERT_|UNABLE_TO|SELF_SIGNED|DEPTH_ZERO)/.test(code);
  const words = code.includes("CERTIFICATE_EXPIRED")
    ? "the server refuses this client's certificate: it has expired"
    : error.message;
  return new WeftError(isTls ? "UNAUTHENTICATED" : "UNAVAILABLE", words);
}
