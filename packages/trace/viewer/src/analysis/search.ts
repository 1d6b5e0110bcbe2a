/** Search of nodes by name, op, source line and scope. */

import type { Trace } from "../model/trace";

/** The text of a query. A prefix such as "op:" limits it to one property. */
export const PREFIXES = ["node", "op", "line", "scope"] as const;

/** Return the ids of the nodes that match all words of a query, without regard to case. */
export function matchNodes(trace: Trace, query: string): Uint8Array {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  const matches = new Uint8Array(trace.records.nodes.length);
  if (!words.length) return matches;
  trace.records.nodes.forEach((node, id) => {
    const name = node.name.toLowerCase();
    const origins = node.origins.map((origin) => origin.toLowerCase());
    const fields = {
      node: [name, ...origins],
      op: [node.op.toLowerCase()],
      line: [node.line.toLowerCase()],
      scope: [name, ...origins],
    };
    matches[id] = Number(
      words.every((word) => {
        const [prefix, value] = splitPrefix(word);
        if (prefix === "scope") {
          return fields.scope.some((scope) => `/${scope}`.includes(`/${value.replace(/\/$/, "")}/`));
        }
        if (prefix) return fields[prefix].some((field) => field.includes(value));
        return Object.values(fields).some((texts) => texts.some((field) => field.includes(value)));
      }),
    );
  });
  return matches;
}

function splitPrefix(word: string): [(typeof PREFIXES)[number] | null, string] {
  const [head, ...tail] = word.split(":");
  const prefix = PREFIXES.find((name) => name === head);
  return prefix && tail.length ? [prefix, tail.join(":")] : [null, word];
}

/** Return the events of matching nodes, in ascending order of indices: by row, then by start. */
export function matchingEvents(trace: Trace, matches: Uint8Array): Uint32Array {
  const { node, count } = trace.columns;
  let found = 0;
  for (let i = 0; i < count; i++) found += matches[node[i]] ?? 0;
  const events = new Uint32Array(found);
  found = 0;
  for (let i = 0; i < count; i++) if (matches[node[i]]) events[found++] = i;
  return events;
}
