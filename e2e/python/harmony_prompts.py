"""Compares the prompts of a response's model calls with those of openai-harmony.

Standard input has {"prompts": [...], "tools": [{"name", "description", "parameters"}...],
"input", "thought"}. In the conversation the model reasons, calls docs.search with
"one", reasons again, and calls docs.search with "two".
"""

import json
import re
import sys

from openai_harmony import (
    Author, Conversation, DeveloperContent, HarmonyEncodingName, Message, Role, SystemContent,
    ToolDescription, ToolNamespaceConfig, load_harmony_encoding,
)

given = json.load(sys.stdin)
encoding = load_harmony_encoding(HarmonyEncodingName.HARMONY_GPT_OSS)
date = re.search(r"Current date: (\S+)", given["prompts"][0])[1]
tools = ToolNamespaceConfig(name="docs", description=None, tools=[
    ToolDescription.new(t["name"], t["description"], parameters=t["parameters"]) for t in given["tools"]
])


def call(q):
    return [
        Message.from_role_and_content(Role.ASSISTANT, '{"q":"%s"}' % q)
        .with_channel("commentary").with_recipient("docs.search").with_content_type("json"),
        Message.from_author_and_content(Author.new(Role.TOOL, "docs.search"), "found " + q)
        .with_channel("commentary").with_recipient("assistant"),
    ]


turns = [
    [
        Message.from_role_and_content(Role.SYSTEM, SystemContent.new().with_conversation_start_date(date)),
        Message.from_role_and_content(Role.DEVELOPER, DeveloperContent.new().with_tools(tools)),
        Message.from_role_and_content(Role.USER, given["input"]),
    ],
    [Message.from_role_and_content(Role.ASSISTANT, given["thought"]).with_channel("analysis")] + call("one"),
    [Message.from_role_and_content(Role.ASSISTANT, given["thought"]).with_channel("analysis")] + call("two"),
]
messages = []
assert len(given["prompts"]) == len(turns), given["prompts"]
for turn, prompt in zip(turns, given["prompts"]):
    messages += turn
    tokens = encoding.render_conversation_for_completion(Conversation.from_messages(messages), Role.ASSISTANT)
    want = encoding.decode_utf8(tokens)
    assert prompt == want, f"the prompt is\n{prompt}\nwant\n{want}"
