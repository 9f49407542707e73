"""Writes ../testdata/reference: fixed cases and the results of openai-harmony.

The Go tests compare with these files, so that they need neither Python nor a
network. Run this script in the environment that run.sh creates:

    TIKTOKEN_ENCODINGS_BASE=.differential/vocabulary .differential/venv/bin/python fixtures.py
"""

import json
import pathlib
import random

import cases
import openai_harmony
from openai_harmony.openai_harmony import PyStreamableParser, get_tool_namespace_config

OUT = pathlib.Path(__file__).parent.parent / "testdata" / "reference"
inner = openai_harmony.load_harmony_encoding("HarmonyGptOss")._inner
SPECIALS = {n: inner.encode(n, [n])[0] for n in inner.special_tokens()}


def encode(text):
    return inner.encode(text, None)


def ids(*parts):
    """Tokens of texts, special tokens by name, and ids."""
    out = []
    for p in parts:
        if isinstance(p, int):
            out.append(p)
        elif f"<|{p}|>" in SPECIALS:
            out.append(SPECIALS[f"<|{p}|>"])
        else:
            out += encode(p)
    return out


A = "assistant"
PARSER_CASES = [  # name, role, tokens
    ("plain", A, ids("channel", "final", "message", "Hi there", "return")),
    ("stop in an empty header", A, ids("return")),
    ("stop in a header of text", A, ids("I refuse", "return")),
    ("stop in a header with channel and text", A, ids("channel", "analysis", " hello  there\n you", "end")),
    ("stop in a header of invalid UTF-8", A, ids("a", 9552, "return", "message", "x", "end")),
    ("stop in a header of an unknown id", A, ids("a", 99999999, "return")),
    ("stop in a header with cut UTF-8", A, ids("a", 31446, "return")),
    ("stop in a header with an empty channel", A, ids("channel", "return", "final", "message", "x", "end")),
    ("stop in a header without role", None, ids("start", "assistant hello", "end", "start", "user", "message", "x", "end")),
    ("recipient twice", A, ids("channel", "commentary", " to=functions.f to=functions.a", "message", "{}", "call")),
    ("empty channel", A, ids("channel", "message", "x", "return")),
    ("start twice", A, ids("channel", "final", "message", "x", "end", "start", "start", "assistant", "channel", "final", "message", "y", "end")),
    ("stray token", A, ids("channel", "final", "message", "x", "end", "hello", "start", "assistant", "message", "y", "end")),
    ("stop twice", A, ids("channel", "final", "message", "x", "end", "return")),
    ("two channels", A, ids("channel", "analysis", "channel", "final", "message", "x", "end")),
    ("constrain without recipient", A, ids("channel", "final", " ", "constrain", "json", "message", "{}", "return")),
    ("constrain adjacent", A, ids("channel", "commentary", " to=functions.f", "constrain", "json", "message", "{}", "call")),
    ("constrain with a space", A, ids("channel", "commentary", " to=functions.f ", "constrain", " json", "message", "{}", "call")),
    ("recipient before channel", A, ids(" to=functions.f", "channel", "commentary", " json", "message", "{}", "call")),
    ("end of tokens in a header", A, ids("channel", "final")),
    ("end of tokens in content", A, ids("channel", "final", "message", "partial")),
    ("no tokens", A, []),
    ("no tokens, no role", None, []),
    ("special tokens in content", A, ids("channel", "final", "message", "a", "channel", "b", "start", "c", "message", "d", "end")),
    ("unknown role", None, ids("start", "bogus", "message", "x", "end", "start", "assistant", "message", "y", "end")),
    ("unknown role with recipient", None, ids("start", "functions.f to=assistant", "channel", "commentary", "message", "x", "end")),
    ("unknown role of two words", None, ids("start", "foo bar", "message", "x", "end")),
    ("recipient in place of the role", None, ids("start", "to=functions.f", "message", "x", "end")),
    ("role tool", None, ids("start", "tool", "message", "x", "end")),
    ("role repeated", A, ids("assistant", "channel", "final", "message", "x", "end")),
    ("other role than given", A, ids("user", "channel", "final", "message", "x", "end")),
    ("given role tool", "tool", ids(" to=assistant", "channel", "commentary", "message", "x", "end")),
    ("bare recipient", A, ids("channel", "commentary", " functions.f", "message", "x", "call")),
    ("bare recipient and type", A, ids("channel", "commentary", " functions.f code", "message", "x", "call")),
    ("channel with punctuation", A, ids("channel", "commentary?!", "message", "x", "end")),
    ("channel glued to recipient", A, ids("channel", "commentaryto=functions.f", "message", "x", "call")),
    ("empty header", A, ids("message", "x", "end")),
    ("empty header, no role", None, ids("start", "message", "x", "end")),
    ("header of spaces", A, ids("  ", "message", "x", "end")),
    ("empty content", A, ids("channel", "final", "message", "return")),
    ("name in the role", None, ids("start", "user:bob", "message", "x", "end")),
    ("no-break space in a header", A, ids("channel", "commentary\u00a0to=functions.f", "message", "x", "call")),
    ("ideographic space in a header", A, ids("channel", "commentary\u3000to=functions.f", "message", "x", "call")),
    ("endoftext in content", A, ids("channel", "final", "message", "x", "endoftext", "y", "return")),
    ("recipient spaced", A, ids("channel", "commentary", " to= functions.f", "message", "x", "call")),
    ("unknown id in a header", A, ids("channel", 99999999, "message", "x", "start", "assistant", "message", "y", "end")),
    ("unknown id in content", A, ids("message", "a", 31446, 99999999, "b", "end")),
    ("the last reserved token", A, ids("message", "a", 201088, "b", 201089, "c", "end")),
    ("cut UTF-8 in a header", A, ids("a", 31446, "message", "x", "end")),
    ("quoted leftovers", A, ids('a"b\\c \t\u0301e\u0301 \u200b \u00ad 中 \u2028x y z', "message", "x", "end")),
    ("invalid UTF-8 thrice", A, ids("message", 9552, 9552, 9552, "end")),
    ("invalid UTF-8, then text", A, ids("message", 9552, "XY", "end")),
    ("invalid UTF-8 mixed", A, ids("message", 9552, 9552, "X", 9552, "hello", "end")),
    ("emoji in parts", A, ids("message", 31446, 244, 28823, 102, 52622, 121, 2524, 112927, 222, "end")),
    ("surrogate bytes", A, ids("message", 169, 254, 222, "end")),
    ("overlong bytes", A, ids("message", 124, 222, "A", "end")),
    ("lone lead bytes", A, ids("message", 160, 160, 160, "end")),
    ("cut character at the end of tokens", A, ids("message", "a", 31446)),
    ("after an error", A, ids("channel", "final", " a b c", "message", "lost", "start", "channel", "final", "message", "ok", "end")),
]


