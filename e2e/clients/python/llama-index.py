"""LlamaIndex with OpenAILike, and its Responses form."""

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.base.llms.types import ChatMessage, ThinkingBlock
from llama_index.core.memory import ChatMemoryBuffer
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai_like import OpenAILike, OpenAILikeResponses
from pydantic import BaseModel, Field

from matrix import API, BASE_URL, CASES, MODEL, capability, fault, main

KIND = OpenAILike if API == "chat" else OpenAILikeResponses


def llm(name=MODEL, **more):
    return KIND(
        model=name,
        api_base=BASE_URL,
        api_key="none",
        max_retries=0,
        is_chat_model=True,
        is_function_calling_model=True,
        should_use_structured_outputs=True,
        context_window=128000,
        **more,
    )


def user(text):
    return ChatMessage(role="user", content=text)


class Weather(BaseModel):
    """A report."""

    city: str
    celsius: int = Field(description=CASES.structured.description)


@capability
def text():
    return {"text": llm().chat([user(CASES.text.prompt)]).message.content}


@capability
def stream():
    pieces = [chunk.delta for chunk in llm().stream_chat([user(CASES.stream.prompt)]) if chunk.delta]
    return {"text": "".join(pieces), "pieces": len(pieces)}


@capability
async def tools():
    cities = []

    def get_weather(city: str) -> str:
        """Gets the weather."""
        cities.append(city)
        return CASES.tools.result

    agent = FunctionAgent(llm=llm(), tools=[FunctionTool.from_defaults(get_weather)], streaming=False)
    return {"text": str(await agent.run(CASES.tools.prompt)), "city": cities[0]}


@capability
def structured():
    reply = llm().as_structured_llm(Weather).chat([user(CASES.structured.prompt)])
    return {"value": reply.raw.model_dump()}


@capability
def reasoning():
    more = {} if API == "chat" else {"reasoning_options": {"summary": "auto"}}
    reply = llm(**more).chat([user(CASES.reasoning.prompt)]).message
    (thought,) = [block.content for block in reply.blocks if isinstance(block, ThinkingBlock)]
    return {"reasoning": thought, "text": reply.content}


@capability
def usage():
    reply = llm().chat([user(CASES.usage.prompt)])
    if API == "chat":
        return {"input": reply.raw.usage.prompt_tokens, "output": reply.raw.usage.completion_tokens}
    return {"input": reply.raw.usage.input_tokens, "output": reply.raw.usage.output_tokens}


@fault
def fails(case):
    if case.stream:
        return list(llm(case.model).stream_chat([user(case.prompt)]))
    return llm(case.model).chat([user(case.prompt)])


@capability
async def state():
    first = llm().chat([user(CASES.state.first)])
    ways = {"history": llm().chat([user(CASES.state.first), first.message, user(CASES.state.second)]).message.content}
    agent = FunctionAgent(llm=llm(), tools=[], streaming=False)
    memory = ChatMemoryBuffer.from_defaults(tokenizer_fn=str.split)  # the default is downloaded
    await agent.run(CASES.state.first, memory=memory)
    ways["memory"] = str(await agent.run(CASES.state.second, memory=memory))
    return ways


main()
