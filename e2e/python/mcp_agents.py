"""Tests MCP tools that the filter runs, with openai-python and the OpenAI Agents SDK."""

import asyncio
import os

from agents import Agent, HostedMCPTool, Runner, set_tracing_disabled
from agents.items import MCPApprovalRequestItem, MCPListToolsItem, ToolCallItem
from openai import OpenAI
from openai.types.responses.response_output_item import McpCall, McpListTools

MODEL = os.environ["MODEL"]
client = OpenAI(max_retries=0)
docs = {"type": "mcp", "server_label": "docs", "require_approval": "never"}
CALL = 'NOTHINK\nCALL docs.search {"q":"one"}'


def types(response):
    return [item.type for item in response.output]


def whole():
    r = client.responses.create(model=MODEL, input=CALL, tools=[docs])
    listed, call, message = r.output
    assert isinstance(listed, McpListTools) and "search" in [t.name for t in listed.tools], listed
    assert isinstance(call, McpCall) and call.output == "found one" and call.error is None and call.status == "completed", call
    assert r.output_text == "RESULT: found one", message
    again = client.responses.create(model=MODEL, input=CALL, tools=[docs], previous_response_id=r.id)
    assert types(again) == ["mcp_call", "message"], again.output
    r = client.responses.create(model=MODEL, input="NOTHINK\nCALL docs.delete-all {}", tools=[docs])
    error = r.output[1].error
    assert r.output[1].status == "failed" and error.type == "mcp_tool_execution_error", r.output
    assert error.content == [{"type": "text", "text": "It is forbidden."}], error


def streamed():
    with client.responses.stream(model=MODEL, input=CALL, tools=[docs]) as stream:
        events = [e.type for e in stream]
        r = stream.get_final_response()
    assert types(r) == ["mcp_list_tools", "mcp_call", "message"], r.output
    want = ["response.mcp_list_tools.in_progress", "response.mcp_list_tools.completed", "response.mcp_call.in_progress",
            "response.mcp_call_arguments.done", "response.mcp_call.completed"]
    assert [e for e in events if e in want] == want, events


def approved():
    tool = dict(docs, require_approval="always")
    for approve in (True, False):
        r = client.responses.create(model=MODEL, input=CALL, tools=[tool])
        request = r.output[-1]
        assert request.type == "mcp_approval_request" and request.arguments == '{"q":"one"}', r.output
        verdict = {"type": "mcp_approval_response", "approval_request_id": request.id, "approve": approve}
        r = client.responses.create(model=MODEL, input=[verdict], tools=[tool], previous_response_id=r.id)
        assert types(r) == ["mcp_call", "message"], r.output
        assert (r.output[0].output == "found one") == approve and r.output[0].approval_request_id == request.id, r.output


async def agents():
    agent = Agent(name="a", model=MODEL, tools=[HostedMCPTool(tool_config=docs)])
    for run in (Runner.run, run_streamed):
        result = await run(agent, CALL)
        assert result.final_output == "RESULT: found one", result.final_output
        items = result.new_items
        assert any(isinstance(i, MCPListToolsItem) for i in items) and any(isinstance(i, ToolCallItem) for i in items), items
        more = await run(agent, result.to_input_list() + [{"role": "user", "content": "NOTHINK\nSAY more"}])
        assert more.final_output == "more", more.final_output
    asked = []

    def decide(approve):
        def on_approval_request(request):
            asked.append(request.data.name)
            return {"approve": approve} if approve else {"approve": False, "reason": "not today"}
        return on_approval_request

    for approve in (True, False):
        tool = HostedMCPTool(tool_config=dict(docs, require_approval="always"), on_approval_request=decide(approve))
        careful = Agent(name="b", model=MODEL, tools=[tool])
        for run in (Runner.run, run_streamed):
            result = await run(careful, CALL)
            assert any(isinstance(i, MCPApprovalRequestItem) for i in result.new_items), result.new_items
            assert ("found one" in result.final_output) == approve, result.final_output
            assert approve or "not today" in result.final_output, result.final_output
    assert asked == ["search"] * 4, asked


async def run_streamed(agent, text):
    result = Runner.run_streamed(agent, text)
    async for _ in result.stream_events():
        pass
    return result


set_tracing_disabled(True)
whole()
streamed()
approved()
asyncio.run(agents())
