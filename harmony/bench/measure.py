"""Measures one package from PyPI with files in the same way as ours/main.go
measures package harmony: measure.py PACKAGE TASK FILE..."""

import json
import sys
import time

OFFSET, PRIME, MASK = 0xCBF29CE484222325, 0x100000001B3, 0xFFFFFFFFFFFFFFFF


def fnv(values, h=OFFSET):
    for v in values:
        h = (h ^ v) * PRIME & MASK
    return h


def timed(work):
    start = time.process_time()
    result = work()
    return result, (time.process_time() - start) * 1e3


def encoder(peer):
    if peer != "tiktoken":
        sys.exit(f"no encoder {peer}: what is a crate as well is measured natively, by rust/src/main.rs")
    import tiktoken
    return tiktoken.get_encoding("o200k_base").encode_ordinary


def reference():
    import openai_harmony
    return openai_harmony.load_harmony_encoding("HarmonyGptOss")


def encode(run, text):
    tokens, took = timed(lambda: run(text))
    return took, len(tokens), fnv(tokens)


def parse(harmony, text):
    """Uses the parser like vLLM and SGLang: reads the delta, channel and recipient
    after each token."""
    import openai_harmony
    completions = json.loads(text)

    def parsers():
        return [openai_harmony.StreamableParser(harmony, openai_harmony.Role.ASSISTANT) for _ in completions]

    def read(parsers):
        for parser, tokens in zip(parsers, completions):
            for t in tokens:
                parser.process(t)
                parser.last_content_delta
                parser.current_channel
                parser.current_recipient

    new = parsers()
    _, took = timed(lambda: read(new))
    h = OFFSET
    for parser, tokens in zip(parsers(), completions):
        for t in tokens:
            parser.process(t)
            for s in (parser.last_content_delta, parser.current_channel, parser.current_recipient):
                h = fnv(b"\xff", fnv((s or "").encode(), h))
    return took, sum(map(len, completions)), h


def render(harmony, text):
    # The function below the Python classes: its input is JSON, its output tokens.
    inner, config = harmony._inner, {"auto_drop_analysis": True}
    tokens, took = timed(lambda: inner.render_conversation_for_completion(text, "assistant", config))
    return took, len(tokens), fnv(tokens)


def main(peer, work, *paths):
    start = time.process_time()
    run = encoder(peer) if work == "encode" else reference()
    (run if work == "encode" else run.encode)("x")
    print(f"load {(time.process_time() - start) * 1e3:.4f}")
    for path in paths:
        with open(path, encoding="utf-8", newline="") as f:
            text = f.read()
        took, tokens, h = {"encode": encode, "parse": parse, "render": render}[work](run, text)
        print(f"{path} {took:.4f} {tokens} {h:016x}")


main(*sys.argv[1:])
