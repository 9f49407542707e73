#!/usr/bin/env python3
"""Measures in which form of the history a gpt-oss model calls tools better: with its earlier calls as
it writes them (history: exact), or in the form of OpenAI's library (history: canonical).

It takes prompts of records with contents (record.content: true) that have calls in an unfinished turn,
asks an engine with both forms of each, and counts the calls of the answers that are malformed, or of a
tool that the prompt does not have. The two prompts differ in the headers of calls alone: arguments and
their spaces are as recorded in both. It needs an engine with POST /v1/completions that takes token ids,
and `envoy-harmony render`:

    envoy-harmony render --listen 127.0.0.1:8001
    python3 history.py --engine http://127.0.0.1:8000 --model openai/gpt-oss-20b /var/lib/records

docs/prefix-cache.md says what the forms are. Python 3.9 or later, and no other package.
"""

import argparse
import concurrent.futures
import gzip
import http.client
import json
import math
import os
import random
import re
import sys
import time
import urllib.error
import urllib.request

# Control tokens of the o200k_harmony encoding, and the words of headers.
RETURN, CONSTRAIN, CHANNEL, START, END, MESSAGE, CALL = 200002, 200003, 200005, 200006, 200007, 200008, 200012
ASSISTANT, FINAL, COMMENTARY = 173781, 17196, [12606, 815]
TO, EQUALS, SPACE, JSON, SPACE_JSON = 316, 28, 220, 4108, 5701
FORMS = ("exact", "canonical")
MISTAKES = ("malformed", "unknown")


class Failure(Exception):
    """Why a prompt could not be measured. What the service says of it may quote the prompt: for the terminal alone."""

    def __init__(self, why, said=""):
        super().__init__(why)
        self.said = said


class Service:
    """A server with a JSON API."""

    def __init__(self, url, key=""):
        self.url, self.headers = url.rstrip("/"), {"content-type": "application/json"}
        if key:
            self.headers["authorization"] = "Bearer " + key

    def call(self, path, body):
        request = urllib.request.Request(self.url + path, json.dumps(body).encode(), self.headers)
        try:
            with urllib.request.urlopen(request, timeout=3600) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as e:
            raise Failure(f"{path}: {e.code}", e.read(500).decode(errors="replace")) from e
        except (urllib.error.URLError, http.client.HTTPException, OSError, ValueError) as e:
            raise Failure(f"{path}: {type(e).__name__}", str(e)) from e