def parse(name, role, strict, tokens):
    """Every step of a parser, including those after errors."""
    parser = PyStreamableParser(inner, role, strict)
    steps = []
    for t in [*tokens, None]:
        step = {}
        try:
            parser.process(t) if t is not None else parser.process_eos()
        except openai_harmony.HarmonyError as e:
            step["err"] = str(e)
        for key, value in (
            ("state", json.loads(parser.state)["state"]), ("delta", parser.last_content_delta), ("role", parser.current_role),
            ("channel", parser.current_channel), ("recipient", parser.current_recipient), ("type", parser.current_content_type),
        ):
            if value:
                step[key] = value
        steps.append(step)
    msgs = []
    for m in json.loads(parser.messages):
        content = m["content"] if isinstance(m["content"], str) else m["content"][0]["text"]
        msgs.append([m["role"], *(m.get(k) or "" for k in ("name", "channel", "recipient", "content_type")), content])
    return {"name": name, "role": role or "", "strict": strict, "t": tokens, "steps": steps, "msgs": msgs}


def params(schema):
    return {"messages": [{"role": "developer", "content": [{"type": "developer_content", "tools": {"functions": {
        "name": "functions", "tools": [{"name": "f", "description": "d", "parameters": schema}]}}}]}]}


def prop(schema):
    return params({"type": "object", "properties": {"a": schema}})


