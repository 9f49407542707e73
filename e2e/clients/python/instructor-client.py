"""instructor over openai-python."""

import json

import instructor
import openai
from pydantic import BaseModel, Field

from matrix import API, CASES, MODEL, capability, fault, main

MODE = instructor.Mode.TOOLS if API == "chat" else instructor.Mode.RESPONSES_TOOLS
client = instructor.from_openai(openai.OpenAI(max_retries=0), mode=MODE)


class Said(BaseModel):
    text: str


class Weather(BaseModel):
    """A report."""

    city: str
    celsius: int = Field(description=CASES.structured.description)


def ask(kind, prompt, value, model=MODEL, create=None):
    """Asks for an object. The model calls the function that instructor offers."""
    name = f"Partial{kind.__name__}" if create else kind.__name__
    prompt += f"\nCALL {name} {json.dumps(value)}"
    more = {"messages": [{"role": "user", "content": prompt}], "max_retries": 0, "response_model": kind, "model": model}
    return (create or client.chat.completions.create_with_completion)(**more)


@capability
def text():
    return {"text": ask(Said, "Say.", {"text": CASES.text.text})[0].text}


class Words(BaseModel):
    words: list[str]


@capability
def stream():
    # A partial object has only the strings that are complete.
    value = {"words": CASES.stream.text.split(" ")}
    parts = list(ask(Words, "Say.", value, create=client.chat.completions.create_partial))
    return {"text": " ".join(parts[-1].words), "pieces": len({len(part.words or []) for part in parts})}


@capability
def structured():
    return {"value": ask(Weather, "Report.", vars(CASES.structured.value))[0].model_dump()}


@capability
def reasoning():
    think, _ = CASES.reasoning.prompt.split("\n")
    said, reply = ask(Said, think, {"text": CASES.reasoning.text})
    if API == "chat":
        return {"reasoning": reply.choices[0].message.reasoning, "text": said.text}
    return {"reasoning": reply.output[0].content[0].text, "text": said.text}


@capability
def usage():
    think, _ = CASES.usage.prompt.split("\n")
    used = ask(Said, think, {"text": "x"})[1].usage
    if API == "chat":
        return {"input": used.prompt_tokens, "output": used.completion_tokens}
    return {"input": used.input_tokens, "output": used.output_tokens}


@fault
def fails(case):
    create = client.chat.completions.create_partial if case.stream else None
    reply = ask(Said, case.prompt.replace("WORDS 60\n", ""), {"text": "word " * 60}, case.model, create)
    return list(reply) if case.stream else reply


main()