def records(paths):
    """The records of files and folders: JSON objects, one after the other, perhaps compressed."""
    files = []
    for path in paths:
        if os.path.isdir(path):
            files += sorted(os.path.join(folder, name) for folder, _, names in os.walk(path) for name in names)
        else:
            files.append(path)
    for file in files:
        with open(file, "rb") as f:
            data = f.read()
        text = (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode(errors="replace")
        decoder, space, at = json.JSONDecoder(), re.compile(r"\s*"), 0
        while (at := space.match(text, at).end()) < len(text):
            try:
                record, at = decoder.raw_decode(text, at)
            except ValueError:
                print(f"{file} is no record", file=sys.stderr)
                break
            yield record


def prompts(record):
    """The prompts of a record's model calls. Each has what is behind the tokens it shares with the one before."""
    before = []
    for event in record.get("events", []):
        call = event.get("call")
        if call is None:
            continue
        prompt = before[:call.get("shared", 0)] + (call.get("prompt") or [])
        if len(prompt) == call.get("count", len(prompt)):
            yield prompt
        before = prompt


def messages(prompt):
    """The messages of a prompt, each from its <|start|> on. The last one is open."""
    starts = [i for i, token in enumerate(prompt) if token == START] + [len(prompt)]
    return [prompt[a:b] for a, b in zip(starts, starts[1:])]


def recipient(message):
    """The tokens of " to=…" in the header of a call on the commentary channel; None of any other message."""
    if MESSAGE not in message or message[:2] != [START, ASSISTANT]:
        return None
    header = message[2:message.index(MESSAGE)]
    commentary = any(header[i:i + 3] == [CHANNEL, *COMMENTARY] for i in range(len(header)))
    for i in range(len(header) - 2):
        if commentary and header[i:i + 2] == [TO, EQUALS]:
            end = i + 2
            while end < len(header) and header[end] not in (SPACE, SPACE_JSON, CHANNEL, CONSTRAIN):
                end += 1
            return header[i:end]
    return None


def in_form(prompt, form):
    """A prompt with its calls in a form, and for how many that is an invention; None if its unfinished
    turn has no call."""
    parts = messages(prompt)
    answered = max((i for i, m in enumerate(parts) if m[:4] == [START, ASSISTANT, CHANNEL, FINAL]), default=-1)
    changed, calls, invented = [], 0, 0
    for i, message in enumerate(parts):
        to = recipient(message)
        if to is not None:
            header, text = message[:message.index(MESSAGE)], message[message.index(MESSAGE):]
            canonical = [START, ASSISTANT, *to, CHANNEL, *COMMENTARY, SPACE_JSON]
            calls += i > answered
            if form == "canonical":
                message = canonical + text
            elif header == canonical:
                message = [START, ASSISTANT, CHANNEL, *COMMENTARY, *to, SPACE, CONSTRAIN, JSON, *text]
                invented += 1
        changed += message
    return (changed, invented) if calls else None


HEADER = re.compile(
    r"assistant(?P<role> to=[\w.-]+)?<\|channel\|>(?P<channel>analysis|commentary|final)(?P<to> to=[\w.-]+)?"
    r"(?: ?<\|constrain\|> ?\w+| (?:json|code))?")


def tools_of(text):
    """The recipients that a prompt offers, as far as its text says them."""
    names = set()
    for namespace, body in re.findall(r"namespace (\S+) \{(.*?)\n\} // namespace", text, re.S):
        names |= {f"{namespace}.{name}" for name in re.findall(r"^type (\S+) = ", body, re.M)}
    return names | {name for name in ("python",) if re.search(rf"^## {name}$", text, re.M)}


def judge(text, tools):
    """The calls of an output, and how many of them are malformed, and of no tool."""
    calls = malformed = unknown = 0
    for message in ("assistant" + text).split("<|start|>"):
        ended = message.endswith("<|call|>")
        header, _, content = message.partition("<|message|>")
        read = HEADER.fullmatch(header.strip())
        to = read and (read["role"] or read["to"])
        if not (ended or to or " to=" in header):
            continue
        calls += 1
        if not to or read["role"] and read["to"]:
            malformed += 1
            continue
        name = to[len(" to="):]
        unknown += name not in tools
        try:
            object_ = name == "python" or isinstance(json.loads(re.sub(r"<\|(call|end|return)\|>$", "", content)), dict)
        except ValueError:
            object_ = False
        malformed += not object_
    return calls, malformed, unknown


def choose(args):
    found = [p for record in records(args.records) for p in prompts(record) if in_form(p, "exact")]
    if not found:
        raise SystemExit("No record has a prompt with calls in an unfinished turn. Record with record.content: true.")
    return random.Random(args.seed).sample(found, min(args.prompts, len(found)))


def measure(args, chosen):
    """What is counted of each prompt, by form: [outputs, cut, calls, malformed, unknown]; or its [Failure]."""
    engine, render = Service(args.engine, args.api_key), Service(args.render)

    def text_of(tokens):
        return render.call("/detokenize", {"tokens": tokens})["prompt"]

    def run(prompt, tools, form, n):
        body = {
            "model": args.model, "prompt": in_form(prompt, form)[0], "max_tokens": args.max_tokens,
            "temperature": args.temperature, "seed": args.seed + n, "stop_token_ids": [RETURN, CALL],
            "skip_special_tokens": False, "return_token_ids": True,
        }
        choice = (engine.call("/v1/completions", body).get("choices") or [{}])[0]
        if choice.get("token_ids") is None:
            raise Failure("The engine does not return token ids (return_token_ids).")
        # What was cut is not the model's mistake.
        if choice.get("finish_reason") == "length":
            return 1, 1, 0, 0, 0
        return 1, 0, *judge(text_of(choice["token_ids"]), tools)

    def both(prompt):
        try:
            tools = tools_of(text_of(prompt))
            return {form: [sum(counts) for counts in zip(*(run(prompt, tools, form, n) for n in range(args.samples)))]
                    for form in FORMS}
        except Failure as failure:
            return failure

    with concurrent.futures.ThreadPoolExecutor(args.concurrency) as pool:
        for n, result in enumerate(pool.map(both, chosen), 1):
            print(f"\r{n} of {len(chosen)}", end="", file=sys.stderr, flush=True)
            yield result
    print(file=sys.stderr)


def interval(hits, of):
    """Hits in 1,000, with the bounds between which 95 of 100 such samples have the true share (Wilson)."""
    if not of:
        return {"per_1000": None, "from": None, "to": None}
    z, share = 1.96, hits / of
    middle = (share + z * z / (2 * of)) / (1 + z * z / of)
    half = z * math.sqrt(share * (1 - share) / of + z * z / (4 * of * of)) / (1 + z * z / of)
    return {"per_1000": round(1000 * share, 1), "from": round(1000 * max(0, middle - half), 1),
            "to": round(1000 * min(1, middle + half), 1)}


def total(measured, form):
    return [sum(counts) for counts in zip(*(result[form] for result in measured))] or [0] * 5


def difference(measured, mistake, seed):
    """Mistakes in 1,000 calls, exact less canonical, with the bounds of 95 of 100 choices of as many of
    the prompts (bootstrap): a prompt's samples resemble each other, in both forms."""
    def less(results):
        shares = []
        for form in FORMS:
            _, _, calls, *mistakes = total(results, form)
            if not calls:
                return None
            shares.append(1000 * mistakes[MISTAKES.index(mistake)] / calls)
        return round(shares[0] - shares[1], 1)

    chance = random.Random(seed)
    again = sorted(d for _ in range(2000) if (d := less(chance.choices(measured, k=len(measured)))) is not None) \
        if measured else []
    # Without a mistake in either form all choices are alike, which says nothing about the next prompt.
    mistakes = sum(total(measured, form)[3 + MISTAKES.index(mistake)] for form in FORMS)
    known = again and mistakes
    return {"per_1000": less(measured), "from": again[len(again) // 40] if known else None,
            "to": again[-1 - len(again) // 40] if known else None}


def summarise(measured, seed):
    rows = []
    for form in FORMS:
        outputs, cut, calls, *mistakes = total(measured, form)
        rows.append({"history": form, "outputs": outputs, "cut": cut, "calls": calls,
                     **{mistake: interval(hits, calls) for mistake, hits in zip(MISTAKES, mistakes)}})
    return {"rows": rows, "difference": {mistake: difference(measured, mistake, seed) for mistake in MISTAKES}}


def show(result):
    def shares(of):
        return "".join(f"{of[m]['per_1000']} ({of[m]['from']} to {of[m]['to']})".rjust(26) for m in MISTAKES)

    print(f"{'history':12}{'outputs':>9}{'cut':>6}{'calls':>8}{'malformed in 1,000':>26}{'unknown tool in 1,000':>26}")
    for r in result["rows"]:
        print(f"{r['history']:12}{r['outputs']:9}{r['cut']:6}{r['calls']:8}{shares(r)}")
    print(f"{'exact less canonical':35}{shares(result['difference'])}")
    print("\nIn brackets: 95 of 100 such samples; the difference's is paired, by prompts.")
    print("The prompts of the two forms differ in the headers of calls alone.")
    print(f"{result['invented']} calls of these prompts were recorded in the library's form, as by history: canonical.")
    print("For them exact is an invention: header 1, <|channel|>commentary to=functions.f <|constrain|>json.")
    if result["failed"]:
        print(f"{result['failed']} prompts failed and count in no row. The first: {result['error']}")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("records", nargs="+", help="files with records, or folders of them")
    p.add_argument("--engine", required=True, help="URL of the engine, without /v1")
    p.add_argument("--model", required=True, help="the model's name at the engine")
    p.add_argument("--render", default="http://127.0.0.1:8001", help="URL of envoy-harmony render")
    p.add_argument("--api-key", default="", help="the engine's key, if it wants one")
    p.add_argument("--prompts", type=int, default=500, help="most prompts, chosen at random")
    p.add_argument("--samples", type=int, default=2, help="runs of each prompt in each form")
    p.add_argument("--max-tokens", type=int, default=4096, help="most tokens of an output")
    p.add_argument("--temperature", type=float, default=1.0)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--concurrency", type=int, default=8, help="calls at a time")
    p.add_argument("--json", default="history.json", help="where the result is written")
    args = p.parse_args()

    chosen = choose(args)
    results = list(measure(args, chosen))
    measured = [r for r in results if not isinstance(r, Failure)]
    failures = [r for r in results if isinstance(r, Failure)]

    # Neither prompts nor outputs are in it, nor addresses.
    result = {
        "format": 1, "date": time.strftime("%Y-%m-%d", time.gmtime()), "model": args.model,
        "temperature": args.temperature, "samples": args.samples, **summarise(measured, args.seed),
        "prompts": len(measured), "failed": len(failures), "error": str(failures[0]) if failures else None,
        "invented": sum(in_form(p, "exact")[1] for p, r in zip(chosen, results) if not isinstance(r, Failure)),
    }
    show(result)
    if failures and failures[0].said:
        print(failures[0].said)
    with open(args.json, "w", encoding="utf-8") as f:
        json.dump(result, f, indent=1)
        f.write("\n")
    print(f"\nwritten to {args.json}")
    if not measured:
        raise SystemExit("Nothing could be measured.")


if __name__ == "__main__":
    main()
