"""Measures what the grammars of tool_strictness cost: "make bench-strictness". Reads the rows of e2e/strictness.

Without an engine it compiles each grammar with xgrammar and the engines' vocabulary, and follows a reply with it:
milliseconds to compile it, to get it from the compiler's cache, and microseconds of a token's mask. With
--engine URL, of a vLLM or SGLang, it measures replies in turns without a grammar, with a new one and with a known
one: milliseconds to the first token, and of each further token."""

import argparse
import json
import statistics
import sys
import time
import urllib.request

TOKENS = 96
PROMPT = "The user asks for the weather in Paris, and for a table of it. "


def follow(grammar, vocabulary, tokens):
    """The seconds that the mask of each token of a reply takes."""
    import xgrammar

    matcher = xgrammar.GrammarMatcher(grammar)
    mask = xgrammar.allocate_token_bitmask(1, vocabulary)
    seconds = []
    for token in tokens:
        start = time.perf_counter()
        matcher.fill_next_token_bitmask(mask)
        seconds.append(time.perf_counter() - start)
        if not matcher.accept_token(token):
            sys.exit("strictness.py: the grammar does not accept a reply that it has to accept")
    return seconds


def compiled(rows, model, vocabulary=201088):
    import xgrammar
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model)
    info = xgrammar.TokenizerInfo.from_huggingface(tokenizer, vocab_size=vocabulary)
    print(f"{'setting':>14} {'tools':>6} {'schemas':>8} {'KB':>7} {'new ms':>8} {'CPU ms':>8} {'known ms':>9} {'mask us':>8}")
    for row in rows:
        compiler = xgrammar.GrammarCompiler(info, max_threads=8)
        start, cpu = time.perf_counter(), time.process_time()
        compiler.compile_structural_tag(row["tag"])
        new, cpu = time.perf_counter() - start, time.process_time() - cpu
        start = time.perf_counter()
        grammar = compiler.compile_structural_tag(row["tag"])
        known = time.perf_counter() - start
        reply = (
            f"<|channel|>analysis<|message|>{PROMPT * 8}<|end|><|start|>assistant"
            f"<|channel|>commentary to={row['first']} <|constrain|>json<|message|>"
        )
        masks = follow(grammar, vocabulary, tokenizer.encode(reply, add_special_tokens=False))
        print(
            f"{row['setting']:>14} {row['tools']:>6} {row['schemas']:>8} {len(row['tag']) / 1e3:>7.1f} {new * 1e3:>8.1f} "
            f"{cpu * 1e3:>8.1f} {known * 1e3:>9.2f} {statistics.mean(masks) * 1e6:>8.0f}",
            flush=True,
        )


def request(engine, kind, model, prompt, tag):
    if kind == "sglang":
        sampling = {"temperature": 1, "max_new_tokens": TOKENS, "ignore_eos": not tag}
        if tag:
            sampling["structural_tag"] = tag
        path, body = "/generate", {"input_ids": prompt, "stream": True, "sampling_params": sampling}
    else:
        body = {"model": model, "prompt": prompt, "stream": True, "max_tokens": TOKENS, "temperature": 1, "ignore_eos": not tag}
        if tag:
            body["structured_outputs"] = {"structural_tag": tag}
        path = "/v1/completions"
    return urllib.request.Request(engine + path, json.dumps(body).encode(), {"content-type": "application/json"})


def reply(engine, kind, model, prompt, tag):
    """Milliseconds to the first token, and of each further one; None for the latter where the reply was short."""
    start = time.perf_counter()
    times = []
    with urllib.request.urlopen(request(engine, kind, model, prompt, tag)) as stream:
        for line in stream:
            if line.startswith(b"data: {"):
                times.append(time.perf_counter())
    gap = (times[-1] - times[0]) / (len(times) - 1) * 1e3 if len(times) > TOKENS // 2 else None
    return (times[0] - start) * 1e3, gap


def renamed(tag, recipient, number):
    """A grammar that the engine has not seen."""
    return tag.replace(json.dumps(recipient), json.dumps(f"{recipient}_{number}"))


def served(rows, engine, kind, model, rounds):
    prompt = [200006, 1428, 200008] + [1000 + i for i in range(60)] + [200007, 200006, 173781]
    for _ in range(3):
        reply(engine, kind, model, prompt, "")
    print(f"{'setting':>14} {'tools':>6} {'first ms':>9} {'new':>8} {'known':>8} {'token ms':>9} {'known':>8} {'ratio':>6}")
    number = 0
    for row in rows:
        without, new, known = [], [], []
        for _ in range(rounds):
            number += 1
            without.append(reply(engine, kind, model, prompt, ""))
            new.append(reply(engine, kind, model, prompt, renamed(row["tag"], row["first"], number)))
            reply(engine, kind, model, prompt, row["tag"])
            known.append(reply(engine, kind, model, prompt, row["tag"]))

        first = [statistics.median(first for first, _ in runs) for runs in (without, new, known)]
        gaps = [[gap for _, gap in runs if gap] for runs in (without, known)]
        token = [statistics.median(g) if g else float("nan") for g in gaps]
        print(
            f"{row['setting']:>14} {row['tools']:>6} {first[0]:>9.1f} {first[1]:>8.1f} {first[2]:>8.1f} {token[0]:>9.2f} "
            f"{token[1]:>8.2f} {token[1] / token[0]:>6.3f}",
            flush=True,
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokenizer", help="folder of the model, for xgrammar")
    parser.add_argument("--engine", help="address of the engine")
    parser.add_argument("--kind", choices=("vllm", "sglang"), default="vllm")
    parser.add_argument("--model", default="gpt-oss-20b")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    rows = [json.loads(line) for line in sys.stdin]
    if options.tokenizer:
        compiled(rows, options.tokenizer)
    if options.engine:
        served(rows, options.engine, options.kind, options.model, options.rounds)


if __name__ == "__main__":
    main()
