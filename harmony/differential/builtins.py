"""Writes filter/turn/testdata/builtins.jsonl: conversations with built-in tools,
and the prompts that openai-harmony renders for them.

A Go test compares the filter's prompts with it, so that it needs neither Python
nor a network. Run this script in the environment that run.sh creates:

    TIKTOKEN_ENCODINGS_BASE=.differential/vocabulary .differential/venv/bin/python builtins.py
"""

import json
import pathlib

from openai_harmony import (
    Author, Conversation, DeveloperContent, HarmonyEncodingName, Message, RenderConversationConfig, Role, SystemContent, ToolDescription,
    ToolNamespaceConfig, load_harmony_encoding,
)

OUT = pathlib.Path(__file__).parent.parent.parent / "filter" / "turn" / "testdata" / "builtins.jsonl"
encoding = load_harmony_encoding(HarmonyEncodingName.HARMONY_GPT_OSS)

CONTAINER = ToolNamespaceConfig(name="container", description="Utilities for a container.", tools=[ToolDescription.new(
    "exec", "Runs a command.", parameters={"type": "object", "properties": {"cmd": {"type": "array", "items": {"type": "string"}}}, "required": ["cmd"]})])


def item(kind, text, **more):
    return {"kind": kind, "text": text, **more}


def call(id, space, name, text, builtin=True):
    return item("call", text, id=id, namespace=space, name=name, builtin=builtin)


def result(id, text):
    return item("result", text, id=id)


USER, WHY = item("user", "Who won?"), item("reasoning", "I need to look.")
SEARCH = [call("1", "browser", "search", '{"query":"who won","topn":5}'), result("1", "[0] who won\n**viewing lines [0 - 1] of 1**\n\nL0: \nL1: 【0†Us†us.example】")]
CODE = [call("2", "python", "", 'print("1 <|end|>\\n" * 2)\n'), result("2", "1 <|end|>\n1 <|end|>\n\n")]
EXEC = [call("3", "container", "exec", '{"cmd":["ls"]}'), result("3", "")]
FUNCTION = [call("4", "", "f", "{}", False), result("4", "done")]
ANSWER = item("answer", "We did.【0†L1】")
ALL = ["browser", "python", "container"]

CASES = [  # name, built-in tools, whether the function f is declared, items
    ("browser", ["browser"], False, [USER]),
    ("python", ["python"], False, [USER]),
    ("container", ["container"], False, [USER]),
    ("all and a function", ALL, True, [USER]),
    ("unfinished turn", ALL, True, [USER, WHY, *SEARCH, item("reasoning", "Now count."), *CODE, *EXEC, item("preamble", "One moment."), *FUNCTION]),
    ("parallel", ALL, False, [USER, WHY, SEARCH[0], CODE[0], CODE[1], SEARCH[1]]),
    ("no code", ["python"], False, [USER, call("2", "python", "", ""), result("2", "")]),
    ("answered", ALL, True, [USER, WHY, *SEARCH, *CODE, *FUNCTION, ANSWER, item("user", "Sure?")]),
    ("answered, and a turn that is not", ALL, True, [USER, WHY, *SEARCH, ANSWER, item("user", "Sure?"), WHY, *CODE]),
    ("answered twice", ["browser"], False, [USER, WHY, *SEARCH, ANSWER, item("user", "Sure?"), WHY, *CODE, item("answer", "Yes."), item("user", "Really?")]),
    ("no longer offered", [], False, [USER, WHY, *SEARCH, *CODE, *EXEC]),
]


def system(builtins):
    content = SystemContent.new().with_conversation_start_date("2025-06-28")
    for name in builtins:
        content = {"browser": content.with_browser_tool, "python": content.with_python_tool, "container": lambda: content.with_tools(CONTAINER)}[name]()
    return Message.from_role_and_content(Role.SYSTEM, content)


def messages(items):
    calls = {i["id"]: i for i in items if i["kind"] == "call"}
    for i in items:
        kind, text = i["kind"], i["text"]
        if kind == "user":
            yield Message.from_role_and_content(Role.USER, text)
        elif kind in ("reasoning", "preamble", "answer"):
            channel = {"reasoning": "analysis", "preamble": "commentary", "answer": "final"}[kind]
            yield Message.from_role_and_content(Role.ASSISTANT, text).with_channel(channel)
        else:
            c = calls[i["id"]]
            to = ".".join(part for part in (c["namespace"] or "functions", c["name"]) if part)
            channel, content_type = ("analysis", "code") if c["builtin"] else ("commentary", "json")
            if kind == "call":
                yield Message.from_role_and_content(Role.ASSISTANT, text).with_channel(channel).with_recipient(to).with_content_type(content_type)
            else:
                yield Message.from_author_and_content(Author(role=Role.TOOL, name=to), text).with_channel(channel).with_recipient("assistant")


def rendered(builtins, function, items):
    msgs = [system(builtins)]
    if function:
        msgs.append(Message.from_role_and_content(Role.DEVELOPER, DeveloperContent.new().with_function_tools([ToolDescription.new("f", "A function.")])))
    msgs += messages(items)
    finals = [i for i, m in enumerate(msgs) if m.channel == "final"]

    def render(list, drop):
        return encoding.render_conversation_for_completion(Conversation.from_messages(list), Role.ASSISTANT, RenderConversationConfig(auto_drop_analysis=drop))

    # The filter drops analysis before the last answer. The reference drops it
    # before the first, and only if that is not followed by an unfinished turn:
    # without one, and with one answer at most, both are the same.
    tokens = render([m for i, m in enumerate(msgs) if m.channel != "analysis" or not finals or i > finals[-1]], False)
    spoken = [m.channel for m in msgs if m.author.role == Role.ASSISTANT]
    same = not finals or len(finals) == 1 and spoken[-1] == "final"
    if same != (tokens == render(msgs, True)):
        raise SystemExit("the reference drops other messages")
    return tokens


def main():
    OUT.parent.mkdir(parents=True, exist_ok=True)
    with open(OUT, "w") as f:
        for name, builtins, function, items in CASES:
            row = {"name": name, "builtins": builtins, "function": function, "items": items, "tokens": rendered(builtins, function, items)}
            f.write(json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n")


main()
