"""anthropic: tools that the client runs, the search for tools, tools that come and go, effort in
band, thinking that is checked, and compaction, with the SDK's own types."""

import os

import anthropic
from anthropic.types import CompactionContentMismatchError, ServerToolUseBlock, ToolReferenceUnresolvedError, ToolSearchToolResultBlock, ToolUseBlock
from anthropic.types.beta.beta_browser_member_name import BETA_BROWSER_MEMBER_NAME_VALUES
from anthropic.types.beta.beta_computer_member_name import BETA_COMPUTER_MEMBER_NAME_VALUES
from anthropic.types.beta import BetaCompactionBlock, BetaToolSearchToolResultBlock

MODEL = os.environ["MODEL"]
client = anthropic.Anthropic(max_retries=0, base_url=os.environ["ANTHROPIC_BASE_URL"])
COMMON = {"model": MODEL, "max_tokens": 2000}


def user(text):
    return {"role": "user", "content": text}


def both(api, **request):
    """The message of a request, whole and streamed."""
    request = COMMON | request
    whole = api.messages.create(**request)
    with api.messages.stream(**request) as events:
        for _ in events:
            pass
        streamed = events.get_final_message()
    assert [b.type for b in whole.content] == [b.type for b in streamed.content], (whole, streamed)
    return whole, streamed


def refused(**request):
    try:
        client.beta.messages.create(**{**COMMON, **request})
    except anthropic.BadRequestError as e:
        return e
    raise AssertionError(request)


# Tools that the client runs have no parameters in the request.
for kind, name, call in [
    ("bash_20250124", "bash", '{"command":"ls"}'),
    ("text_editor_20250728", "str_replace_based_edit_tool", '{"command":"view","path":"/a"}'),
    ("memory_20250818", "memory", '{"command":"view","path":"/memories"}'),
    ("computer_20251124", "computer", '{"action":"screenshot"}'),
]:
    tool = {"type": kind, "name": name}
    if name == "computer":
        tool |= {"display_width_px": 800, "display_height_px": 600}
    asked = [user(f"NOTHINK\nCALL functions.{name} {call}")]
    for message in both(client.beta, messages=asked, tools=[tool]):
        [block] = message.content
        assert message.stop_reason == "tool_use" and block.name == name and isinstance(block.input, dict), message
        history = [*asked, {"role": "assistant", "content": message.content}]
        history.append({"role": "user", "content": [{"type": "tool_result", "tool_use_id": block.id, "content": "ok"}, {"type": "text", "text": "NOTHINK\nSAY done"}]})
        later = client.beta.messages.create(**COMMON, messages=history, tools=[tool])
        assert later.content[0].text == "done", later

# The members of toolsets are those of the SDK: an unknown one is refused.
for family, members in ("computer", BETA_COMPUTER_MEMBER_NAME_VALUES), ("browser", BETA_BROWSER_MEMBER_NAME_VALUES):
    tool = {"type": f"{family}_toolset_20260801", "configs": {name: {"enabled": True} for name in members}}
    space = {"browser": "browser_"}.get(family, family)
    for message in both(client.beta, messages=[user(f'NOTHINK\nCALL {space}.screenshot {{}}')], tools=[tool]):
        [block] = message.content
        assert (block.name, block.toolset_name) == ("screenshot", family), message
    refused(messages=[user("Hi")], tools=[{**tool, "configs": {"fly": {"enabled": True}}}])

