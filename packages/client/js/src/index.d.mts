/** Build graphs on a weft server and run them, from Node. */

/** An element type. */
export type DType =
  | "float32" | "float64" | "int32" | "uint8" | "int16" | "int8" | "string" | "complex64" | "int64"
  | "bool" | "qint8" | "quint8" | "qint32" | "bfloat16" | "qint16" | "quint16" | "uint16"
  | "complex128" | "float16" | "resource" | "variant" | "uint32" | "uint64" | "float8_e5m2"
  | "float8_e4m3fn" | "float8_e4m3fnuz" | "float8_e4m3b11fnuz" | "float8_e5m2fnuz" | "int4"
  | "uint4" | "int2" | "uint2" | "float4_e2m1fn";

/** A static shape: null is an unknown rank, and -1 or null in it an unknown size. */
export type Shape = readonly (number | null)[] | null;

export type TypedArray =
  | Float32Array | Float64Array | Int8Array | Int16Array | Int32Array | BigInt64Array | Uint8Array
  | Uint16Array | Uint32Array | BigUint64Array;

/** A value that becomes a tensor: numbers are float32 unless the op declares another type. */
export type TensorLike =
  | Tensor | number | bigint | boolean | string | Uint8Array | TypedArray | readonly TensorLike[];

/** An argument of an op: an output, or a value that becomes a constant. */
export type Value = Output | Variable | TensorLike;

/**
 * A tensor; complex elements are two numbers each, float16, bfloat16 and smaller types are their
 * bits.
 */
export class Tensor {
  /** Errors of class WeftError (INVALID_ARGUMENT): the data do not fit the type or the shape. */
  constructor(dtype: DType, shape: readonly number[], data: TypedArray | Uint8Array[]);
  /**
   * Convert a value, by default to the type and shape that it has. A typed array or a tensor of the
   * type is not copied: the result shares its memory. Errors of class WeftError (INVALID_ARGUMENT):
   * nested arrays are not regular, the type cannot represent an element, or the shape has another
   * number of elements.
   */
  static from(value: TensorLike, dtype?: DType, shape?: readonly number[]): Tensor;
  readonly dtype: DType;
  readonly shape: readonly number[];
  /** The elements in row-major order; of strings their bytes. */
  readonly data: any;
  /** The only element. */
  item(): any;
  /** A tensor of the same elements that shares no memory with this one. */
  copy(): Tensor;
  /** The bytes of the elements, which share their memory. */
  bytes(): Buffer;
}

/** An error of the client or the server; `code` is its name, such as "NOT_FOUND". */
export class WeftError extends Error {
  readonly code: string;
  /** The node, op and device that failed; "" if they are unknown. */
  readonly node: string;
  readonly op: string;
  readonly device: string;
}

/** A node of a graph. */
export class Operation {
  constructor(name: string);
  readonly name: string;
  output(index: number): Output;
}

/** A result of a node. */
export class Output {
  constructor(name: string);
  /** "node:0". */
  readonly name: string;
  readonly operation: Operation;
}

/** The properties of the nodes that are added through it; scopes of one graph share it. */
export class Scope {
  static root(): Scope;
  /** The name of the next node; a suffix makes it unique, without regard to case. */
  withName(name: string): Scope;
  /** A scope whose nodes are below "name/". */
  subScope(name: string): Scope;
  withDevice(device: string): Scope;
  colocateWith(operation: Operation): Scope;
  /** Nodes that run before those of the scope. */
  withControls(operations: readonly Operation[]): Scope;
  /** A scope whose names are those of the whole graph. */
  withoutPrefix(): Scope;
}

/** A constant of any size. The value is copied. */
export function constant(
  scope: Scope, value: TensorLike, dtype?: DType, shape?: readonly number[],
): Output;

/** Define a function of the graph; returns its name. */
export function defineFunction(
  scope: Scope,
  name: string,
  args: readonly { name: string; dtype: DType; shape?: Shape }[],
  build: (scope: Scope, ...args: Output[]) => Output | Output[],
  results?: readonly string[],
): string;

/** Call a function, by default one with a single result. */
export function callFunction(
  scope: Scope, name: string, args: readonly Value[], numResults?: number,
): Output[];

/** The results of one of two functions. */
export function cond(
  scope: Scope, predicate: Value, args: readonly Value[], thenBranch: string, elseBranch: string,
  numResults?: number,
): Output[];

/** The values after `body` was applied for as long as `condition` returns true of them. */
export function whileLoop(
  scope: Scope, values: readonly Value[], condition: string, body: string,
): Output[];

/** Add the nodes and functions of a serialized GraphDef; their names must be free. */
export function importGraphDef(scope: Scope, graphDef: Uint8Array): void;

/** Deadlines are in milliseconds; by default that of the client, 60 s. Infinity is none. */
export interface CallOptions {
  timeout?: number;
}

/** Files as for other clients; by default those of WEFT_CERTIFICATE and its siblings. */
export interface ClientOptions extends CallOptions {
  certificate?: string;
  key?: string;
  authority?: string;
  token?: string;
}

