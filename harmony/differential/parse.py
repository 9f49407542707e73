"""Compares `envoy-harmony tokens parse` with openai-harmony.

    parse.py ENVOY_HARMONY [COUNT [SEED]]

COUNT random completions, well formed and broken, are parsed in strict and in
permissive mode: messages, joined deltas, refusals and their texts must be the
same.
"""

import json
import random
import sys

import cases
from compare import Differences, run_lines
import openai_harmony
from openai_harmony.openai_harmony import PyStreamableParser


def reference(inner, tokens, role, strict):
    parser = PyStreamableParser(inner, role, strict)
    delta, error = "", None
    try:
        for t in tokens:
            parser.process(t)
            delta += parser.last_content_delta or ""
        parser.process_eos()
    except openai_harmony.HarmonyError as e:
        error = str(e)
    msgs = []
    for m in json.loads(parser.messages):
        content = m["content"] if isinstance(m["content"], str) else m["content"][0]["text"]
        msgs.append([m.get("channel") or "", m.get("recipient") or "", m.get("content_type") or "", content])
    result = {"msgs": msgs, "delta": delta, "err": error is not None}
    return result | ({"error": error} if error else {})


def main():
    command, count, seed = sys.argv[1], int((sys.argv + ["10000"])[2]), int((sys.argv[:4] + ["1", "1"])[3])
    inner = openai_harmony.load_harmony_encoding("HarmonyGptOss")._inner
    differences = Differences("parse", seed)

    def encode(text):
        return inner.encode(text, None)

    for strict in (True, False):
        for role in ("assistant", None, "user", "tool"):
            n = count if role == "assistant" else count // 5
            r = random.Random(seed)
            completions = [cases.completion(r, encode, role) for _ in range(n)]
            flags = ["-strict" if strict else "-permissive", "-role", role or "none"]
            results = run_lines([command, "tokens", "parse", "-jsonl", *flags], [json.dumps({"t": c}) for c in completions])
            for c, got in zip(completions, results, strict=True):
                want = reference(inner, c, role, strict)
                if got != want:
                    differences.add(" ".join(flags), json.dumps(c), inner, want, got)
    differences.report(2 * (count + 3 * (count // 5)))


main()
