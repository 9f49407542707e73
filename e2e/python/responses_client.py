"""Tests the Responses API with openai-python.

The last user message is the script of the simulated engine. Replies pass through
a proxy that checks every event and object; this client checks what a program
reads from them.
"""

import os
import time

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
    """Returns the response of a stream's last event and checks that the deltas join to its text."""
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
    check((reply.status, reply.incomplete_details.reason), ("incomplete", "max_output_tokens"), "truncated")


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


def parallel_tools(create):
    calls = [f'to=functions.get_weather <constrain>json<message>{{"city":"{city}"}}' for city in ("Bern", "Rom")]
    several = "<end><start>assistant<channel>commentary ".join(calls)
    first = create(f"@@<channel>commentary {several}<call>@@<channel>final<message>dry<return>@@", tools=TOOLS)
    check([call.arguments for call in first.output], ['{"city":"Bern"}', '{"city":"Rom"}'], "calls")
    outputs = [
        {"type": "function_call_output", "call_id": call.call_id, "output": "dry"} for call in reversed(first.output)
    ]
    reply = create(outputs, tools=TOOLS, previous_response_id=first.id)
    check(reply.status, "completed", "status")
    raises(
        openai.BadRequestError,
        lambda: create(outputs[1:], tools=TOOLS, previous_response_id=first.id),
    )


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
    raises(openai.BadRequestError, lambda: ask("five", previous_response_id=reply.id))
    reply = ask("SAY one", store=False)
    raises(openai.NotFoundError, lambda: client.responses.retrieve(reply.id))


def references():
    first = ask("NOTHINK\nSAY blue")
    reference = {"type": "item_reference", "id": first.output[0].id}
    reply = ask([{"role": "user", "content": "one"}, reference, {"role": "user", "content": "LAST_ASSISTANT"}])
    check(reply.output_text, "LAST:blue", "text")
    reference["id"] = "msg_none"
    raises(openai.NotFoundError, lambda: ask([reference]))


def conversations():
    made = client.conversations.create(
        metadata={"topic": "a"}, items=[{"role": "user", "content": "REMEMBER blue"}]
    )
    first = ask("THINK Hm.\nSAY noted", conversation=made.id)
    check(first.conversation.id, made.id, "conversation")
    check(streamed("RECALL", conversation={"id": made.id}).output_text, "RECALL:blue", "text")
    items = client.conversations.items
    added = items.create(made.id, items=[{"role": "user", "content": "REMEMBER red"}]).data[0]
    check(items.retrieve(added.id, conversation_id=made.id).content[0].text, "REMEMBER red", "item")
    roles = [getattr(item, "role", item.type) for item in items.list(made.id, order="asc", limit=3)]
    turn = ["user", "reasoning", "assistant"]
    check(roles, ["user", *turn, *turn, "user"], "items")
    check(ask("RECALL", conversation=made.id).output_text, "RECALL:blue,red", "text")
    items.delete(added.id, conversation_id=made.id)
    check(ask("RECALL", conversation=made.id).output_text, "RECALL:blue", "text")
    changed = client.conversations.update(made.id, metadata={"topic": "b"})
    check(changed.metadata, {"topic": "b"}, "metadata")
    check(client.conversations.retrieve(made.id), changed, "conversation")
    check(client.conversations.delete(made.id).deleted, True, "deleted")
    raises(openai.NotFoundError, lambda: client.conversations.retrieve(made.id))
    raises(openai.NotFoundError, lambda: ask("hi", conversation=made.id))


def compaction():
    question = {"role": "user", "content": "REMEMBER blue"}
    compacted = client.responses.compact(model=MODEL, input=[question, {"role": "assistant", "content": "Noted."}])
    check([item.type for item in compacted.output], ["message", "compaction"], "items")
    reply = ask([*compacted.output, {"role": "user", "content": "RECALL"}])
    check(reply.output_text, "RECALL:blue", "text")


def wait_for_end(response_id):
    while True:
        response = client.responses.retrieve(response_id)
        if response.status not in ("queued", "in_progress"):
            return response
        time.sleep(0.05)


def background():
    queued = ask("THINK Hm.\nSAY later", background=True)
    assert queued.status in ("queued", "in_progress"), queued
    response = wait_for_end(queued.id)
    check((response.status, response.output_text), ("completed", "later"), "response")
    check(ask("LAST_ASSISTANT", previous_response_id=queued.id).output_text, "LAST:later", "chain")
    queued = ask("NOTHINK\nWORDS 1000 50", background=True)
    cancelled = client.responses.cancel(queued.id)
    check(cancelled.status, "cancelled", "status")
    check(client.responses.cancel(queued.id), cancelled, "cancelled again")
    check(wait_for_end(queued.id).status, "cancelled", "status")
    raises(openai.BadRequestError, lambda: ask("hi", background=True, store=False))


