"""Compares `envoy-harmony tokens render` with openai-harmony.

    render.py ENVOY_HARMONY [COUNT [SEED]]

It renders COUNT random conversations for completion, without completion and as a
training example in the reference's form, and as many conversations, with only
schemas that the reference renders correctly, in the filter's form, which must be
the same. Conversations that are an error in the reference must be an error here.
"""

import json
import random
import sys

import cases
from compare import Differences, run_lines
import openai_harmony


def reference(encoding, method, conversation, *role):
    try:
        return getattr(encoding, method)(conversation, *role, {"auto_drop_analysis": True})
    except Exception:  # any exception means that it does not accept the input
        return None


def main():
    command, count, seed = sys.argv[1], int((sys.argv + ["10000"])[2]), int((sys.argv[:4] + ["1", "1"])[3])
    inner = openai_harmony.load_harmony_encoding("HarmonyGptOss")._inner
    differences = Differences("render", seed)
    for sound, flags, method, role in (
        (False, ["-next", "assistant"], "render_conversation_for_completion", ["assistant"]),
        (False, ["-next", "none"], "render_conversation", []),
        (False, ["-training"], "render_conversation_for_training", []),
        (True, ["-filter", "-next", "none"], "render_conversation", []),
    ):
        r = random.Random(seed)
        conversations = [cases.conversation(r, sound) for _ in range(count)]
        results = run_lines([command, "tokens", "render", "-jsonl", *flags], conversations)
        for c, got in zip(conversations, results, strict=True):
            want = reference(inner, method, c, *role)
            if got.get("t") != want:
                differences.add(" ".join(flags), c, inner, want, got.get("t", got))
    differences.report(4 * count)


main()
