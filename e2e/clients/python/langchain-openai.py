"""LangChain with langchain-openai."""

from langchain.agents import create_agent
from langchain_core.messages import HumanMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from pydantic import BaseModel, Field

from matrix import API, CASES, MODEL, capability, fault, main


def model(name=MODEL, **more):
    if API == "responses":
        more = {"use_responses_api": True, "output_version": "responses/v1", **more}
    return ChatOpenAI(model=name, max_retries=0, **more)


class Weather(BaseModel):
    """A report."""

    city: str
    celsius: int = Field(description=CASES.structured.description)


@capability
def text():
    return {"text": model().invoke(CASES.text.prompt).text}


@capability
def stream():
    pieces = [chunk.text for chunk in model().stream(CASES.stream.prompt) if chunk.text]
    return {"text": "".join(pieces), "pieces": len(pieces)}


@capability
def tools():
    cities = []

    @tool
    def get_weather(city: str) -> str:
        """Gets the weather."""
        cities.append(city)
        return CASES.tools.result

    agent = create_agent(model(), tools=[get_weather])
    reply = agent.invoke({"messages": [HumanMessage(CASES.tools.prompt)]})
    return {"city": cities[0], "text": reply["messages"][-1].text}


@capability
def structured():
    reply = model().with_structured_output(Weather, method="json_schema").invoke(CASES.structured.prompt)
    return {"value": reply.model_dump()}


@capability
def reasoning():
    more = {"reasoning": {"summary": "auto"}} if API == "responses" else {}
    reply = model(**more).invoke(CASES.reasoning.prompt)
    (thought,) = [block for block in reply.content_blocks if block["type"] == "reasoning"]
    return {"reasoning": thought["reasoning"], "text": reply.text}


@capability
def usage():
    used = model().invoke(CASES.usage.prompt).usage_metadata
    return {"input": used["input_tokens"], "output": used["output_tokens"]}


@fault
def fails(case):
    asked = model(case.model)
    return list(asked.stream(case.prompt)) if case.stream else asked.invoke(case.prompt)


@capability
def state():
    first = HumanMessage(CASES.state.first)
    reply = model().invoke([first])
    ways = {"history": model().invoke([first, reply, HumanMessage(CASES.state.second)]).text}
    agent = create_agent(model(), tools=[], checkpointer=InMemorySaver())
    thread = {"configurable": {"thread_id": "1"}}
    agent.invoke({"messages": [first]}, thread)
    ways["checkpoint"] = agent.invoke({"messages": [HumanMessage(CASES.state.second)]}, thread)["messages"][-1].text
    if API == "responses":
        previous = reply.response_metadata["id"]
        ways["previous_response_id"] = model().invoke(CASES.state.second, previous_response_id=previous).text
    return ways


main()
