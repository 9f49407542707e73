#!/usr/bin/env python3
"""Measures how long a gpt-oss model reasons at each effort: stated at the head of the prompt, as
the model was trained, and stated again by a message late in the conversation.

It needs an engine with POST /v1/completions that takes token ids, and `envoy-harmony render`:

    envoy-harmony render --listen 127.0.0.1:8001
    python3 effort.py --engine http://127.0.0.1:8000 --model openai/gpt-oss-20b

docs/effort.md says what the table means. Python 3.9 or later, and no other package.
"""

import argparse
import concurrent.futures
import json
import math
import statistics
import sys
import time
import urllib.error
import urllib.request

# Control tokens of the o200k_harmony encoding.
RETURN, CHANNEL, START, END, MESSAGE, CALL = 200002, 200005, 200006, 200007, 200008, 200012
EFFORTS = ("low", "medium", "high")

# Questions that can be answered with little thought and with much.
QUESTIONS = (
    "How many positive integers below 1000 are divisible by neither 2, 3 nor 5?",
    "A train leaves at 14:35 and arrives at 09:10 the next day. How long is the journey?",
    "Which is larger, 2^100 or 3^63? Explain in one sentence.",
    "Write a regular expression for a date of the form YYYY-MM-DD with months from 01 to 12.",
    "Three boxes have wrong labels: apples, oranges, both. From which do I take one fruit to label them all?",
    "Name the capital of Australia and the year in which it was founded.",
    "Given the list [3, 1, 4, 1, 5, 9, 2, 6], what does one pass of bubble sort make of it?",
    "Is the number 1009 prime? Answer yes or no.",
)

# What stands before each question, so that the late message is late.
HISTORY = (
    {"role": "user", "content": "Hello. I have a few unrelated questions."},
    {"role": "assistant", "content": "Of course. Ask the first one."},
)


class Service:
    """A server with a JSON API."""

    def __init__(self, url, key=""):
        self.url, self.headers = url.rstrip("/"), {"content-type": "application/json"}
        if key:
            self.headers["authorization"] = "Bearer " + key

    def call(self, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, self.headers)
        try:
            with urllib.request.urlopen(request, timeout=3600) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as e:
            raise SystemExit(f"{self.url}{path}: {e.code}: {e.read(2000).decode(errors='replace')}") from e
        except (urllib.error.URLError, OSError, ValueError) as e:
            raise SystemExit(f"{self.url}{path}: {e}") from e


def encode(render, text):
    return render.call("/tokenize", {"prompt": text, "add_special_tokens": False})["tokens"]


def prompt(render, question, head, form, late):
    """The tokens of a prompt. form is the role of a message that states another effort, or None."""
    messages = [*HISTORY, {"role": "user", "content": question}]
    if form == "developer":
        messages.append({"role": "developer", "content": f"Reasoning: {late}"})
    body = {"model": "gpt-oss", "messages": messages, "reasoning_effort": head}
    tokens = render.call("/v1/chat/completions/render", body)["token_ids"]
    if form == "system":
        # No API has a second message of Harmony's system role: it is put before <|start|>assistant.
        at = len(tokens) - 1 - tokens[::-1].index(START)
        stated = [START, *encode(render, "system"), MESSAGE, *encode(render, f"Reasoning: {late}"), END]
        tokens = [*tokens[:at], *stated, *tokens[at:]]
    return tokens


def reasoning_tokens(output, analysis):
    """How many tokens of the output are reasoning, whether it has ended, and whether an answer began."""
    count, header, inside, answered = 0, [], False, False
    reading = True  # the output begins within a header
    for token in output:
        if token == MESSAGE:
            inside, reading = analysis in header, False
            answered = answered or not inside
        elif token in (START, CHANNEL, END, CALL, RETURN):
            inside, reading, header = False, token in (START, CHANNEL), []
        elif reading:
            header.append(token)
        elif inside:
            count += 1
    return count, not inside, answered


def generate(args, engine, render, tokens, seed):
    body = {
        "model": args.model, "prompt": tokens, "max_tokens": args.max_tokens, "temperature": args.temperature,
        "seed": seed, "stop_token_ids": [RETURN, CALL], "skip_special_tokens": False, "return_token_ids": True,
    }
    answer = engine.call("/v1/completions", body)
    choice = answer["choices"][0]
    ids = choice.get("token_ids")
    if ids is None:
        # Engines without return_token_ids: the text shows the control tokens.
        ids = tokens_of(render, choice["text"])
    return ids, choice.get("finish_reason")


NAMES = {
    "<|start|>": START, "<|channel|>": CHANNEL, "<|message|>": MESSAGE,
    "<|end|>": END, "<|return|>": RETURN, "<|call|>": CALL,
}


