"""Compares `envoy-harmony tokens render` with openai-harmony.

    render.py ENVOY_HARMONY [COUNT [SEED]]

COUNT random conversations, each rendered for completion, as it is and as a
training example in the reference's form; and as many with sound schemas only
in the filter's form, which has to be the same. Where the reference refuses a
conversation, so must we.
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
    except Exception:  # whatever it raises, it refuses
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
