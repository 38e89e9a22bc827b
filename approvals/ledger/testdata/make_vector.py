#!/usr/bin/env python3
"""Writes vector.jsonl: a ledger made without the Go code, by json and hashlib
alone. It was run once; the file is what the tests compare with."""
import hashlib
import json

records = [
    {"event": "opened"},
    {"event": "decision", "operation_id": "op-1", "request_id": "\"a\u2028b \\ <&>\"", "actor": "ana@acme.test",
     "auth": "token", "server": "orders", "tool": "cancel_order", "tier": "destructive", "protocol_version": "2026-07-28",
     "outcome": "review", "policy_digest": "sha256:aa", "args_digest": "k1.mac",
     "rules": [{"id": "tier:destructive", "effect": "review"}, {"id": "tool:orders/*", "effect": "allow"}]},
    {"event": "exec_start", "operation_id": "op-1", "display_digest": "k1.shown",
     "approval": {"id": "op-1", "state": "executing", "expires": "2026-05-01T10:02:00Z",
                  "routes": [{"name": "default", "quorum": 1}],
                  "votes": [{"route": "default", "person": "zoë 😀", "verdict": "approve", "source": "link",
                             "at": "2026-05-01T10:00:01.5Z"}]}},
    {"event": "result", "operation_id": "op-1", "status": "tool_error", "error_type": "tool_error",
     "duration_ms": 12, "event_seq": 18446744073709551615},
]

prev = "0" * 64
with open("vector.jsonl", "w", encoding="utf-8", newline="\n") as out:
    for n, rec in enumerate(records, 1):
        rec.update(v=1, seq=n, ts=f"2026-05-01T10:00:0{n}.000000001Z", boot="20260501T100000Z-0011223344556677",
                   prev_sha256=prev)
        plain = json.dumps(rec, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        prev = hashlib.sha256((rec["prev_sha256"] + plain).encode()).hexdigest()
        rec["sha256"] = prev
        out.write(json.dumps(rec, sort_keys=True, separators=(",", ":"), ensure_ascii=False) + "\n")
print(prev)
