// Runs `.weftlite` files in browsers and in Node. `weft-lite build --target wasm32-wasi` makes the
// `weft_lite.wasm` that goes with it.

const TYPES = {
  1: ["float32", Float32Array], 3: ["int32", Int32Array], 4: ["uint8", Uint8Array],
  5: ["int16", Int16Array], 6: ["int8", Int8Array], 9: ["int64", BigInt64Array],
  10: ["bool", Uint8Array], 19: ["float16", Uint16Array],
};
const ALIGNMENT = 64, PAGE = 65536, ERROR_BYTES = 512, INFO_BYTES = 96, CONFIG_BYTES = 32;

/** What the runtime refused; `status` is the canonical code's number. */
export class LiteError extends Error {
  constructor(status, message) {
    super(message);
    this.name = "LiteError";
    this.status = status;
  }
}

function refuse() {
  throw new LiteError(12, "the runtime asked for a function of the system");
}

/** Runs a graph. Each interpreter has a memory of its own, which goes when it does. */
export class Interpreter {
  #wasm;
  #end;
  #handle;
  #error;

  /** An interpreter of a file's bytes, by the runtime's module or its bytes. */
  static async create(runtime, model, options = {}) {
    const module = runtime instanceof WebAssembly.Module ? runtime : await WebAssembly.compile(runtime);
    const wasi = new Proxy({}, { get: () => refuse });
    const instance = await WebAssembly.instantiate(module, { wasi_snapshot_preview1: wasi, env: wasi });
    return new Interpreter(instance.exports, model, options);
  }

  constructor(exports, model, options) {
    this.#wasm = exports;
    exports._initialize?.();
    this.#end = exports.__heap_base.value;
    this.#error = this.#take(ERROR_BYTES);
    const config = this.#take(CONFIG_BYTES), bytes = this.#take(8), handle = this.#take(8);
    const file = this.#take(model.byteLength);
    new Uint8Array(this.#buffer).set(model, file);
    new Uint8Array(this.#buffer, config, CONFIG_BYTES).fill(0);
    this.#view.setBigUint64(config + 16, BigInt(options.workLimit ?? 0), true);
    this.#check(exports.wl_query(file, model.byteLength, config, bytes, this.#error));
    const size = this.#view.getUint32(bytes, true), memory = this.#take(size);
    this.#check(exports.wl_open(file, model.byteLength, memory, size, config, handle, this.#error));
    this.#handle = this.#view.getUint32(handle, true);
  }

  get #buffer() {
    return this.#wasm.memory.buffer;
  }

  get #view() {
    return new DataView(this.#buffer);
  }

  // Nothing in the module allocates, so what follows its data is ours.
  #take(bytes) {
    const start = Math.ceil(this.#end / ALIGNMENT) * ALIGNMENT;
    const missing = start + bytes - this.#buffer.byteLength;
    if (missing > 0) {
      try {
        this.#wasm.memory.grow(Math.ceil(missing / PAGE));
      } catch {
        throw new LiteError(8, `${bytes} bytes of memory are needed`);
      }
    }
    this.#end = start + bytes;
    return start;
  }

  #text(start) {
    const bytes = new Uint8Array(this.#buffer);
    return new TextDecoder().decode(bytes.slice(start, bytes.indexOf(0, start)));
  }

  #check(status) {
    if (status) throw new LiteError(status, this.#text(this.#error + 4));
  }

  #info(index) {
    const at = this.#take(INFO_BYTES);
    this.#end = at; // it is read at once
    if (this.#wasm.wl_tensor_info(this.#handle, index, at)) throw new LiteError(3, `there is no tensor ${index}`);
    const view = this.#view, rank = view.getUint8(at + 7);
    const sizes = (from) => Array.from({ length: rank }, (_, d) => view.getInt32(at + from + 4 * d, true));
    const [type] = TYPES[view.getUint8(at + 4)];
    return {
      index, type, name: this.#text(view.getUint32(at, true)), shape: sizes(8),
      declared: sizes(40), bytes: view.getUint32(at + 72, true), code: view.getUint8(at + 4),
    };
  }

  // By the tensors' numbers, the names that a file's only signature has for them.
  #names(kind) {
    const names = new Map(), outputs = kind === "output" ? 1 : 0;
    if (this.#wasm.wl_signature_count(this.#handle) !== 1) return names;
    const at = this.#take(4), count = this.#wasm.wl_binding_count(this.#handle, 0, outputs);
    this.#end = at;
    for (let i = 0; i < count; i++) {
      const name = this.#wasm.wl_binding(this.#handle, 0, outputs, i, at);
      names.set(this.#view.getUint32(at, true), this.#text(name >>> 0));
    }
    return names;
  }

  #ends(kind) {
    const count = this.#wasm[`wl_${kind}_count`](this.#handle), names = this.#names(kind);
    return Array.from({ length: count }, (_, i) => {
      const { code, bytes, ...info } = this.#info(this.#wasm[`wl_${kind}`](this.#handle, i));
      return { ...info, name: names.get(info.index) ?? info.name };
    });
  }

  /** The inputs: name (of the signature), index, type, shape, and the shape with -1 for open sizes. */
  get inputs() {
    return this.#ends("input");
  }

  /** The outputs, as the inputs. */
  get outputs() {
    return this.#ends("output");
  }

  #find(list, which) {
    const found = list.find((each) => each.name === which || each.index === which);
    if (!found) throw new LiteError(3, `no ${which}; there are ${list.map((each) => each.name).join(", ")}`);
    return found;
  }