def resumes():
    """A client that has lost its stream resumes it at the same event, before and after the stream ends."""
    events = []
    with ask("THINK Hm.\nWORDS 40 20", background=True, stream=True) as stream:
        for event in stream:
            events.append(event)
            if event.type == "response.output_text.delta":
                break
    response_id, after = events[0].response.id, events[-1].sequence_number
    events += client.responses.retrieve(response_id, stream=True, starting_after=after)
    check([event.sequence_number for event in events], list(range(len(events))), "numbers")
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    check((events[-1].response.status, events[-1].response.output_text), ("completed", text), "response")
    check(list(client.responses.retrieve(response_id, stream=True)), events, "events")


def counts():
    request = {"model": MODEL, "input": "Grüße", "instructions": "Be brief.", "tools": TOOLS}
    counted = client.responses.input_tokens.count(**request).input_tokens
    check(counted, client.responses.create(**request).usage.input_tokens, "input tokens")
    rendered = client.post("/responses/render", cast_to=dict, body=request)
    check((rendered["token_count"], len(rendered["token_ids"])), (counted, counted), "rendered")
    assert rendered["text"].endswith("Grüße<|end|><|start|>assistant"), rendered["text"]


def extensions(create):
    """Fields that are not in OpenAI's API are returned only on request."""
    reply = create("THINK Hm.\nSAY yes", include=["usage.per_turn"], extra_body={"enable_response_messages": True})
    usage = reply.usage
    check(usage.input_tokens_details.input_tokens_per_turn, [usage.input_tokens], "input per turn")
    check(usage.output_tokens_details.output_tokens_per_turn, [usage.output_tokens], "output per turn")
    check([m["role"] for m in reply.input_messages], ["system", "user"], "input messages")
    check([m["channel"] for m in reply.output_messages], ["analysis", "final"], "output messages")
    reply = create("hi")
    assert not hasattr(reply, "input_messages") and not hasattr(reply.usage.input_tokens_details, "input_tokens_per_turn"), reply


def prewarmed(create):
    """A prompt is put into the engine's cache before the user's request, which finds it there."""
    instructions = f"{create.__name__}: " + "Answer in one short sentence. " * 60
    warm = create("NOTHINK\nSAY yes", instructions=instructions, prompt_cache_options={"prewarm": True})
    check((warm.status, warm.output, warm.output_text), ("completed", [], ""), "the prepared response")
    reply = create("NOTHINK\nSAY yes", instructions=instructions)
    check(reply.output_text, "yes", "text")
    assert reply.usage.input_tokens_details.cached_tokens > 300, reply.usage


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
    check(create([question, sealed, call, output], **more).output_text, "sunny", "answer without what cannot be opened")


def logprobs():
    more = {"include": ["message.output_text.logprobs"], "top_logprobs": 2}
    whole = ask("THINK Hm.\nSAY Hello, naïve 🪬!", **more)
    check(whole.top_logprobs, 2, "top_logprobs")
    entries = whole.output[-1].content[0].logprobs
    joined = bytes(byte for entry in entries for byte in entry.bytes)
    check(joined.decode(), whole.output_text, "the entries' bytes")
    for entry in entries:
        assert entry.logprob <= 0 and len(entry.top_logprobs) <= 2, entry
        assert all(top.bytes is not None for top in entry.top_logprobs), entry
    tokens = [entry.token for entry in entries]
    with client.responses.stream(model=MODEL, input="THINK Hm.\nSAY Hello, naïve 🪬!", **more) as stream:
        deltas, done = [], []
        for event in stream:
            if event.type == "response.output_text.delta":
                deltas += [entry.token for entry in event.logprobs]
            if event.type == "response.output_text.done":
                done += [entry.token for entry in event.logprobs]
        final = stream.get_final_response()
    check((deltas, done), (tokens, tokens), "the entries of the events")
    check(final.output[-1].content[0].logprobs, entries, "the entries of the final response")
    check(client.responses.retrieve(final.id).output[-1].content[0].logprobs, entries, "the stored entries")
    queued = ask("THINK Hm.\nSAY Hello, naïve 🪬!", background=True, **more)
    check(wait_for_end(queued.id).output[-1].content[0].logprobs, entries, "the entries of a background response")
    check(ask("NOTHINK\nSAY Hi").output[-1].content[0].logprobs, [], "entries without being asked")
    raises(openai.BadRequestError, lambda: ask("hi", **{**more, "top_logprobs": 21}))


def raises(error, call):
    try:
        call()
    except error as e:
        assert e.message, e
        return e
    raise AssertionError(f"no {error.__name__}")


def errors():
    check(raises(openai.BadRequestError, lambda: ask("hi", include=["nothing"])).param, "include[0]", "param")
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
    parallel_tools(create)
    encrypted(create)
    extensions(create)
    prewarmed(create)
helper_streams()
logprobs()
instructions_change()
stored()
references()
counts()
compaction()
conversations()
background()
resumes()
errors()
