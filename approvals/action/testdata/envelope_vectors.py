#!/usr/bin/env python3
"""Computes envelope_vectors.json from the description of the form alone, not from
the Go code: run it again and compare when the form is under suspicion.

A number is a base-128 varint, low bits first. A text or byte string is its
length and its bytes. A byte member is 0 when absent, else its length plus one and
its bytes. A list is its count and its items. A map is its count and its pairs by
key. Digest(domain, parts) = SHA-256(domain 00 (decimal length ":" part)*).
"""
import hashlib
import json
import sys


def number(n):
    out = b""
    while n >= 0x80:
        out += bytes([n & 0x7F | 0x80])
        n >>= 7
    return out + bytes([n])


def blob(b):
    return number(len(b)) + b


def text(s):
    return blob(s.encode())


def raw(s):
    return number(0) if s is None else number(len(s.encode()) + 1) + s.encode()


def items(xs):
    return number(len(xs)) + b"".join(text(x) for x in xs)


def digest(domain, *parts):
    h = hashlib.sha256(domain.encode() + b"\0")
    for p in parts:
        h.update(str(len(p)).encode() + b":" + p)
    return h.digest()


def encode(e):
    out = b"CSENV" + number(1) + text(e["operation_id"])
    out += text(e["server"]) + text(e["tool"])
    out += raw(e["args"]) + raw(e["meta"]) + raw(e["extra"])
    out += text(e["actor"]) + items(e["roles"]) + items(e["owners"]) + text(e["auth"])
    out += text(e["session"]) + text(e["workflow"]) + text(e["idem_key"]) + text(e["version"])
    out += raw(e["request_id"]) + text(e["tier"])
    out += blob(bytes.fromhex(e["server_id"])) + text(e["server_name"])
    out += blob(bytes.fromhex(e["manifest"])) + blob(bytes.fromhex(e["tool_def"])) + blob(bytes.fromhex(e["policy"]))
    out += items(e["rules"]) + items(e["routes"])
    out += number(len(e["provenance"]))
    for k in sorted(e["provenance"], key=lambda k: k.encode()):
        out += text(k) + items(e["provenance"][k])
    return out + items(e["evidence"])


def match(e):
    parts = [e["actor"], e["server"], e["tool"], "canonical", e["canonical"], e["idem_key"]]
    return digest("countersign/match/v1", *[p.encode() for p in parts])


ZERO = "00" * 32
EMPTY = dict(
    operation_id="", server="", tool="", args=None, meta=None, extra=None, actor="", roles=[], owners=[], auth="",
    session="", workflow="", idem_key="", version="", request_id=None, tier="", server_id=ZERO, server_name="",
    manifest=ZERO, tool_def=ZERO, policy=ZERO, rules=[], routes=[], provenance={}, evidence=[], canonical="{}",
)
FULL = dict(
    EMPTY, operation_id="op_1", server="desk", tool="cancel_order",
    args='{ "order_id" : "4417",\n "b":1.0, "a":[9007199254740993,1e400,-0] }',
    canonical='{"a":[9007199254740993,1e400,-0],"b":1.0,"order_id":"4417"}',
    meta='{"x":1}', extra='{"task":{"ttl":60000}}', actor="ana@acme.test", roles=["operator", "reader"], owners=["bo"],
    auth="token", session="s1", workflow="wf1", idem_key="k\u2028é", version="2025-11-25", request_id='"7"',
    tier="destructive", server_id="11" * 32, server_name="orders 1.0", manifest="22" * 32, tool_def="33" * 32,
    policy="44" * 32, rules=["tier:destructive"], routes=["default", "finance"],
    provenance={"/to": ["user"], "/body": ["model", "retrieved"], "": []}, evidence=["e1"],
)

vectors = []
for name, e in [("empty", EMPTY), ("full", FULL)]:
    vectors.append(dict(
        name=name, envelope=e, encoded=encode(e).hex(), match=match(e).hex(),
        digest=digest("countersign/envelope/v1", match(e), encode(e)).hex(),
    ))
json.dump(vectors, sys.stdout, indent=1, ensure_ascii=True)
print()
