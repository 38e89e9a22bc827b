// What echo.py is, as JavaScript decodes: numbers are the bits of the double that
// JSON.parse makes of them.
import { appendFileSync } from "node:fs";
import { createInterface } from "node:readline";

const text = (s) => {
  let out = "s";
  for (let i = 0; i < s.length; i++) out += s.charCodeAt(i).toString(16).padStart(4, "0");
  return out;
};
const bits = (n) => {
  const b = Buffer.alloc(8);
  b.writeDoubleBE(n);
  return "n" + b.toString("hex");
};
const tree = (v) => {
  if (v === null || typeof v === "boolean") return String(v);
  if (typeof v === "number") return bits(v);
  if (typeof v === "string") return text(v);
  if (Array.isArray(v)) return "[" + v.map(tree).join(",") + "]";
  return "{" + Object.keys(v).map((k) => text(k) + ":" + tree(v[k])).sort().join(",") + "}";
};

const answer = (method, params) => {
  switch (method) {
    case "initialize":
      return { protocolVersion: "2025-06-18", capabilities: { tools: {} }, serverInfo: { name: "echo", version: "1" } };
    case "tools/list":
      return { tools: [{ name: "read_thing", inputSchema: { type: "object" } }] };
    case "tools/call": {
      const read = tree(params.name) + " " + tree(params.arguments);
      appendFileSync(process.argv[2], read + "\n");
      return { content: [{ type: "text", text: read }] };
    }
  }
};

for await (const line of createInterface({ input: process.stdin })) {
  const m = JSON.parse(line);
  if (m.id === undefined || m.method === undefined) continue;
  const result = answer(m.method, m.params);
  const rest = result === undefined ? { error: { code: -32601, message: "no such method" } } : { result };
  console.log(JSON.stringify({ jsonrpc: "2.0", id: m.id, ...rest }));
}
