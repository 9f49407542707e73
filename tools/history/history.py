#!/usr/bin/env python3
"""Measures in which form of the history a gpt-oss model calls tools better: with its earlier calls as
it writes them (history: exact), or in the form of OpenAI's library (history: canonical).

It takes prompts of records with contents (record.content: true) that have calls in an unfinished turn,
asks an engine with both forms of each, and counts the calls of the answers that are malformed, or of a
tool that the prompt does not have. It needs an engine with POST /v1/completions that takes token ids,
and `envoy-harmony render`:

    envoy-harmony render --listen 127.0.0.1:8001
    python3 history.py --engine http://127.0.0.1:8000 --model openai/gpt-oss-20b /var/lib/records

docs/prefix-cache.md says what the forms are. Python 3.9 or later, and no other package.
"""

import argparse
import concurrent.futures
import gzip
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
            raise SystemExit(f"{self.url}{path}: {e.code}: {e.read(2000).decode(errors='replace')}") from e
        except (urllib.error.URLError, OSError, ValueError) as e:
            raise SystemExit(f"{self.url}{path}: {e}") from e


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
    """A prompt with its calls in a form; None if its unfinished turn has none."""
    parts = messages(prompt)
    answered = max((i for i, m in enumerate(parts) if m[:4] == [START, ASSISTANT, CHANNEL, FINAL]), default=-1)
    changed, calls = [], 0
    for i, message in enumerate(parts):
        to = recipient(message)
        if to is not None:
            header, text = message[:message.index(MESSAGE)], message[message.index(MESSAGE):]
            canonical = [START, ASSISTANT, *to, CHANNEL, *COMMENTARY, SPACE_JSON]
            calls += i > answered
            # Before an answer the filter renders calls in the library's form in any case.
            if form == "canonical" or i <= answered:
                message = canonical + text
            elif header == canonical:
                message = [START, ASSISTANT, CHANNEL, *COMMENTARY, *to, SPACE, CONSTRAIN, JSON, *text]
        changed += message
    return changed if calls else None


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


def measure(args, engine, render):
    found = [p for record in records(args.records) for p in prompts(record) if in_form(p, "exact")]
    if not found:
        raise SystemExit("No record has a prompt with calls in an unfinished turn. Record with record.content: true.")
    chosen = random.Random(args.seed).sample(found, min(args.prompts, len(found)))
    jobs = [(prompt, form, n) for prompt in chosen for n in range(args.samples) for form in FORMS]

    def text_of(tokens):
        return render.call("/detokenize", {"tokens": tokens})["prompt"]

    tools = {id(prompt): tools_of(text_of(prompt)) for prompt in chosen}

    def run(job):
        prompt, form, n = job
        body = {
            "model": args.model, "prompt": in_form(prompt, form), "max_tokens": args.max_tokens,
            "temperature": args.temperature, "seed": args.seed + n, "stop_token_ids": [RETURN, CALL],
            "skip_special_tokens": False, "return_token_ids": True,
        }
        choice = engine.call("/v1/completions", body)["choices"][0]
        if choice.get("token_ids") is None:
            raise SystemExit("The engine does not return token ids (return_token_ids).")
        # What was cut is not the model's mistake.
        if choice.get("finish_reason") == "length":
            return form, (0, 0, 0), True
        return form, judge(text_of(choice["token_ids"]), tools[id(prompt)]), False

    with concurrent.futures.ThreadPoolExecutor(args.concurrency) as pool:
        for n, result in enumerate(pool.map(run, jobs), 1):
            print(f"\r{n} of {len(jobs)}", end="", file=sys.stderr, flush=True)
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


def summarise(runs):
    rows = []
    for form in FORMS:
        these = [(judged, cut) for of, judged, cut in runs if of == form]
        calls, malformed, unknown = (sum(judged[i] for judged, _ in these) for i in range(3))
        rows.append({
            "history": form, "outputs": len(these), "cut": sum(cut for _, cut in these), "calls": calls,
            "malformed": interval(malformed, calls), "unknown": interval(unknown, calls),
        })
    return rows


def show(rows):
    print(f"{'history':12}{'outputs':>9}{'cut':>6}{'calls':>8}{'malformed in 1,000':>26}{'unknown tool in 1,000':>26}")
    for r in rows:
        shares = [f"{r[k]['per_1000']} ({r[k]['from']} to {r[k]['to']})" for k in ("malformed", "unknown")]
        print(f"{r['history']:12}{r['outputs']:9}{r['cut']:6}{r['calls']:8}{shares[0]:>26}{shares[1]:>26}")


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

    engine, render = Service(args.engine, args.api_key), Service(args.render)
    rows = summarise(list(measure(args, engine, render)))
    show(rows)

    # Neither prompts nor outputs are in it, nor addresses.
    result = {
        "format": 1, "date": time.strftime("%Y-%m-%d", time.gmtime()), "model": args.model,
        "temperature": args.temperature, "samples": args.samples, "rows": rows,
    }
    with open(args.json, "w", encoding="utf-8") as f:
        json.dump(result, f, indent=1)
        f.write("\n")
    print(f"\nwritten to {args.json}")


if __name__ == "__main__":
    main()
