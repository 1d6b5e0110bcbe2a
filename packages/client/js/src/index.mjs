// weftml: build graphs on a weft server and run them, from Node.

export { WeftError } from "./errors.mjs";
export {
  Operation, Output, Scope, callFunction, cond, constant, defineFunction, importGraphDef, whileLoop,
} from "./graph.mjs";
export * as ops from "./ops.mjs";
export { Client, Session } from "./session.mjs";
export { Tensor } from "./tensor.mjs";
export {
  Adagrad, Adam, GradientDescent, Momentum, RMSProp, Saver, Variable, group, initializeVariables,
} from "./train.mjs";
