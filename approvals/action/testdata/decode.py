#!/usr/bin/env python3
"""Reads JSON-RPC messages as a server in Python does, and says what it would run.

Standard input has one message a line, in base64. For each the answer is one line:
"refused", or what was read in the form that differential_test.go describes.
"""
import base64
import json
import sys


class Number:
    def __init__(self, literal):
        self.literal = literal


def text(s):
    return "s" + s.encode("utf-16-be", "surrogatepass").hex()


def tree(v):
    if v is None:
        return "null"
    if v is True:
        return "true"
    if v is False:
        return "false"
    if isinstance(v, Number):
        return "n" + v.literal
    if isinstance(v, str):
        return text(v)
    if isinstance(v, list):
        return "[" + ",".join(tree(x) for x in v) + "]"
    return "{" + ",".join(sorted(text(k) + ":" + tree(x) for k, x in v.items())) + "}"


def member(v, name):
    return tree(v[name]) if isinstance(v, dict) and name in v else "-"


for line in sys.stdin:
    try:
        v = json.loads(base64.b64decode(line), parse_int=Number, parse_float=Number, parse_constant=Number)
        p = v.get("params") if isinstance(v, dict) else None
        print(" ".join([member(v, "id"), member(v, "method"), member(p, "name"), member(p, "arguments")]))
    except (ValueError, RecursionError):
        print("refused")
