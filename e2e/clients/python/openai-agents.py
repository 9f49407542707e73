"""The OpenAI Agents SDK for Python."""

import functools

import agents
import openai
from agents.models.openai_responses import OpenAIResponsesWSModel
from openai.types.responses import ResponseTextDeltaEvent
from openai.types.shared import Reasoning
from pydantic import BaseModel, Field

from matrix import API, CASES, MODEL, capability, fault, main

agents.set_tracing_disabled(True)
client = openai.AsyncOpenAI(max_retries=0)


MODELS = {
    "chat": agents.OpenAIChatCompletionsModel,
    "responses": agents.OpenAIResponsesModel,
    "websocket": OpenAIResponsesWSModel,
}


@functools.cache
def model(name):
    return MODELS[API](model=name, openai_client=client)


def agent(name=MODEL, **more):
    settings = agents.ModelSettings(reasoning=Reasoning(summary="auto"), include_usage=True)
    return agents.Agent(name="Weather", model=model(name), model_settings=settings, **more)


async def run(text, **more):
    return await agents.Runner.run(agent(), text, **more)


class Weather(BaseModel):
    city: str
    celsius: int = Field(description=CASES.structured.description)


@capability
async def text():
    return {"text": (await run(CASES.text.prompt)).final_output}


@capability
async def stream():
    pieces = []
    result = agents.Runner.run_streamed(agent(), CASES.stream.prompt)
    async for event in result.stream_events():
        if event.type == "raw_response_event" and isinstance(event.data, ResponseTextDeltaEvent):
            pieces.append(event.data.delta)
    assert result.final_output == "".join(pieces)
    return {"text": "".join(pieces), "pieces": len(pieces)}


@capability
async def tools():
    cities = []

    @agents.function_tool
    def get_weather(city: str) -> str:
        """Gets the weather."""
        cities.append(city)
        return CASES.tools.result

    result = await agents.Runner.run(agent(tools=[get_weather]), CASES.tools.prompt)
    return {"city": cities[0], "text": result.final_output}


@capability
async def structured():
    result = await agents.Runner.run(agent(output_type=Weather), CASES.structured.prompt)
    return {"value": result.final_output.model_dump()}


@capability
async def reasoning():
    result = await run(CASES.reasoning.prompt)
    (thought,) = [item.raw_item for item in result.new_items if item.type == "reasoning_item"]
    return {"reasoning": thought.summary[0].text, "text": result.final_output}


@capability
async def usage():
    used = (await run(CASES.usage.prompt)).context_wrapper.usage
    return {"input": used.input_tokens, "output": used.output_tokens}


@fault
async def fails(case):
    if not case.stream:
        return await agents.Runner.run(agent(case.model), case.prompt)
    async for _ in agents.Runner.run_streamed(agent(case.model), case.prompt).stream_events():
        pass


@capability
async def state():
    first = await run(CASES.state.first)
    again = first.to_input_list() + [{"role": "user", "content": CASES.state.second}]
    session = agents.SQLiteSession("matrix")
    await run(CASES.state.first, session=session)
    ways = {
        "history": (await run(again)).final_output,
        "session": (await run(CASES.state.second, session=session)).final_output,
    }
    if API != "chat":
        chained = await run(CASES.state.second, previous_response_id=first.last_response_id)
        conversation = agents.OpenAIConversationsSession(openai_client=client)
        await run(CASES.state.first, session=conversation)
        ways["previous_response_id"] = chained.final_output
        ways["conversation"] = (await run(CASES.state.second, session=conversation)).final_output
    return ways


main()
