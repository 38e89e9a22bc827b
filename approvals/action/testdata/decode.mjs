// Reads JSON-RPC messages as a server in JavaScript does, and says what it would
// run. The form of input and output is decode.py's, but for numbers: they are the
// bits of the double that JSON.parse makes of them.
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
const isObject = (v) => v !== null && typeof v === "object" && !Array.isArray(v);
const member = (v, name) => (isObject(v) && Object.hasOwn(v, name) ? tree(v[name]) : "-");

const decoder = new TextDecoder("utf-8"); // as servers do: no error for bad bytes
for await (const line of createInterface({ input: process.stdin })) {
  try {
    const v = JSON.parse(decoder.decode(Buffer.from(line, "base64")));
    const p = isObject(v) ? v.params : undefined;
    console.log([member(v, "id"), member(v, "method"), member(p, "name"), member(p, "arguments")].join(" "));
  } catch {
    console.log("refused");
  }
}
