"""LiteLLM's Python SDK."""

import json
import os

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # otherwise it is downloaded

import litellm
from pydantic import BaseModel, Field

from matrix import API, BASE_URL, CASES, MODEL, capability, fault, main

litellm.suppress_debug_info = True
COMMON = {"api_base": BASE_URL, "api_key": "none", "max_retries": 0, "num_retries": 0}


class Weather(BaseModel):
    city: str
    celsius: int = Field(description=CASES.structured.description)


def message(text):
    return {"role": "user", "content": text}


def chat(messages, model=MODEL, **more):
    if isinstance(messages, str):
        messages = [message(messages)]
    return litellm.completion(model=f"openai/{model}", messages=messages, **COMMON, **more)


def respond(text, model=MODEL, **more):
    return litellm.responses(model=f"openai/{model}", input=text, **COMMON, **more)


def text_of(response):
    """Returns the text of a response, which has no output_text in versions of 2025."""
    return response.output[-1].content[0].text


PLACE = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}

if API == "chat":

    @capability
    def text():
        return {"text": chat(CASES.text.prompt).choices[0].message.content}

    @capability
    def stream():
        chunks = chat(CASES.stream.prompt, stream=True)
        pieces = [c.choices[0].delta.content for c in chunks if c.choices and c.choices[0].delta.content]
        return {"text": "".join(pieces), "pieces": len(pieces)}

    @capability
    def tools():
        offered = [{"type": "function", "function": {"name": "get_weather", "parameters": PLACE}}]
        messages = [message(CASES.tools.prompt)]
        first = chat(messages, tools=offered).choices[0].message
        (call,) = first.tool_calls
        messages += [first, {"role": "tool", "tool_call_id": call.id, "content": CASES.tools.result}]
        reply = chat(messages, tools=offered).choices[0].message
        return {"city": json.loads(call.function.arguments)["city"], "text": reply.content}

    @capability
    def structured():
        reply = chat(CASES.structured.prompt, response_format=Weather).choices[0].message
        return {"value": Weather.model_validate_json(reply.content).model_dump()}

    @capability
    def reasoning():
        reply = chat(CASES.reasoning.prompt).choices[0].message
        return {"reasoning": reply.reasoning_content, "text": reply.content}

    @capability
    def usage():
        used = chat(CASES.usage.prompt).usage
        return {"input": used.prompt_tokens, "output": used.completion_tokens}

    @fault
    def fails(case):
        reply = chat(case.prompt, model=case.model, stream=case.stream)
        return list(reply) if case.stream else reply

    @capability
    def state():
        messages = [message(CASES.state.first)]
        messages += [chat(messages).choices[0].message, message(CASES.state.second)]
        return {"history": chat(messages).choices[0].message.content}

else:

    @capability
    def text():
        return {"text": text_of(respond(CASES.text.prompt))}

    @capability
    def stream():
        events = respond(CASES.stream.prompt, stream=True)
        pieces = [event.delta for event in events if event.type == "response.output_text.delta"]
        return {"text": "".join(pieces), "pieces": len(pieces)}

    @capability
    def tools():
        offered = [{"type": "function", "name": "get_weather", "parameters": PLACE, "strict": False}]
        items = [message(CASES.tools.prompt)]
        first = respond(items, tools=offered, store=False)
        call = first.output[-1]
        items += [item.model_dump() for item in first.output]
        items.append({"type": "function_call_output", "call_id": call.call_id, "output": CASES.tools.result})
        reply = respond(items, tools=offered, store=False)
        return {"city": json.loads(call.arguments)["city"], "text": text_of(reply)}

    @capability
    def structured():
        reply = respond(CASES.structured.prompt, text_format=Weather)
        return {"value": Weather.model_validate_json(text_of(reply)).model_dump()}

    @capability
    def reasoning():
        reply = respond(CASES.reasoning.prompt, reasoning={"summary": "auto"})
        thought = reply.output[0].model_dump()["summary"][0]
        return {"reasoning": thought["text"], "text": text_of(reply)}

    @capability
    def usage():
        used = respond(CASES.usage.prompt).usage
        return {"input": used.input_tokens, "output": used.output_tokens}

    @fault
    def fails(case):
        reply = respond(case.prompt, model=case.model, stream=case.stream)
        return list(reply) if case.stream else reply

    @capability
    def state():
        first = respond([message(CASES.state.first)])
        items = [message(CASES.state.first), *(item.model_dump() for item in first.output)]
        sent = respond([*items, message(CASES.state.second)], store=False)
        chained = respond(CASES.state.second, previous_response_id=first.id)
        return {"history": text_of(sent), "previous_response_id": text_of(chained)}


main()
