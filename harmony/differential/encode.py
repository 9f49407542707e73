"""Compares the encoder with tiktoken and openai-harmony on generated strings.

    encode.py ENVOY-HARMONY COUNT [SEED]     10 * COUNT strings
    encode.py --fixtures FILE                writes the cases of the Go tests

run.sh sets up the environment. Every string is encoded as ordinary text; one
in ten also with special tokens allowed, against openai-harmony.
"""

import json
import random
import sys
import unicodedata

import openai_harmony
import tiktoken

from compare import Differences, run_lines

tik = tiktoken.get_encoding("o200k_base")
inner = openai_harmony.load_harmony_encoding("HarmonyGptOss")._inner
# No engine's vocabulary contains 201088, so our encoder never outputs it.
SPECIALS = sorted(n for n in inner.special_tokens() if n != "<|reserved_201088|>")
BATCH = 20000

SPACES = " \t\r\n\u000b\u000c\u0085\u00a0\u1680\u2002\u2028\u2029\u202f\u205f\u3000"
PIECES = ["'s", "'S", "'\u017f", "'ll", "'lL", "'re", "'Re", "'ve", "'m", "'d", "'t", "'", "i+1'th", "//", "/", "\r\n", "\n",
          "  ", " ", "\x00", "\x00\x00", "\u0301", "\u200d", "\U0001f469", "\u01c5", "\u02b0", "\u4e2d", "\u216b", "\u00bd",
          "12", "3456", "A", "a", "\u0410", "\u0430", "<|start|>", "<|end|>", "<|", "|>", "HTTPServer", "camelCase", "\ufffd"]
# Characters that differ between Unicode versions, and boundaries of blocks.
POINTS = [0x10d40, 0x1c89, 0x1c8a, 0xa7cb, 0xa7da, 0x2ebf0, 0x31350, 0x323af, 0x1e5f0, 0x116d0, 0x1cc00, 0x16d40, 0x105c0,
          0x7f, 0x80, 0x7ff, 0x800, 0xd7ff, 0xe000, 0xffff, 0x10000, 0x10ffff, 0xe0001, 0xe0041, 0xfe0f]


def code_point(r, top=0x110000):
    while True:
        c = r.randrange(top)
        if not 0xD800 <= c < 0xE000:
            return chr(c)


def vocabulary_word(r):
    b = tik.decode_single_token_bytes(min(r.randrange(1 << r.randint(8, 17)), 199997))
    return b.decode("utf-8", "ignore")


def assigned(r):
    """An assigned character. All scripts are equally likely."""
    base = r.randrange(0, 0x32000, 0x80)
    for _ in range(20):
        c = chr(base + r.randrange(0x80))
        if unicodedata.category(c) not in ("Cn", "Cs"):
            return c
    return "x"


def run(r):
    unit = r.choice([" ", "\n", "a", "!", "\u4e2d", "ab", "\t ", "-", "=", "\u0301", "A", "\u00e9", "0", "\U0001f600", "\r\n"])
    return unit * r.randint(1, 300)


def string(r):
    kind = r.randrange(9)
    n = r.randint(1, 40)
    if kind == 0:
        return "".join(code_point(r) for _ in range(n))
    if kind == 1:
        return "".join(code_point(r, r.choice([0x80, 0x100, 0x500, 0x3000, 0x20000])) for _ in range(n))
    if kind == 2:
        return "".join(r.choice([r.choice(PIECES), vocabulary_word(r)]) for _ in range(n))
    if kind == 3:
        return "".join(r.choice(SPACES) if r.random() < 0.6 else r.choice(PIECES) for _ in range(n))
    if kind == 4:
        return "".join(assigned(r) for _ in range(n))
    if kind == 5:
        return r.choice(["", " ", "x"]) + run(r) + r.choice(["", "b", " c", "\n"]) + run(r)
    if kind == 6:  # words of one alphabet that are not tokens
        base, size = r.choice([(97, 26), (65, 58), (0x430, 32), (0x4e00, 3000), (0x905, 60), (0x621, 40), (0xac00, 11172), (0x3041, 80)])
        return "".join(" " if r.random() < 0.1 else chr(base + r.randrange(size)) for _ in range(n * 3))
    if kind == 7:
        return "".join(chr(r.choice(POINTS)) if r.random() < 0.5 else r.choice(PIECES) for _ in range(n))
    return "".join(r.choice([" ", "", "", "\n", "_"]) + vocabulary_word(r) for _ in range(n * 2))


def special_string(r):
    return "".join(r.choice([r.choice(SPECIALS), r.choice(PIECES), "<|reserved_199999|>", "<|endofprompt|>", vocabulary_word(r)])
                   for _ in range(r.randint(1, 12)))


def compare(command, count, seed):
    r, differences = random.Random(seed), Differences("encode", seed)
    done = 0
    while done < count:
        texts = [string(r) for _ in range(min(BATCH, count - done))]
        got = run_lines([command, "tokens", "encode", "--jsonl"], [json.dumps({"s": s}) for s in texts])
        for s, g in zip(texts, got, strict=True):
            want = tik.encode_ordinary(s)
            if g.get("t") != want:
                differences.add("ordinary", repr(s), inner, want, g.get("t"))
        texts = [special_string(r) for _ in range(len(texts) // 10)]
        got = run_lines([command, "tokens", "encode", "--jsonl", "--special"], [json.dumps({"s": s}) for s in texts])
        for s, g in zip(texts, got, strict=True):
            want = inner.encode(s, SPECIALS)
            if g.get("t") != want:
                differences.add("special", repr(s), inner, want, g.get("t"))
        done += BATCH
    differences.report(count + count // 10)


def fixtures(path):
    r = random.Random(200)
    with open(path, "w", encoding="ascii") as f:
        for i in range(1000):
            s = special_string(r) if i % 10 == 0 else string(r)
            case = {"s": s, "t": tik.encode_ordinary(s)}
            if i % 10 == 0:
                case["special"] = inner.encode(s, SPECIALS)
            f.write(json.dumps(case, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    if sys.argv[1] == "--fixtures":
        fixtures(sys.argv[2])
    else:
        compare(sys.argv[1], 10 * int(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 1)
