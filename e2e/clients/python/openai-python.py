"""openai-python: the plain SDK."""

import json

import openai
from pydantic import BaseModel

from matrix import API, CASES, MODEL, capability, fault, main
from report import PROMPT, Report, same

client = openai.OpenAI(max_retries=0)
chat = client.chat.completions
# Before version 1.92 the helpers of Chat Completions are here.
helpers = chat if hasattr(chat, "parse") else client.beta.chat.completions


class Place(BaseModel):
    city: str


def message(text):
    return {"role": "user", "content": text}


def parts(prompt, kind):
    """Returns a message with the lines of a prompt as parts."""
    return message([{"type": kind, "text": line} for line in prompt.split("\n")])


if API == "chat":
    GET_WEATHER = openai.pydantic_function_tool(Place, name="get_weather")

    @capability
    def text():
        reply = chat.create(model=MODEL, messages=[parts(CASES.text.prompt, "text")])
        return {"text": reply.choices[0].message.content}

    @capability
    def stream():
        pieces = []
        with helpers.stream(model=MODEL, messages=[message(CASES.stream.prompt)]) as events:
            for event in events:
                if event.type == "content.delta":
                    pieces.append(event.delta)
            assert events.get_final_completion().choices[0].message.content == "".join(pieces)
        return {"text": "".join(pieces), "pieces": len(pieces)}

    @capability
    def tools():
        messages = [message(CASES.tools.prompt)]
        first = helpers.parse(model=MODEL, messages=messages, tools=[GET_WEATHER]).choices[0].message
        (call,) = first.tool_calls
        messages += [first, {"role": "tool", "tool_call_id": call.id, "content": CASES.tools.result}]
        reply = chat.create(model=MODEL, messages=messages, tools=[GET_WEATHER])
        return {"city": call.function.parsed_arguments.city, "text": reply.choices[0].message.content}

    @capability
    def structured():
        reply = helpers.parse(model=MODEL, messages=[message(PROMPT)], response_format=Report)
        return same(reply.choices[0].message.parsed)

    @capability
    def reasoning():
        reply = chat.create(model=MODEL, messages=[message(CASES.reasoning.prompt)]).choices[0].message
        return {"reasoning": reply.reasoning, "text": reply.content}

    @capability
    def usage():
        more = {"stream": True, "stream_options": {"include_usage": True}}
        *_, last = chat.create(model=MODEL, messages=[message(CASES.usage.prompt)], **more)
        return {"input": last.usage.prompt_tokens, "output": last.usage.completion_tokens}

    @fault
    def fails(case):
        reply = chat.create(model=case.model, messages=[message(case.prompt)], stream=case.stream)
        return list(reply) if case.stream else reply

    @capability
    def state():
        messages = [message(CASES.state.first)]
        messages.append(chat.create(model=MODEL, messages=messages).choices[0].message)
        reply = chat.create(model=MODEL, messages=[*messages, message(CASES.state.second)])
        return {"history": reply.choices[0].message.content}

