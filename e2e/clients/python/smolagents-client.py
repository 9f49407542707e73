"""smolagents with OpenAIModel."""

import json

from pydantic import BaseModel, Field
from smolagents import ChatMessage, MessageRole, OpenAIModel, ToolCallingAgent, tool

from matrix import BASE_URL, CASES, MODEL, capability, fault, main


def model(name=MODEL):
    # Its own retry of a 429 waits a minute.
    return OpenAIModel(name, api_base=BASE_URL, api_key="none", retry=False, client_kwargs={"max_retries": 0})


def user(text):
    return ChatMessage(role=MessageRole.USER, content=text)


class Weather(BaseModel):
    city: str
    celsius: int = Field(description=CASES.structured.description)


@capability
def text():
    return {"text": model().generate([user(CASES.text.prompt)]).content}


@capability
def stream():
    pieces = [delta.content for delta in model().generate_stream([user(CASES.stream.prompt)]) if delta.content]
    return {"text": "".join(pieces), "pieces": len(pieces)}


@capability
def tools():
    # The agent sends a tool's result as a user message, which is the next script.
    cities = []

    @tool
    def get_weather(city: str) -> str:
        """Gets the weather.

        Args:
            city: where
        """
        cities.append(city)
        return f"{CASES.tools.result}\nCALL final_answer {json.dumps({'answer': CASES.tools.text})}"

    agent = ToolCallingAgent(tools=[get_weather], model=model(), verbosity_level=0, max_steps=4)
    return {"text": agent.run(CASES.tools.prompt), "city": cities[0]}


@capability
def structured():
    schema = {"name": "weather", "schema": Weather.model_json_schema(), "strict": True}
    response_format = {"type": "json_schema", "json_schema": schema}
    reply = model().generate([user(CASES.structured.prompt)], response_format=response_format)
    return {"value": json.loads(reply.content)}


@capability
def usage():
    used = model().generate([user(CASES.usage.prompt)]).token_usage
    return {"input": used.input_tokens, "output": used.output_tokens}


@fault
def fails(case):
    if case.stream:
        return list(model(case.model).generate_stream([user(case.prompt)]))
    return model(case.model).generate([user(case.prompt)])


@capability
def state():
    first = user(CASES.state.first)
    reply = model().generate([first])
    reply = ChatMessage(role=MessageRole.ASSISTANT, content=reply.content)
    return {"history": model().generate([first, reply, user(CASES.state.second)]).content}


main()