def msgs(*messages):
    return {"messages": list(messages)}


def text(role, content="x", **more):
    return {"role": role, "content": content, **more}


def final(t="f"):
    return text(A, t, channel="final")


def analysis(t="th"):
    return text(A, t, channel="analysis")


SYSTEM = {"type": "system_content", "model_identity": "You are ChatGPT, a large language model trained by OpenAI.", "reasoning_effort": "Medium",
          "conversation_start_date": "2025-06-28", "knowledge_cutoff": "2024-06", "channel_config": {"valid_channels": ["analysis", "commentary", "final"], "channel_required": True}}
BUILTIN = {n: get_tool_namespace_config(n) for n in ("browser", "python")}

RENDER_CASES = [  # name, conversation, whether the sound form is the same
    ("empty", msgs(), True),
    ("system", msgs({"role": "system", "content": [SYSTEM]}), True),
    ("built-in tools", msgs({"role": "system", "content": [SYSTEM | {"tools": BUILTIN}]}), True),
    ("empty system", msgs({"role": "system", "content": [{"type": "system_content"}]}), True),
    ("empty developer", msgs({"role": "developer", "content": [{"type": "developer_content"}]}), True),
    ("empty namespace", msgs({"role": "developer", "content": [{"type": "developer_content", "tools": {"functions": {"name": "functions", "tools": []}}}]}), True),
    ("functions note", msgs({"role": "system", "content": [SYSTEM]}, *params({"type": "object", "properties": {}})["messages"]), True),
    ("call in history", msgs(text("user"), text(A, "{}", channel="commentary", recipient="functions.f", content_type="json"),
                             text("tool", "r", name="functions.f", recipient="assistant", channel="commentary")), True),
    ("constrained call", msgs(text(A, "{}", channel="commentary", recipient="functions.f", content_type="<|constrain|>json")), True),
    ("constrain with nothing", msgs(text(A, "{}", content_type="<|constrain|>")), True),
    ("constrain twice", msgs(text(A, "a", content_type="<|constrain|>json<|end|>")), True),
    ("recipient all", msgs(text(A, channel="final", recipient="all")), True),
    ("user name", msgs(text("user", name="bob")), True),
    ("special tokens are text", msgs(text("user", "<|start|>a<|end|><|constrain|>"), text(A, "x", recipient="a<|end|>", channel="<|channel|>final")), True),
    ("two contents", msgs({"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}), True),
    ("last is final", msgs(text("user"), analysis(), text(A, "pre", channel="commentary"), final(), analysis("th2"), final("f2"), text("user")), False),
    ("last is analysis", msgs(text("user"), analysis(), final(), text("user"), analysis("th2")), False),
    ("no final", msgs(text("user"), analysis(), text(A, "{}", channel="commentary", recipient="functions.f")), True),
    ("tool analysis before final", msgs(analysis(), text("tool", "r", name="python", channel="analysis"), final()), True),
    ("nested object", prop({"type": "object", "properties": {"k": {"type": "number", "default": 1.5}, "m": {"type": "integer", "default": 1e22}}, "required": ["k"]}), True),
    ("nested object with description", prop({"type": "object", "description": "obj d", "properties": {"k": {"type": "number"}}}), False),
    ("top description", params({"type": "object", "description": "params", "properties": {}}), True),
    ("array of objects", prop({"type": "array", "items": {"type": "object", "description": "item", "properties": {"x": {"type": "string"}}}}), True),
    ("array of arrays", prop({"type": "array", "items": {"type": "array"}}), True),
    ("oneOf property", prop({"description": "d", "default": 20, "oneOf": [{"type": "string", "default": "q"}, {"type": "number", "description": "numbers too"}, {"type": "string", "enum": ["x", "y"], "default": "x"}]}), True),
    ("oneOf top", params({"oneOf": [{"type": "string", "description": "s"}, {"type": "number", "default": 3}]}), False),
    ("defaults", params({"type": "object", "properties": {n: {"type": "string", "default": d} for n, d in (
        ("a", False), ("b", ["x", 1, {"k": None}]), ("c", 1e-7), ("d", 1e21), ("e", None), ("f", 123456.789), ("g", 1e15), ("h", 1e16), ("i", 2**64), ("j", 0.00001), ("k", -0.0), ("l", "text"))}}), True),
    ("enum default", prop({"type": "string", "enum": ["x", "y"], "default": "x"}), True),
    ("comments", prop({"type": "string", "title": "T", "description": "D", "examples": ["e1", "e2"]}), True),
    ("nullable", prop({"type": "string", "nullable": True}), True),
    ("nullable enum", prop({"type": "string", "enum": ["x"], "nullable": True}), True),
    ("type list", prop({"type": ["integer", "null"]}), True),
    ("empty description", prop({"type": "string", "description": ""}), True),
    ("no parameters", params(None), True),
    ("empty schema", params({}), True),
    ("tool description of lines", msgs({"role": "developer", "content": [{"type": "developer_content", "instructions": "I", "tools": {"functions": {
        "name": "functions", "description": "n1\nn2\n", "tools": [{"name": "f", "description": "a\r\nb\n\nc\n"}]}}}]}), True),
    ("anyOf", prop({"anyOf": [{"type": "string"}, {"type": "null"}]}), False),
    ("references and constants", params({"type": "object", "properties": {"a": {"$ref": "#/x"}, "b": {"allOf": [{"type": "string"}]}, "c": {"const": 1}}}), False),
    ("integer enum", prop({"type": "integer", "enum": [1, 2]}), False),
    ("array of union", prop({"type": "array", "items": {"type": ["string", "integer"]}}), False),
    ("description of lines", prop({"type": "string", "description": "l1\nl2"}), False),
    ("odd property name", params({"type": "object", "properties": {"a-b c": {"type": "string"}}}), False),
    ("quote in default", prop({"type": "string", "default": 'q"z'}), False),
    ("null in enum", prop({"type": ["string", "null"], "enum": ["x", None]}), False),
]

REFUSED = [
    ("tool without name", msgs(text("tool"))),
    ("system content of a user", msgs({"role": "user", "content": [{"type": "system_content"}]})),
    ("developer content in system", msgs({"role": "system", "content": [{"type": "developer_content"}]})),
    ("unknown role", msgs(text("bot"))),
    ("unknown content", msgs({"role": "user", "content": [{"type": "image"}]})),
    ("unknown effort", msgs({"role": "system", "content": [{"type": "system_content", "reasoning_effort": "low"}]})),
    ("no messages", {}),
    ("no content", {"messages": [{"role": "user"}]}),
]


def render(name, conversation, sound):
    source = json.dumps(conversation)
    drop = {"auto_drop_analysis": True}
    return {
        "name": name, "conversation": conversation, "sound": sound,
        "t": inner.render_conversation(source, drop),
        "kept": inner.render_conversation(source, {"auto_drop_analysis": False}),
        "completion": inner.render_conversation_for_completion(source, A, drop),
        "training": inner.render_conversation_for_training(source, drop),
    }


def write(name, rows):
    OUT.mkdir(parents=True, exist_ok=True)
    with open(OUT / name, "w") as f:
        for row in rows:
            f.write(json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n")


def main():
    r = random.Random(4)
    parsed = [parse(n, role, strict, t) for n, role, t in PARSER_CASES for strict in (True, False)]
    for i in range(60):
        role = r.choice([A, A, A, None])
        parsed.append(parse(f"random {i}", role, r.random() < 0.7, cases.completion(r, encode, role)))
    write("parser.jsonl", parsed)

    rendered = [render(*c) for c in RENDER_CASES]
    while len(rendered) < len(RENDER_CASES) + 60:
        sound = r.random() < 0.5
        try:
            rendered.append(render(f"random {len(rendered)}", json.loads(cases.conversation(r, sound)), sound))
        except Exception:  # an error of the reference
            continue
    write("render.jsonl", rendered)

    for name, conversation in REFUSED:
        try:
            render(name, conversation, False)
        except Exception:
            continue
        raise SystemExit(f"the reference accepts: {name}")
    write("refused.jsonl", [{"name": n, "conversation": c} for n, c in REFUSED])


main()
