// Errors of clients and servers.

export const CODES = [
  "OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND",
  "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED",
  "OUT_OF_RANGE", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED",
];

/** An error with the code, node, op and device of the server. */
export class WeftError extends Error {
  constructor(code, message, { node = "", op = "", device = "" } = {}) {
    super(message);
    this.name = "WeftError";
    this.code = code;
    this.node = node;
    this.op = op;
    this.device = device;
  }
}

/** The error in the meta of a reply, which is untrusted. */
export function errorOf(number, meta) {
  const code = CODES[number] ?? "UNKNOWN";
  try {
    const fields = JSON.parse(meta.toString());
    const text = (value) => (typeof value === "string" ? value : "");
    const place = { node: text(fields.node), op: text(fields.op), device: text(fields.device) };
    return new WeftError(code, text(fields.message), place);
  } catch {
    return new WeftError(code, "the server reports an error that cannot be read");
  }
}
