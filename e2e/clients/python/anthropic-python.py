"""anthropic: the plain SDK with its helpers."""

import inspect
import json
import os

import anthropic
from pydantic import BaseModel, Field

from matrix import CASES, MODEL, capability, fault, main

client = anthropic.Anthropic(max_retries=0, base_url=os.environ["ANTHROPIC_BASE_URL"])
messages = client.messages
COMMON = {"model": MODEL, "max_tokens": 2000}

if hasattr(anthropic.types, "ThinkingConfigAdaptiveParam"):
    THINKING = {"thinking": {"type": "adaptive", "display": "summarized"}}
elif "thinking" in inspect.signature(messages.create).parameters:
    THINKING = {"thinking": {"type": "enabled", "budget_tokens": 1024}}
else:
    THINKING = {}


class Weather(BaseModel):
    city: str
    celsius: int = Field(description=CASES.structured.description)


def user(text):
    return {"role": "user", "content": text}


def text_of(reply):
    return "".join(block.text for block in reply.content if block.type == "text")


@capability
def text():
    if hasattr(client, "models"):
        assert any(known.id == MODEL and known.type == "model" for known in client.models.list())
    return {"text": text_of(messages.create(**COMMON, messages=[user(CASES.text.prompt)]))}


@capability
def stream():
    with messages.stream(**COMMON, messages=[user(CASES.stream.prompt)]) as events:
        pieces = list(events.text_stream)
        assert text_of(events.get_final_message()) == "".join(pieces)
    return {"text": "".join(pieces), "pieces": len(pieces)}


@capability
def tools():
    cities = []
    asked = {**COMMON, **THINKING, "messages": [user(CASES.tools.prompt)]}
    if not hasattr(client.beta.messages, "tool_runner"):
        return called(asked)

    @anthropic.beta_tool
    def get_weather(city: str) -> str:
        """The weather of a city."""
        cities.append(city)
        return CASES.tools.result

    runner = client.beta.messages.tool_runner(**asked, tools=[get_weather])
    return {"text": text_of(runner.until_done()), "city": cities[0]}


def called(asked):
    """Runs a tool by hand."""
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    asked["tools"] = [{"name": "get_weather", "input_schema": schema}]
    reply = messages.create(**asked)
    call = reply.content[-1]
    result = {"type": "tool_result", "tool_use_id": call.id, "content": CASES.tools.result}
    asked["messages"] += [{"role": "assistant", "content": reply.content}, {"role": "user", "content": [result]}]
    return {"text": text_of(messages.create(**asked)), "city": call.input["city"]}


@capability
def structured():
    place = messages if hasattr(messages, "parse") else client.beta.messages
    if not hasattr(place, "parse"):
        return forced()
    reply = place.parse(**COMMON, messages=[user(CASES.structured.prompt)], output_format=Weather)
    return {"value": reply.parsed_output.model_dump()}


def forced():
    """Gets an object as the arguments of a tool that must be called."""
    tools = [{"name": "weather", "input_schema": Weather.model_json_schema()}]
    prompt = "CALL weather " + json.dumps(vars(CASES.structured.value))
    choice = {"type": "tool", "name": "weather"}
    reply = messages.create(**COMMON, messages=[user(prompt)], tools=tools, tool_choice=choice)
    return {"value": reply.content[-1].input}


if THINKING:

    @capability
    def reasoning():
        reply = messages.create(**COMMON, **THINKING, messages=[user(CASES.reasoning.prompt)])
        assert reply.content[0].signature
        return {"reasoning": reply.content[0].thinking, "text": text_of(reply)}


@capability
def usage():
    with messages.stream(**COMMON, messages=[user(CASES.usage.prompt)]) as events:
        used = events.get_final_message().usage
    total = used.input_tokens + used.cache_read_input_tokens + used.cache_creation_input_tokens
    counter = messages if hasattr(messages, "count_tokens") else client.beta.messages
    assert counter.count_tokens(model=MODEL, messages=[user(CASES.usage.prompt)]).input_tokens == total
    return {"input": total, "output": used.output_tokens}


@fault
def fails(case):
    request = {"model": case.model, "max_tokens": 500, "messages": [user(case.prompt)]}
    if not case.stream:
        return messages.create(**request)
    return list(messages.create(**request, stream=True))


@capability
def state():
    history = [user(CASES.state.first)]
    history.append({"role": "assistant", "content": messages.create(**COMMON, messages=history).content})
    return {"history": text_of(messages.create(**COMMON, messages=[*history, user(CASES.state.second)]))}


main()