elif API == "responses":
    responses = client.responses
    GET_WEATHER = openai.pydantic_function_tool(Place, name="get_weather")["function"] | {"type": "function"}

    @capability
    def text():
        return {"text": responses.create(model=MODEL, input=[parts(CASES.text.prompt, "input_text")]).output_text}

    @capability
    def stream():
        pieces = []
        with responses.stream(model=MODEL, input=CASES.stream.prompt) as events:
            for event in events:
                if event.type == "response.output_text.delta":
                    pieces.append(event.delta)
            assert events.get_final_response().output_text == "".join(pieces)
        return {"text": "".join(pieces), "pieces": len(pieces)}

    @capability
    def tools():
        items = [message(CASES.tools.prompt)]
        first = responses.create(model=MODEL, input=items, tools=[GET_WEATHER], store=False)
        call = first.output[-1]
        items += first.output
        items.append({"type": "function_call_output", "call_id": call.call_id, "output": CASES.tools.result})
        reply = responses.create(model=MODEL, input=items, tools=[GET_WEATHER], store=False)
        return {"city": json.loads(call.arguments)["city"], "text": reply.output_text}

    @capability
    def structured():
        reply = responses.parse(model=MODEL, input=PROMPT, text_format=Report)
        return same(reply.output_parsed)

    @capability
    def reasoning():
        reply = responses.create(model=MODEL, input=CASES.reasoning.prompt, reasoning={"summary": "auto"})
        return {"reasoning": reply.output[0].summary[0].text, "text": reply.output_text}

    @capability
    def usage():
        used = responses.create(model=MODEL, input=CASES.usage.prompt).usage
        return {"input": used.input_tokens, "output": used.output_tokens}

    @fault
    def fails(case):
        if not case.stream:
            return responses.create(model=case.model, input=case.prompt)
        *_, last = responses.create(model=case.model, input=case.prompt, stream=True)
        # The SDK has no exception for response.failed: the event is its last.
        return failed(last)

    def failed(event):
        class Failed(Exception):
            pass

        Failed.__name__ = event.type
        raise Failed(event.response.error.message)

    @capability
    def state():
        first = [message(CASES.state.first)]
        reply = responses.create(model=MODEL, input=first)
        sent = responses.create(model=MODEL, input=[*first, *reply.output, message(CASES.state.second)], store=False)
        chained = responses.create(model=MODEL, input=CASES.state.second, previous_response_id=reply.id)
        ways = {"history": sent.output_text, "previous_response_id": chained.output_text}
        if hasattr(client, "conversations"):
            conversation = client.conversations.create().id
            responses.create(model=MODEL, input=first, conversation=conversation)
            joined = responses.create(model=MODEL, input=CASES.state.second, conversation=conversation)
            ways["conversation"] = joined.output_text
        return ways

else:
    GET_WEATHER = openai.pydantic_function_tool(Place, name="get_weather")["function"] | {"type": "function"}
    connection = client.responses.connect().enter()

    def make(prompt, name=MODEL, **more):
        """Makes a response that is not stored. Returns it and the deltas of its text."""
        connection.response.create(model=name, input=prompt, store=False, **more)
        pieces = []
        for event in connection:
            if event.type == "response.output_text.delta":
                pieces.append(event.delta)
            elif event.type == "error":
                raise failed(f"error {event.status}", event.error.message)
            elif event.type == "response.failed":
                raise failed(event.type, event.response.error.message)
            elif event.type == "response.completed":
                return event.response, pieces

    def failed(name, message):
        """Returns an exception with a name: the SDK has none for what comes as an event."""
        return type(name, (Exception,), {})(message)

    @capability
    def text():
        return {"text": make([parts(CASES.text.prompt, "input_text")])[0].output_text}

    @capability
    def stream():
        reply, pieces = make(CASES.stream.prompt)
        assert reply.output_text == "".join(pieces)
        return {"text": reply.output_text, "pieces": len(pieces)}

    @capability
    def tools():
        first, _ = make(CASES.tools.prompt, tools=[GET_WEATHER])
        call = first.output[-1]
        output = {"type": "function_call_output", "call_id": call.call_id, "output": CASES.tools.result}
        reply, _ = make([output], tools=[GET_WEATHER], previous_response_id=first.id)
        return {"city": json.loads(call.arguments)["city"], "text": reply.output_text}

    @capability
    def structured():
        schema = openai.pydantic_function_tool(Report)["function"]["parameters"]
        format = {"type": "json_schema", "name": "report", "schema": schema, "strict": True}
        return same(Report.model_validate_json(make(PROMPT, text={"format": format})[0].output_text))

    @capability
    def reasoning():
        reply, _ = make(CASES.reasoning.prompt, reasoning={"summary": "auto"})
        return {"reasoning": reply.output[0].summary[0].text, "text": reply.output_text}

    @capability
    def usage():
        used = make(CASES.usage.prompt)[0].usage
        return {"input": used.input_tokens, "output": used.output_tokens}

    @fault
    def fails(case):
        return make(case.prompt, case.model)

    @capability
    def state():
        first = [message(CASES.state.first)]
        reply, _ = make(first)
        sent, _ = make([*first, *reply.output, message(CASES.state.second)])
        chained, _ = make(CASES.state.second, previous_response_id=reply.id)
        return {"history": sent.output_text, "previous_response_id": chained.output_text}


main()
