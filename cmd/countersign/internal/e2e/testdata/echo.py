#!/usr/bin/env python3
"""An MCP server of the older era, on standard input, that tells what it read.

Its tool read_thing answers with its name and arguments as Python decoded them, in
the form that decoders_test.go describes, and appends that to the file of its first
argument.
"""
import json
import sys


class Number:
    def __init__(self, literal):
        self.literal = literal


def text(s):
    return "s" + s.encode("utf-16-be", "surrogatepass").hex()


def tree(v):
    if isinstance(v, Number):
        return "n" + v.literal
    if isinstance(v, str):
        return text(v)
    if isinstance(v, list):
        return "[" + ",".join(tree(x) for x in v) + "]"
    if isinstance(v, dict):
        return "{" + ",".join(sorted(text(k) + ":" + tree(x) for k, x in v.items())) + "}"
    return {None: "null", True: "true", False: "false"}[v]


def answer(method, params):
    if method == "initialize":
        return {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "echo", "version": "1"}}
    if method == "tools/list":
        return {"tools": [{"name": "read_thing", "inputSchema": {"type": "object"}}]}
    if method != "tools/call":
        return None
    read = tree(params["name"]) + " " + tree(params["arguments"])
    with open(sys.argv[1], "a") as f:
        f.write(read + "\n")
    return {"content": [{"type": "text", "text": read}]}


for line in sys.stdin.buffer:
    m = json.loads(line, parse_int=Number, parse_float=Number)
    if "id" not in m or "method" not in m:
        continue
    i = m["id"]
    out = {"jsonrpc": "2.0", "id": int(i.literal) if isinstance(i, Number) else i}
    result = answer(m["method"], m.get("params"))
    if result is None:
        out["error"] = {"code": -32601, "message": "no such method"}
    else:
        out["result"] = result
    print(json.dumps(out), flush=True)