/** A connection to a server. */
export class Client {
  static connect(target: string, options?: ClientOptions): Promise<Client>;
  /** Start a server for this program, which ends with the client or with the program. */
  static launchLocal(
    options?: CallOptions & { command?: string[]; arguments?: string[] },
  ): Promise<Client>;
  readonly target: string;
  /** Open a session with the graph of a scope. */
  session(scope: Scope, options?: CallOptions & { config?: Uint8Array }): Promise<Session>;
  reset(containers?: string[], options?: CallOptions): Promise<void>;
  close(): Promise<void>;
}

/** A gradient: dense, or the rows `indices` of it; `values` is null if no y depends on the x. */
export interface Gradient {
  values: Output | null;
  indices: Output | null;
}

/** A session: a graph on the devices of a cluster. Calls may overlap. */
export class Session {
  readonly devices: string[];
  /** Send the nodes and functions that are new; the other calls do so too. */
  extend(options?: CallOptions): Promise<void>;
  /**
   * Run a step; returns a tensor for each fetch. Typed arrays and tensors that are fed are not
   * copied: do not change them until the promise settles, or feed a copy, `array.slice()`.
   */
  run(
    fetches: readonly (Output | Variable | string)[],
    options?: CallOptions & {
      feeds?: Iterable<readonly [Output | string, TensorLike]>;
      targets?: readonly (Operation | Output | Variable | string)[];
    },
  ): Promise<Tensor[]>;
  /** Add gradients of the sum of `ys`; null for an x that no y depends on. */
  gradients(
    ys: readonly (Output | Variable)[], xs: readonly (Output | Variable)[],
    options?: CallOptions & { gradYs?: readonly Output[]; sparse?: false },
  ): Promise<(Output | null)[]>;
  /** Gradients of gathers are sparse: their rows and indices. */
  gradients(
    ys: readonly (Output | Variable)[], xs: readonly (Output | Variable)[],
    options: CallOptions & { gradYs?: readonly Output[]; sparse: true },
  ): Promise<Gradient[]>;
  /** The element type and static shape of an output; -1 is an unknown size. */
  shapeOf(
    output: Output | Variable, options?: CallOptions,
  ): Promise<{ dtype: DType; shape: number[] | null }>;
  functions(options?: CallOptions): Promise<string[]>;
  /** Functions, and those that they call, as a serialized GraphDef. */
  functionDefs(names: readonly string[], options?: CallOptions): Promise<Buffer>;
  /**
   * End the session. By default the timeout is that of the client, and at most 5 s; if the server does
   * not answer in time, the session ends with the connection of the client.
   */
  close(options?: CallOptions): Promise<void>;
}

/** A variable; `initial` has its shape, or one that broadcasts to it. */
export class Variable {
  constructor(scope: Scope, shape: readonly number[], dtype: DType, initial: Value);
  readonly shape: readonly number[];
  readonly dtype: DType;
  readonly name: string;
  readonly operation: Operation;
  readonly initializer: Operation;
  readonly output: Output;
}

/** An operation that runs after others. */
export function group(scope: Scope, operations: readonly Operation[]): Operation;
/** An operation that gives all variables so far their initial values. */
export function initializeVariables(scope: Scope): Operation;

/** The base of optimizers. Slots have the names that Python's optimizers give them. */
export abstract class Optimizer {
  /**
   * Add gradients of the sum of a loss and updates of variables; returns the training step. Errors of
   * class WeftError (INVALID_ARGUMENT): the loss does not depend on any of the variables.
   */
  minimize(
    session: Session, scope: Scope, loss: Output, variables: readonly Variable[],
  ): Promise<Operation>;
  /** Add updates of variables by their gradients; those without values are left out. */
  apply(
    scope: Scope, gradients: readonly Gradient[], variables: readonly Variable[],
  ): Operation;
  /** The state of the optimizer: the variables that it has added, to save and restore. */
  readonly variables: Variable[];
  /** The state of the optimizer in the graph of a scope. */
  variablesIn(scope: Scope): Variable[];
}
export class GradientDescent extends Optimizer {
  constructor(rate: number);
}
/** Gradient descent with a momentum, or with Nesterov's. */
export class Momentum extends Optimizer {
  constructor(rate: number, momentum: number, useNesterov?: boolean);
}
export class Adagrad extends Optimizer {
  constructor(rate: number, initialAccumulator?: number);
}
export class RMSProp extends Optimizer {
  constructor(rate: number, decay?: number, momentum?: number, epsilon?: number);
}
export class Adam extends Optimizer {
  constructor(rate?: number, beta1?: number, beta2?: number, epsilon?: number);
}

/**
 * Saves variables and the state of optimizers to checkpoints below the server's file roots. The state
 * is what an optimizer has when `save` or `restore` is called, in the graph of the scope.
 */
export class Saver {
  constructor(
    scope: Scope, variables: readonly Variable[], optimizers?: readonly Optimizer[],
  );
  save(session: Session, path: string): Promise<void>;
  restore(session: Session, path: string): Promise<void>;
}

export * as ops from "./ops.mjs";
