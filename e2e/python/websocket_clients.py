"""Talks to the Responses API over WebSocket with openai-python, and with the WebSocket model of
the Agents SDK, whose tools run between two responses of one connection.

The last user message is the script of the simulated engine.
"""

import asyncio
import os

import openai
from agents import Agent, Runner, function_tool, set_tracing_disabled
from agents.models.openai_responses import OpenAIResponsesWSModel

MODEL = os.environ["MODEL"]
set_tracing_disabled(True)


def check(got, want, what):
    assert got == want, f"{what}: got {got!r}, want {want!r}"


def until(connection, *kinds):
    """Returns the next event of one of the kinds, and the text of the deltas before."""
    text = ""
    for event in connection:
        if event.type in kinds:
            return event, text
        assert event.type != "error", event
        text += getattr(event, "delta", None) or ""
    raise AssertionError(f"the connection ended before {kinds}")


def conversation():
    client = openai.OpenAI(max_retries=0)
    with client.responses.connect() as connection:
        connection.response.create(model=MODEL, input="NOTHINK\nSAY one", store=False, stream_id="main")
        done, text = until(connection, "response.completed")
        check((text, done.stream_id, done.response.store), ("one", "main", False), "the first response")
        connection.response.create(
            model=MODEL, input="NOTHINK\nSAY two", store=False, stream_id="main", previous_response_id=done.response.id
        )
        following, text = until(connection, "response.completed")
        check((text, following.response.previous_response_id), ("two", done.response.id), "the next response")

        connection.response.create(model=MODEL, input="x", previous_response_id="resp_none")
        error, _ = until(connection, "error")
        check((error.status, error.error.code), (400, "previous_response_not_found"), "the error")


def steering():
    client = openai.OpenAI(max_retries=0)
    with client.responses.connect() as connection:
        connection.response.create(
            model=MODEL, store=False, input="NOTHINK\nSAY one two three four five six seven\nSIM delay=50ms"
        )
        created, _ = until(connection, "response.created")
        until(connection, "response.output_text.delta")
        connection.response.steer(previous_response_id=created.response.id, input="NOTHINK\nSAY steered")
        accepted, _ = until(connection, "response.steer.accepted")
        check(accepted.steer.previous_response_id, created.response.id, "what is steered")
        cut, _ = until(connection, "response.incomplete")
        check(cut.response.incomplete_details.reason, "steered", "the reason")
        done, text = until(connection, "response.completed")
        check((text, done.response.previous_response_id), ("steered", created.response.id), "the successor")


async def agents():
    called = []

    @function_tool
    def get_weather(city: str) -> str:
        """The weather of a city."""
        called.append(city)
        return "sunny"

    model = OpenAIResponsesWSModel(model=MODEL, openai_client=openai.AsyncOpenAI(max_retries=0))
    agent = Agent(name="weather", model=model, tools=[get_weather])
    result = await Runner.run(agent, 'NOTHINK\nCALL get_weather {"city":"Paris"}\nSAY It is sunny.')
    check(called, ["Paris"], "the calls of the tool")
    assert result.final_output, result
    streamed = Runner.run_streamed(agent, "NOTHINK\nSAY streamed")
    async for _ in streamed.stream_events():
        pass
    check(streamed.final_output, "streamed", "the streamed answer")
    await model.close()


conversation()
steering()
asyncio.run(agents())
print("ok")
