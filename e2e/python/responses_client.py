"""openai-python against the data plane: the Responses API.

The simulated engine does what the last user message says. The replies pass
through a proxy that checks every event and object; here is what a program gets
of them.
"""

import os

import openai

MODEL = os.environ["MODEL"]
client = openai.OpenAI(max_retries=0)

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS = [
    {"type": "function", "name": "get_weather", "parameters": CITY, "strict": False},
    {"type": "custom", "name": "shell", "description": "Runs a command."},
    {
        "type": "namespace",
        "name": "places",
        "description": "Places of the world.",
        "tools": [{"type": "function", "name": "find", "parameters": CITY}],
    },
]


def check(got, want, what):
    assert got == want, f"{what}: got {got!r}, want {want!r}"


def ask(question, **more):
    return client.responses.create(model=MODEL, input=question, **more)


def streamed(question, **more):
    """The response of a stream's last event; its text has come in deltas."""
    text, response = "", None
    for event in ask(question, stream=True, **more):
        if event.type == "response.output_text.delta":
            text += event.delta
        if event.type in ("response.completed", "response.incomplete", "response.failed"):
            response = event.response
    check(text, response.output_text, "deltas")
    return response


def answers(create):
    reply = create("THINK Let me see.\nSAY Grüße, 世界 👋🏽!")
    check(reply.output_text, "Grüße, 世界 👋🏽!", "text")
    check([item.type for item in reply.output], ["reasoning", "message"], "items")
    check(reply.output[0].content[0].text, "Let me see.", "reasoning")
    check(reply.output[1].phase, "final_answer", "phase")
    check(reply.status, "completed", "status")
    assert reply.usage.output_tokens_details.reasoning_tokens > 0, reply.usage
    reply = create("NOTHINK\nWORDS 100", max_output_tokens=20)
    check((reply.status, reply.incomplete_details.reason), ("incomplete", "max_output_tokens"), "cut")


def helper_streams():
    with client.responses.stream(model=MODEL, input="THINK Hm.\nSAY a b c") as stream:
        text = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
        check(text, "a b c", "deltas")
        check(stream.get_final_response().output_text, "a b c", "final response")


def call_of(reply):
    call = reply.output[-1]
    if call.type == "custom_tool_call":
        return call, (call.name, call.input), "custom_tool_call_output"
    name = f"{call.namespace}.{call.name}" if call.namespace else call.name
    return call, (name, call.arguments), "function_call_output"


def tools(create):
    for line, name, value in (
        ('get_weather {"city":"Bern"}', "get_weather", '{"city":"Bern"}'),
        ('shell {"input":"ls -l"}', "shell", "ls -l"),
        ('places.find {"city":"Rom"}', "places.find", '{"city":"Rom"}'),
    ):
        question = {"role": "user", "content": f"THINK A tool.\nCALL {line}\nSAY done"}
        first = create([question], tools=TOOLS)
        call, called, output_type = call_of(first)
        check(called, (name, value), "call")
        output = {"type": output_type, "call_id": call.call_id, "output": "sun"}
        chained = create([output], tools=TOOLS, previous_response_id=first.id)
        check(chained.output_text, "done", "answer to the chain")
        whole = create([question, *first.output, output], tools=TOOLS, store=False)
        check(whole.output_text, "done", "answer to the history")


def instructions_change():
    first = ask("SAY one", instructions="Be brief.")
    second = ask("ECHO_SYSTEM", instructions="Be long.", previous_response_id=first.id)
    check(second.output_text, "SYSTEM:Be long.", "instructions")
    last = ask("LAST_ASSISTANT", previous_response_id=second.id)
    check(last.output_text, "LAST:SYSTEM:Be long.", "last answer")


def stored():
    first = ask([{"role": "user", "content": text} for text in ("one", "two", "NOTHINK\nSAY three")])
    reply = ask("four", previous_response_id=first.id)
    check(client.responses.retrieve(reply.id).model_dump(), reply.model_dump(), "retrieved")
    items = client.responses.input_items.list(reply.id, limit=2, order="asc")
    texts = [item.content[0].text for item in items]
    check(texts, ["one", "two", "NOTHINK\nSAY three", "three", "four"], "input items")
    raises(openai.BadRequestError, lambda: client.responses.cancel(reply.id))
    client.responses.delete(reply.id)
    raises(openai.NotFoundError, lambda: client.responses.retrieve(reply.id))
    raises(openai.NotFoundError, lambda: ask("five", previous_response_id=reply.id))
    reply = ask("SAY one", store=False)
    raises(openai.NotFoundError, lambda: client.responses.retrieve(reply.id))


def counts():
    request = {"model": MODEL, "input": "Grüße", "instructions": "Be brief.", "tools": TOOLS}
    counted = client.responses.input_tokens.count(**request).input_tokens
    check(counted, client.responses.create(**request).usage.input_tokens, "input tokens")


def encrypted(create):
    question = {"role": "user", "content": 'THINK Sealed.\nCALL get_weather {"city":"Bern"}\nSAY sunny'}
    more = {"tools": TOOLS, "store": False, "include": ["reasoning.encrypted_content"]}
    first = create([question], **more)
    reasoning, call = first.output
    assert reasoning.encrypted_content, first
    sealed = {
        "type": "reasoning",
        "id": reasoning.id,
        "summary": [],
        "encrypted_content": reasoning.encrypted_content,
    }
    output = {"type": "function_call_output", "call_id": call.call_id, "output": "sun"}
    check(create([question, sealed, call, output], **more).output_text, "sunny", "answer")
    sealed["encrypted_content"] = "x" + sealed["encrypted_content"]
    e = raises(openai.BadRequestError, lambda: create([question, sealed, call, output], **more))
    check(e.param, "input[1].encrypted_content", "param")


def raises(error, call):
    try:
        call()
    except error as e:
        assert e.message, e
        return e
    raise AssertionError(f"no {error.__name__}")


def errors():
    check(raises(openai.BadRequestError, lambda: ask("hi", background=True)).param, "background", "param")
    raises(openai.NotFoundError, lambda: client.responses.create(model=MODEL + "-none", input="hi"))
    for status, error in (
        (400, openai.BadRequestError),
        (429, openai.RateLimitError),
        (503, openai.InternalServerError),
    ):
        for stream in (False, True):
            raises(error, lambda: ask(f"hi\nSIM status={status}", stream=stream))
    reply = streamed("NOTHINK\nWORDS 60\nSIM delay=10ms fault=error@30")
    check((reply.status, reply.error.code), ("failed", "server_error"), "an error in the stream")


for create in (ask, streamed):
    answers(create)
    tools(create)
    encrypted(create)
helper_streams()
instructions_change()
stored()
counts()
errors()
