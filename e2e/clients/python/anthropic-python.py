"""anthropic: the plain SDK with its helpers."""

import os

import anthropic
from pydantic import BaseModel, Field

from matrix import CASES, MODEL, capability, fault, main

client = anthropic.Anthropic(max_retries=0, base_url=os.environ["ANTHROPIC_BASE_URL"])
messages = client.messages
COMMON = {"model": MODEL, "max_tokens": 2000}
ADAPTIVE = {"type": "adaptive", "display": "summarized"}


class Weather(BaseModel):
    city: str
    celsius: int = Field(description=CASES.structured.description)


def user(text):
    return {"role": "user", "content": text}


def text_of(reply):
    return "".join(block.text for block in reply.content if block.type == "text")


@capability
def text():
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

    @anthropic.beta_tool
    def get_weather(city: str) -> str:
        """The weather of a city."""
        cities.append(city)
        return CASES.tools.result

    runner = client.beta.messages.tool_runner(
        **COMMON, thinking=ADAPTIVE, messages=[user(CASES.tools.prompt)], tools=[get_weather]
    )
    return {"text": text_of(runner.until_done()), "city": cities[0]}


@capability
def structured():
    reply = messages.parse(**COMMON, messages=[user(CASES.structured.prompt)], output_format=Weather)
    return {"value": reply.parsed_output.model_dump()}


@capability
def reasoning():
    reply = messages.create(**COMMON, thinking=ADAPTIVE, messages=[user(CASES.reasoning.prompt)])
    assert reply.content[0].signature
    return {"reasoning": reply.content[0].thinking, "text": text_of(reply)}


@capability
def usage():
    with messages.stream(**COMMON, messages=[user(CASES.usage.prompt)]) as events:
        used = events.get_final_message().usage
    read, written = used.cache_read_input_tokens, used.cache_creation_input_tokens
    total = used.input_tokens + read + written
    assert messages.count_tokens(model=MODEL, messages=[user(CASES.usage.prompt)]).input_tokens == total
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
