"""Tests chat completions with openai-python.

The last user message is the script of the simulated engine.
"""

import json
import os

import openai

MODEL = os.environ["MODEL"]
client = openai.OpenAI(max_retries=0)

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "Gets the weather.",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string"}},
                "required": ["city"],
            },
        },
    }
]


def check(got, want, what):
    assert got == want, f"{what}: got {got!r}, want {want!r}"


def ask(messages, **more):
    return client.chat.completions.create(model=MODEL, messages=messages, **more)


def user(text):
    return [{"role": "user", "content": text}]


def joined(stream):
    """Returns reasoning, content, calls, finish reason and usage of a stream with one choice."""
    reasoning, content, calls, finish, usage = "", "", {}, None, None
    for chunk in stream:
        usage = chunk.usage or usage
        for choice in chunk.choices:
            reasoning += getattr(choice.delta, "reasoning", None) or ""
            content += choice.delta.content or ""
            for call in choice.delta.tool_calls or []:
                known = calls.setdefault(call.index, {"id": call.id, "name": "", "arguments": ""})
                known["name"] += call.function.name or ""
                known["arguments"] += call.function.arguments or ""
            finish = choice.finish_reason or finish
    return reasoning, content, calls, finish, usage


def answers():
    reply = ask(user("THINK Let me see.\nSAY Grüße, 世界 👋🏽!"))
    message = reply.choices[0].message
    check(message.content, "Grüße, 世界 👋🏽!", "content")
    check(message.reasoning, "Let me see.", "reasoning")
    check(message.reasoning_content, "Let me see.", "reasoning_content")
    check(reply.choices[0].finish_reason, "stop", "finish reason")
    check(reply.usage.total_tokens, reply.usage.prompt_tokens + reply.usage.completion_tokens, "usage")


def streams():
    stream = ask(
        user("THINK Let me see.\nSAY Grüße, 世界 👋🏽!"),
        stream=True,
        stream_options={"include_usage": True},
    )
    reasoning, content, _, finish, usage = joined(stream)
    check((reasoning, content, finish), ("Let me see.", "Grüße, 世界 👋🏽!", "stop"), "stream")
    assert usage.completion_tokens_details.reasoning_tokens > 0, usage


def helper_streams():
    with client.chat.completions.stream(model=MODEL, messages=user("NOTHINK\nSAY a b c")) as stream:
        text = "".join(event.delta for event in stream if event.type == "content.delta")
        check(text, "a b c", "content deltas")
        check(stream.get_final_completion().choices[0].message.content, "a b c", "final completion")


def tools(stream):
    messages = user('THINK A tool.\nCALL get_weather {"city":"Bern"}\nSAY Sunny.')
    if stream:
        _, _, calls, finish, _ = joined(ask(messages, tools=TOOLS, stream=True))
        call = calls[0]
    else:
        choice = ask(messages, tools=TOOLS).choices[0]
        finish = choice.finish_reason
        first = choice.message.tool_calls[0]
        call = {"id": first.id, "name": first.function.name, "arguments": first.function.arguments}
    check(finish, "tool_calls", "finish reason")
    check((call["name"], json.loads(call["arguments"])), ("get_weather", {"city": "Bern"}), "call")
    messages += [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {
                    "id": call["id"],
                    "type": "function",
                    "function": {"name": call["name"], "arguments": call["arguments"]},
                }
            ],
        },
        {"role": "tool", "tool_call_id": call["id"], "content": [{"type": "text", "text": "sun"}]},
    ]
    if stream:
        _, content, _, _, _ = joined(ask(messages, tools=TOOLS, stream=True))
    else:
        content = ask(messages, tools=TOOLS).choices[0].message.content
    check(content, "Sunny.", "answer")


def choices_and_stop():
    reply = ask(user("NOTHINK\nWORDS 20"), n=2, stop=[" w5"])
    check([c.message.content for c in reply.choices], ["w1 w2 w3 w4"] * 2, "choices")


def raises(error, status, call):
    try:
        call()
    except error as e:
        check(e.status_code, status, "status")
        assert e.body["message"], e.body
        return e
    raise AssertionError(f"no {error.__name__}")


def logprobs():
    text = "Grüße, 世界 👋🏽!"
    more = {"logprobs": True, "top_logprobs": 2}
    whole = ask(user(f"THINK hm\nSAY {text}"), **more).choices[0]
    check(whole.logprobs.refusal, None, "refusal")
    streamed, content = [], ""
    for chunk in ask(user(f"THINK hm\nSAY {text}"), stream=True, **more):
        for choice in chunk.choices:
            content += choice.delta.content or ""
            streamed += choice.logprobs.content if choice.logprobs else []
            sent = b"".join(bytes(e.bytes) for e in streamed)
            assert sent.startswith(content.encode()), (sent, content)
    check(content, text, "content")
    for entries in (whole.logprobs.content, streamed):
        check(b"".join(bytes(e.bytes) for e in entries).decode(), text, "entries")
        for e in entries:
            assert e.logprob <= 0 and 0 < len(e.top_logprobs) <= 2, e
            assert e.top_logprobs[0].logprob >= e.logprob, e
    check([e.logprob for e in streamed], [e.logprob for e in whole.logprobs.content], "logprobs")
    check(whole.logprobs.content[0].token, "Gr", "token")
    check(ask(user("SAY x")).choices[0].logprobs, None, "logprobs without a request for them")


def errors():
    e = raises(openai.BadRequestError, 400, lambda: ask(user("hi"), top_logprobs=2))
    check(e.param, "top_logprobs", "param")
    raises(
        openai.NotFoundError,
        404,
        lambda: client.chat.completions.create(model=MODEL + "-none", messages=user("hi")),
    )
    for status, error in (
        (400, openai.BadRequestError),
        (429, openai.RateLimitError),
        (503, openai.InternalServerError),
    ):
        for stream in (False, True):
            raises(error, status, lambda: ask(user(f"hi\nSIM status={status}"), stream=stream))
    try:
        joined(ask(user("NOTHINK\nWORDS 60\nSIM delay=20ms fault=error@40"), stream=True))
    except openai.APIError as e:
        assert e.message, e
    else:
        raise AssertionError("an error in the stream raised no exception")


answers()
streams()
helper_streams()
tools(stream=False)
tools(stream=True)
choices_and_stop()
logprobs()
errors()