def tokens_of(render, text):
    if "<|message|>" not in text:
        raise SystemExit("The engine returns neither token ids (return_token_ids) nor control tokens in its text "
                         "(skip_special_tokens: false). Reasoning cannot be told from the answer.")
    ids = []
    while text:
        at, name = min(((text.find(n), n) for n in NAMES if n in text), default=(len(text), ""))
        if at:
            ids += encode(render, text[:at])
        if name:
            ids.append(NAMES[name])
        text = text[at + len(name):]
    return ids


def measure(args, engine, render):
    [analysis] = encode(render, "analysis")
    questions = QUESTIONS
    if args.questions:
        with open(args.questions, encoding="utf-8") as f:
            questions = json.load(f)
    jobs = []
    for number, question in enumerate(questions):
        for sample in range(args.samples):
            for head in args.heads:
                for form, late in [(None, head), *((f, e) for f in args.forms for e in EFFORTS)]:
                    jobs.append((number, question, sample, head, form, late))

    def run(job):
        number, question, sample, head, form, late = job
        tokens = prompt(render, question, head, form, late)
        output, finish = generate(args, engine, render, tokens, args.seed + sample)
        count, ended, answered = reasoning_tokens(output, analysis)
        return {
            "question": number, "sample": sample, "head": head, "form": form, "late": late,
            "prompt_tokens": len(tokens), "reasoning_tokens": count, "output_tokens": len(output),
            "ended": ended, "answered": answered, "finish": finish,
        }

    with concurrent.futures.ThreadPoolExecutor(args.concurrency) as pool:
        for n, run_of in enumerate(pool.map(run, jobs), 1):
            print(f"\r{n} of {len(jobs)}", end="", file=sys.stderr, flush=True)
            yield run_of
    print(file=sys.stderr)


def summarise(runs, heads, forms):
    """One row for each prompt: the lengths of its reasoning, over all questions and samples."""
    rows = []
    for head in heads:
        for form, late in [(None, head), *((f, e) for f in forms for e in EFFORTS)]:
            these = [r for r in runs if (r["head"], r["form"], r["late"]) == (head, form, late)]
            lengths = sorted(r["reasoning_tokens"] for r in these)
            rows.append({
                "head": head, "form": form, "late": late if form else None, "runs": len(these),
                "mean": round(statistics.mean(lengths), 1), "median": statistics.median(lengths),
                "p90": lengths[math.ceil(0.9 * len(lengths)) - 1], "most": lengths[-1],
                "unended": sum(not r["ended"] for r in these), "unanswered": sum(not r["answered"] for r in these),
            })
    return rows


def show(rows):
    columns = ("runs", "mean", "median", "p90", "most", "unended", "unanswered")
    print(f"{'head':8}{'late message':19}" + "".join(f"{c:>11}" for c in columns))
    for r in rows:
        late = f"{r['form']}: {r['late']}" if r["form"] else "-"
        print(f"{r['head']:8}{late:19}" + "".join(f"{r[c]:11}" for c in columns))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--engine", required=True, help="URL of the engine, without /v1")
    p.add_argument("--model", required=True, help="the model's name at the engine")
    p.add_argument("--render", default="http://127.0.0.1:8001", help="URL of envoy-harmony render")
    p.add_argument("--api-key", default="", help="the engine's key, if it wants one")
    p.add_argument("--heads", default="low,medium,high", help="efforts at the head")
    p.add_argument("--forms", default="system,developer", help="roles of the late message")
    p.add_argument("--questions", help="a JSON file with a list of other questions")
    p.add_argument("--samples", type=int, default=3, help="runs of each prompt")
    p.add_argument("--max-tokens", type=int, default=16384, help="most tokens of an output")
    p.add_argument("--temperature", type=float, default=1.0)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--concurrency", type=int, default=8, help="calls at a time")
    p.add_argument("--json", default="effort.json", help="where the result is written")
    args = p.parse_args()
    args.heads, args.forms = args.heads.split(","), [f for f in args.forms.split(",") if f]
    if not set(args.heads) <= set(EFFORTS) or not set(args.forms) <= {"system", "developer"}:
        p.error("--heads has low, medium and high, --forms system and developer")

    engine, render = Service(args.engine, args.api_key), Service(args.render)
    runs = list(measure(args, engine, render))
    rows = summarise(runs, args.heads, args.forms)
    show(rows)

    # Neither questions nor outputs are in it, nor addresses.
    result = {
        "format": 1, "date": time.strftime("%Y-%m-%d", time.gmtime()), "model": args.model,
        "own_questions": bool(args.questions), "max_tokens": args.max_tokens, "temperature": args.temperature,
        "samples": args.samples, "rows": rows, "runs": runs,
    }
    with open(args.json, "w", encoding="utf-8") as f:
        json.dump(result, f, indent=1)
        f.write("\n")
    print(f"\nwritten to {args.json}")


if __name__ == "__main__":
    main()
