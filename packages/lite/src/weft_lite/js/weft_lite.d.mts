/** The elements of a tensor; those of float16 as their bits, those of bool as 0 and 1. */
export type Elements =
  | Float32Array | Int32Array | Uint8Array | Int16Array | Int8Array | BigInt64Array | Uint16Array;

export type ElementType =
  | "float32" | "int32" | "uint8" | "int16" | "int8" | "int64" | "bool" | "float16";

export interface TensorInfo {
  readonly name: string;
  readonly index: number;
  readonly type: ElementType;
  readonly shape: number[];
  /** The shape with -1 for sizes that are open. */
  readonly declared: number[];
}

/** What the runtime refused. */
export class LiteError extends Error {
  /** The canonical code's number, such as 15 for a damaged file. */
  readonly status: number;
}

/** Runs a graph. Each interpreter has a memory of its own, which goes when it does. */
export class Interpreter {
  private constructor();
  /**
   * @param runtime the module `weft_lite.wasm`, or its bytes
   * @param model the bytes of a `.weftlite` file
   * @param options workLimit: what one invocation may cost, in units of about a microsecond
   */
  static create(
    runtime: WebAssembly.Module | BufferSource,
    model: Uint8Array,
    options?: { workLimit?: number },
  ): Promise<Interpreter>;
  readonly inputs: TensorInfo[];
  readonly outputs: TensorInfo[];
  /** Give an input, by its name or index, another shape within its bound. */
  resize(input: string | number, shape: number[]): void;
  /** Give an input its value: a typed array of its type and size. */
  set(input: string | number, value: Elements): void;
  /** Run the graph on the inputs as they are. */
  invoke(): void;
  /** A copy of an output. */
  get(output: string | number): Elements;
  /** Set all inputs by name (those of the signature), run, and give all outputs by name. */
  run(values: Record<string, Elements>): Record<string, Elements>;
  /** Give the variables of the graph the values that they had at first. */
  resetAllVariables(): void;
  /** A checkpoint of the variables: bytes that `restoreVariables` and the C library read. */
  saveVariables(): Uint8Array;
  /** Set all variables to the values in a checkpoint, or none if it does not match. */
  restoreVariables(checkpoint: Uint8Array): void;
}
