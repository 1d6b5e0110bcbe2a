// Checks of the arguments of calls.

import { WeftError } from "./errors.mjs";

const LONGEST_SHOWN = 16; // elements

/** Return an error of a wrong argument. */
export function invalid(message) {
  return new WeftError("INVALID_ARGUMENT", message);
}

/** Return a short description of a value of any type. */
export function describe(value) {
  if (typeof value === "string") return `'${value}'`;
  if (typeof value === "function") return `the function ${value.name || "(anonymous)"}`;
  if (typeof value !== "object" || value === null) return String(value);
  if (value.length > LONGEST_SHOWN) {
    return `${value.constructor?.name ?? "object"} of ${value.length} elements`;
  }
  try {
    return `${JSON.stringify(value)} (${value.constructor?.name ?? "object"})`.slice(0, 200);
  } catch (error) {
    if (!(error instanceof TypeError)) throw error; // a bigint, or a cycle
    return `an object of class ${value.constructor?.name ?? "Object"}`;
  }
}

/** Return true if a value is an object without a class, of any realm. */
function isPlainObject(value) {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return false;
  const prototype = Object.getPrototypeOf(value);
  return prototype === null || Object.getPrototypeOf(prototype) === null;
}

/** Check that options are an object with no other properties than the accepted ones. */
export function checkOptions(owner, options, accepted) {
  const names = accepted.length ? `accepted are ${accepted.join(", ")}` : "it has none";
  if (!isPlainObject(options)) {
    throw invalid(`${owner}: options must be an object; ${names}; got ${describe(options)}`);
  }
  const unknown = Object.keys(options).find((name) => !accepted.includes(name));
  if (unknown !== undefined) throw invalid(`${owner}: unknown option '${unknown}'; ${names}`);
}

/** Check that an argument is an array. */
export function checkArray(owner, name, value) {
  if (Array.isArray(value)) return;
  throw invalid(`${owner}: ${name} must be an array, got ${describe(value)}`);
}

/** Check that an argument is an array of strings. */
export function checkStrings(owner, name, value) {
  checkArray(owner, name, value);
  for (const item of value) checkString(owner, `each of the ${name}`, item);
}

/** Check that an argument is a string. */
export function checkString(owner, name, value) {
  if (typeof value === "string") return;
  throw invalid(`${owner}: ${name} must be a string, got ${describe(value)}`);
}

/** Check that an argument is a Buffer or another Uint8Array. */
export function checkBytes(owner, name, value) {
  if (value instanceof Uint8Array) return;
  throw invalid(`${owner}: ${name} must be a Uint8Array, got ${describe(value)}`);
}

/** Check that an argument is a function. */
export function checkFunction(owner, name, value) {
  if (typeof value === "function") return;
  throw invalid(`${owner}: ${name} must be a function, got ${describe(value)}`);
}