# The filter searches for deferred tools, and the model calls what it finds.
WEATHER = {"name": "get_weather", "description": "The weather of a city.", "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}}, "defer_loading": True}
MAIL = {"name": "send_mail", "description": "Sends a mail.", "input_schema": {"type": "object"}, "defer_loading": True}
for kind, arguments in [("bm25", '{"query":"weather"}'), ("regex", '{"pattern":"weather"}')]:
    search = {"type": f"tool_search_tool_{kind}_20251119", "name": f"tool_search_tool_{kind}"}
    tools = [search, WEATHER, MAIL]
    asked = [user(f'NOTHINK\nCALL functions.tool_search_tool_{kind} {arguments}\nCALL functions.get_weather {{"city":"Rome"}}')]
    for message in both(client, messages=asked, tools=tools):
        call, found, use = message.content
        assert isinstance(call, ServerToolUseBlock) and call.name == search["name"], call
        assert isinstance(found, ToolSearchToolResultBlock) and found.tool_use_id == call.id, found
        assert [r.tool_name for r in found.content.tool_references] == ["get_weather"], found
        assert isinstance(use, ToolUseBlock) and use.name == "get_weather" and use.input == {"city": "Rome"}, use
        history = [*asked, {"role": "assistant", "content": message.content}]
        history.append({"role": "user", "content": [{"type": "tool_result", "tool_use_id": use.id, "content": "sunny"}, {"type": "text", "text": "NOTHINK\nSAY sunny"}]})
        assert client.messages.create(**COMMON, messages=history, tools=tools).content[0].text == "sunny"
    beta = client.beta.messages.create(**COMMON, messages=asked, tools=tools)
    assert isinstance(beta.content[1], BetaToolSearchToolResultBlock), beta

# Tools come and go in mid-conversation.
PLAIN = {"name": "get_weather", "input_schema": {"type": "object"}}
INLINE = {"type": "tool_definition", "definition": {"name": "look", "input_schema": {"type": "object"}}}
added = [user("Hi"), {"role": "system", "content": [{"type": "tool_addition", "tool": INLINE}]}, user("NOTHINK\nCALL functions.look {}")]
for message in both(client.beta, messages=added, tools=[PLAIN]):
    assert message.content[0].name == "look", message
gone = [user("Hi"), {"role": "system", "content": [{"type": "tool_removal", "tool": {"type": "tool_reference", "name": "get_weather"}}]}, user("NOTHINK\nCALL functions.get_weather {}\nSAY it is gone")]
for message in both(client.beta, messages=gone, tools=[PLAIN]):
    assert [b.type for b in message.content] == ["text"] and message.stop_reason == "end_turn", message
error = refused(messages=[user("Hi"), {"role": "system", "content": [{"type": "tool_removal", "tool": {"type": "tool_reference", "name": "x"}}]}], tools=[PLAIN])
assert isinstance(error, ToolReferenceUnresolvedError), error
refused(messages=[{"role": "user", "content": [{"type": "tool_addition", "tool": INLINE}]}])

# Effort in band, and texts that the next message of the user clears.
settings = [user("Hi"), {"role": "system", "output_config": {"effort": "low"}}, {"role": "system", "content": "Hush.", "clear_at": "next_user_message"}, user("NOTHINK\nSAY yes")]
assert client.beta.messages.create(**COMMON, messages=settings).content[0].text == "yes"

# Thinking is checked.
for thinking in [{"type": "enabled"}, {"type": "enabled", "budget_tokens": 100}, {"type": "enabled", "budget_tokens": 2000}, {"type": "adaptive", "display": "all"}]:
    assert "thinking." in refused(messages=[user("Hi")], thinking=thinking).message

# A compaction is a block alone, and the next request has it in the place of its messages.
talk = [user("My name is Ann."), {"role": "assistant", "content": "Hello."}, user("NOTHINK\nSAY a summary")]
for message in both(client.beta, messages=talk, compaction={"type": "summarize", "instructions": "NOTHINK\nSAY the user is Ann"}):
    [block] = message.content
    assert isinstance(block, BetaCompactionBlock) and block.content == "the user is Ann", block
    assert block.signature and block.tool_changes == [] and message.stop_reason == "compaction", message
    block = block.to_dict()
    later = client.beta.messages.create(**COMMON, messages=[{"role": "assistant", "content": [block]}, user("NOTHINK\nSAY hello Ann")])
    assert later.content[0].text == "hello Ann", later
    error = refused(messages=[{"role": "assistant", "content": [{**block, "content": "other"}]}, user("Hi")])
    assert isinstance(error, CompactionContentMismatchError), error

# Without an output the engine has the prompt in its cache, and the message is empty.
for message in both(client, messages=[user("Hi")], max_tokens=0):
    assert message.content == [] and message.stop_reason == "max_tokens" and message.usage.output_tokens == 0, message
