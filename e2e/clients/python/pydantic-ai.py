"""Pydantic AI."""

import openai
from pydantic_ai import Agent, NativeOutput, ThinkingPart
from pydantic_ai import exceptions
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider

from matrix import API, CASES, MODEL, capability, fault, main, name_of
from report import PROMPT, Report, same

provider = OpenAIProvider(openai_client=openai.AsyncOpenAI(max_retries=0))


def agent(name=MODEL, **more):
    if API == "chat":
        return Agent(OpenAIChatModel(name, provider=provider), **more)
    settings = {"openai_reasoning_summary": "auto"}
    return Agent(OpenAIResponsesModel(name, provider=provider, settings=settings), **more)


@capability
async def text():
    return {"text": (await agent().run(CASES.text.prompt.split("\n"))).output}


@capability
async def stream():
    async with agent().run_stream(CASES.stream.prompt) as result:
        pieces = [piece async for piece in result.stream_text(delta=True, debounce_by=None)]
    return {"text": "".join(pieces), "pieces": len(pieces)}


@capability
async def tools():
    cities = []
    asked = agent()

    @asked.tool_plain
    def get_weather(city: str) -> str:
        """Gets the weather."""
        cities.append(city)
        return CASES.tools.result

    return {"text": (await asked.run(CASES.tools.prompt)).output, "city": cities[0]}


@capability
async def structured():
    native = await agent(output_type=NativeOutput(Report)).run(PROMPT)
    tool = await agent(output_type=Report).run(PROMPT.replace("JSON ", "CALL final_result "))
    assert tool.output == native.output, (tool.output, native.output)
    return same(native.output)


@capability
async def reasoning():
    result = await agent().run(CASES.reasoning.prompt)
    (thought,) = [part for part in result.response.parts if isinstance(part, ThinkingPart)]
    return {"reasoning": thought.content, "text": result.output}


@capability
async def usage():
    used = (await agent().run(CASES.usage.prompt)).usage
    used = used() if callable(used) else used
    return {"input": used.input_tokens, "output": used.output_tokens}


async def fails(case):
    if not case.stream:
        return await agent(case.model).run(case.prompt)
    async with agent(case.model).run_stream(case.prompt) as result:
        async for _ in result.stream_text():
            pass


def public(error):
    """Returns the most special type of an error that users can name."""
    kinds = [kind for kind in type(error).__mro__ if getattr(exceptions, kind.__name__, None) is kind]
    kinds = [kind for kind in kinds if kind.__name__ != "ModelHTTPError" and not kind.__name__.startswith("_")]
    return kinds[0].__name__ if kinds else name_of(error)


fault(fails, public)


@capability
async def state():
    first = await agent().run(CASES.state.first)
    sent = await agent().run(CASES.state.second, message_history=first.all_messages())
    ways = {"history": sent.output}
    if API == "responses":
        settings = {"openai_previous_response_id": first.response.provider_response_id}
        ways["previous_response_id"] = (await agent().run(CASES.state.second, model_settings=settings)).output
    return ways


main()