  /** Give an input another shape, within its bound. */
  resize(input, shape) {
    const { index } = this.#find(this.inputs, input), at = this.#take(4 * shape.length);
    this.#end = at;
    new Int32Array(this.#buffer, at, shape.length).set(shape);
    this.#check(this.#wasm.wl_resize(this.#handle, index, shape.length, at, this.#error));
    this.#check(this.#wasm.wl_plan(this.#handle, this.#error));
  }

  #elements(index) {
    const info = this.#info(index), Type = TYPES[info.code][1];
    const start = this.#wasm.wl_data(this.#handle, index) >>> 0;
    return new Type(this.#buffer, start, info.bytes / Type.BYTES_PER_ELEMENT);
  }

  /** Give an input its value: a typed array of its type and size. */
  set(input, value) {
    const { index, name, type } = this.#find(this.inputs, input), to = this.#elements(index);
    if (value.constructor !== to.constructor || value.length !== to.length)
      throw new LiteError(3, `input ${name} takes ${to.length} elements of ${type}, a ${to.constructor.name}`);
    to.set(value);
  }

  /** Run the graph on the inputs as they are. */
  invoke() {
    this.#check(this.#wasm.wl_invoke(this.#handle, this.#error));
  }

  /** A copy of an output. */
  get(output) {
    return this.#elements(this.#find(this.outputs, output).index).slice();
  }

  /** Set all inputs by name, run, and give all outputs by name. */
  run(values) {
    const missing = this.inputs.filter(({ name }) => !(name in values)).map(({ name }) => name);
    if (missing.length) throw new LiteError(9, `inputs are missing: ${missing.join(", ")}`);
    for (const [name, value] of Object.entries(values)) this.set(name, value);
    this.invoke();
    return Object.fromEntries(this.outputs.map(({ name }) => [name, this.get(name)]));
  }

  /** Give the variables of the graph the values that they had at first. */
  resetAllVariables() {
    this.#wasm.wl_reset_variables(this.#handle);
  }

  /** A checkpoint of the variables: bytes that `restoreVariables` and the C library read. */
  saveVariables() {
    const bytes = this.#wasm.wl_checkpoint_bytes(this.#handle), at = this.#take(bytes);
    this.#end = at;
    this.#check(this.#wasm.wl_save_checkpoint(this.#handle, at, bytes, this.#error));
    return new Uint8Array(this.#buffer, at, bytes).slice();
  }

  /** Set all variables to the values in a checkpoint, or none if it does not match. */
  restoreVariables(checkpoint) {
    const at = this.#take(checkpoint.byteLength);
    this.#end = at;
    new Uint8Array(this.#buffer).set(checkpoint, at);
    this.#check(this.#wasm.wl_restore_checkpoint(this.#handle, at, checkpoint.byteLength, this.#error));
  }
}
