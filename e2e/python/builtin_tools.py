"""Tests built-in tools that the filter runs, with openai-python."""

import os

from openai import OpenAI
from openai.types.responses import ResponseCodeInterpreterToolCall, ResponseFunctionWebSearch

MODEL = os.environ["MODEL"]
client = OpenAI(max_retries=0)


def searches():
    script = 'NOTHINK\nCALL browser.search {"query":"cats"}\nCALL browser.open {"id":0}\nSAY They are 3 € 【1†L0】.'
    for tool in ("web_search", "web_search_preview"):
        with client.responses.stream(model=MODEL, input=script, tools=[{"type": tool}]) as stream:
            events = [e.type for e in stream]
            r = stream.get_final_response()
        first, second, message = r.output
        assert isinstance(first, ResponseFunctionWebSearch) and first.action.type == "search" and first.action.query == "cats", first
        assert second.action.type == "open_page" and second.action.url == "https://shop.example/", second
        part = message.content[0]
        cited = part.annotations[0]
        assert cited.type == "url_citation" and part.text[cited.start_index : cited.end_index] == "【1†L0】", part
        assert cited.url == "https://shop.example/" and cited.title == "The shop", cited
        steps = [e for e in events if e.startswith("response.web_search_call.")]
        assert steps == ["response.web_search_call." + s for s in ("in_progress", "searching", "completed")] * 2, steps
        assert "response.output_text.annotation.added" in events, events


def runs_code():
    tool = {"type": "code_interpreter", "container": {"type": "auto"}}
    include = ["code_interpreter_call.outputs"]
    first = client.responses.create(model=MODEL, input="NOTHINK\nCALL python x = 42\nSAY Set.", tools=[tool], include=include)
    assert isinstance(first.output[0], ResponseCodeInterpreterToolCall) and first.output[0].code == "x = 42", first.output
    with client.responses.stream(
        model=MODEL, input="NOTHINK\nCALL python x\nSAY Shown.", tools=[tool], include=include, previous_response_id=first.id
    ) as stream:
        events = list(stream)
        r = stream.get_final_response()
    assert r.output[0].outputs[0].logs == "42" and r.output[0].container_id == first.output[0].container_id, r.output
    code = "".join(e.delta for e in events if e.type == "response.code_interpreter_call_code.delta")
    assert code == "x", code
    steps = [e.type for e in events if e.type.startswith("response.code_interpreter_call")]
    assert steps[0].endswith(".in_progress") and [s.rsplit(".", 1)[1] for s in steps[-3:]] == ["done", "interpreting", "completed"], steps


searches()
runs_code()
