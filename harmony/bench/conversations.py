"""Writes the input of the parser and renderer benchmarks, made from the benchmark
texts: conversations of 10, 100 and 1,000 messages with 20 tools in
openai-harmony's JSON, and completions and headers as lists of tokens. Each is
written twice, .0 for warming up and .1 for measuring.

    conversations.py CORPUS OUT
"""

import json
import pathlib
import random
import re
import sys

import openai_harmony

COMPLETIONS, HEADERS = 50, 1000


def text(content):
    return [{"type": "text", "text": content}]


def tool(prose, i):
    properties = {f"param_{j}": {"type": "string", "description": prose(8)} for j in range(6)}
    properties["mode"] = {"type": "string", "enum": ["fast", "safe"], "default": "fast"}
    return {"name": f"tool_{i}_lookup", "description": prose(20),
            "parameters": {"type": "object", "properties": properties, "required": ["param_0", "mode"]}}


def conversation(prose, size):
    system = {"type": "system_content", "model_identity": "You are ChatGPT, a large language model trained by OpenAI.",
              "reasoning_effort": "Medium", "conversation_start_date": "2025-11-20", "knowledge_cutoff": "2024-06",
              "channel_config": {"valid_channels": ["analysis", "commentary", "final"], "channel_required": True}}
    tools = {"name": "functions", "tools": [tool(prose, i) for i in range(20)]}
    developer = {"type": "developer_content", "instructions": prose(200), "tools": {"functions": tools}}
    messages = [{"role": "system", "content": [system]}, {"role": "developer", "content": [developer]}]
    while len(messages) < size:
        name = f"functions.tool_{len(messages) % 20}_lookup"
        messages += [
            {"role": "user", "content": text(prose(50))},
            {"role": "assistant", "channel": "commentary", "recipient": name, "content_type": "json",
             "content": text(json.dumps({"param_0": prose(8), "mode": "fast"}))},
            {"role": "tool", "name": name, "recipient": "assistant", "channel": "commentary", "content": text(prose(90))},
            {"role": "assistant", "channel": "final", "content": text(prose(60))},
        ]
    return {"messages": messages[:size]}


def completion(encoding, r, words):
    """A completion with 400 tokens of analysis, a call of 80 and an answer of 600."""
    def tokens(n):
        start = r.randrange(len(words) - n)
        return encoding.encode(" ".join(words[start:start + n]), disallowed_special=())[:n]

    def special(s):
        return encoding.encode(s, allowed_special="all")

    return [*special("<|channel|>analysis<|message|>"), *tokens(400),
            *special("<|end|><|start|>assistant<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>"), *tokens(80),
            *special("<|call|><|start|>assistant<|channel|>final<|message|>"), *tokens(600), *special("<|return|>")]


def main(corpus, out):
    corpus, out = pathlib.Path(corpus), pathlib.Path(out)
    out.mkdir(parents=True, exist_ok=True)
    encoding = openai_harmony.load_harmony_encoding("HarmonyGptOss")
    header = encoding.encode("<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|><|call|>", allowed_special="all")
    start = encoding.encode("<|start|>assistant", allowed_special="all")
    for part in range(2):
        words = re.findall(r"\S+", (corpus / f"prose.{part}").read_text(encoding="utf-8"))
        r = random.Random(part)

        def prose(n):
            start = r.randrange(len(words) - n)
            return " ".join(words[start:start + n])

        for size in (10, 100, 1000):
            (out / f"conversation_{size}.{part}").write_text(json.dumps(conversation(prose, size)), encoding="utf-8")
        completions = [completion(encoding, r, words) for _ in range(COMPLETIONS)]
        (out / f"completions.{part}").write_text(json.dumps(completions), encoding="utf-8")
        (out / f"headers.{part}").write_text(json.dumps([header + (start + header) * HEADERS]), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
