"""anthropic: the tools that the filter runs, with the SDK's own types, over two requests."""

import os

import anthropic
from anthropic.types import CodeExecutionToolResultBlock, ServerToolUseBlock, WebSearchToolResultBlock
from anthropic.types.beta import BetaMCPToolResultBlock, BetaMCPToolUseBlock

MODEL = os.environ["MODEL"]
client = anthropic.Anthropic(max_retries=0, base_url=os.environ["ANTHROPIC_BASE_URL"])
TOOLS = [
    {"type": "web_search_20250305", "name": "web_search"},
    {"type": "code_execution_20250825", "name": "code_execution"},
]
PROMPT = 'THINK a plan\nCALL browser.search {"query":"cats"}\nCALL python x = 4\nCALL python x\nSAY It is 4.'


def types(blocks, *expected):
    assert [block.type for block in blocks] == list(expected), blocks


def check(message):
    search, page, first, _, second, result, _ = [b for b in message.content if b.type != "thinking"]
    assert isinstance(search, ServerToolUseBlock) and search.name == "web_search" and search.input == {"query": "cats"}
    assert isinstance(page, WebSearchToolResultBlock) and page.tool_use_id == search.id
    assert page.content[0].title and page.content[0].encrypted_content
    assert first.name == "code_execution" and second.input == {"code": "x"}
    assert isinstance(result, CodeExecutionToolResultBlock) and result.content.stdout == "4"
    assert message.container.id and message.container.expires_at.year > 2000
    assert message.usage.server_tool_use.web_search_requests == 1
    assert message.stop_reason == "end_turn"


asked = [{"role": "user", "content": PROMPT}]
options = {"model": MODEL, "max_tokens": 2000, "tools": TOOLS, "thinking": {"type": "adaptive"}}
whole = client.messages.create(messages=asked, **options)
check(whole)
with client.messages.stream(messages=asked, **options) as events:
    for _ in events:
        pass
    streamed = events.get_final_message()
check(streamed)
assert [b.type for b in whole.content] == [b.type for b in streamed.content]

for message in whole, streamed:  # the session of the code goes on with the container
    history = [*asked, {"role": "assistant", "content": message.content}, {"role": "user", "content": "NOTHINK\nCALL python x\nSAY yes"}]
    later = client.messages.create(messages=history, container=message.container.id, **options)
    types(later.content, "server_tool_use", "code_execution_tool_result", "text")
    assert later.content[1].content.stdout == "4", later
    assert later.container.id == message.container.id

servers = [{"type": "url", "name": "docs", "url": os.environ["MCP_URL"]}]
for tools in [], [{"type": "mcp_toolset", "mcp_server_name": "docs", "configs": {"delete-all": {"enabled": False}}}]:
    asked = [{"role": "user", "content": 'NOTHINK\nCALL docs.search {"q":"ü"}\nSAY found'}]
    with client.beta.messages.stream(
        model=MODEL, max_tokens=2000, messages=asked, mcp_servers=servers, tools=tools, betas=["mcp-client-2025-11-20"]
    ) as events:
        message = events.get_final_message()
    call, result, text = message.content
    assert isinstance(call, BetaMCPToolUseBlock) and call.server_name == "docs" and call.input == {"q": "ü"}, call
    assert isinstance(result, BetaMCPToolResultBlock) and result.content[0].text == "found ü" and not result.is_error
    assert result.tool_use_id == call.id and text.text == "found"
    history = [*asked, {"role": "assistant", "content": message.content}, {"role": "user", "content": "NOTHINK\nSAY yes"}]
    later = client.beta.messages.create(
        model=MODEL, max_tokens=2000, messages=history, mcp_servers=servers, tools=tools, betas=["mcp-client-2025-11-20"]
    )
    types(later.content, "text")

# Deferred tools of a server, which the filter's search finds. The SDK sends its blocks back.
later = [
    {"type": "mcp_toolset", "mcp_server_name": "docs", "default_config": {"defer_loading": True}},
    {"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"},
]
options = {"model": MODEL, "max_tokens": 2000, "mcp_servers": servers, "tools": later, "betas": ["mcp-client-2025-11-20"]}
asked = [{"role": "user", "content": 'NOTHINK\nCALL functions.tool_search_tool_bm25 {"query":"search"}\nCALL docs.search {"q":"ü"}\nSAY found'}]
with client.beta.messages.stream(messages=asked, **options) as events:
    message = events.get_final_message()
types(message.content, "server_tool_use", "tool_search_tool_result", "mcp_tool_use", "mcp_tool_result", "text")
assert "search" in [r.tool_name for r in message.content[1].content.tool_references], message
assert message.content[3].content[0].text == "found ü", message
history = [*asked, {"role": "assistant", "content": message.content}, {"role": "user", "content": "NOTHINK\nSAY yes"}]
types(client.beta.messages.create(messages=history, **options).content, "text")
