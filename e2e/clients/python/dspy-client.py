"""DSPy. It writes the fields of a signature as text and reads them from the answer."""

import json
import os

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # otherwise it is downloaded
os.environ["DSPY_CACHEDIR"] = os.environ["CLIENT_HOME"]

import dspy
import litellm
from pydantic import BaseModel, Field

from matrix import API, BASE_URL, CASES, MODEL, capability, fault, main


def lm(name=MODEL, **more):
    return dspy.LM(f"openai/{name}", api_base=BASE_URL, api_key="none", model_type=API, cache=False, num_retries=0, **more)


dspy.configure(lm=lm())
# DSPy asks for a model's own reasoning only where LiteLLM lists it.
litellm.register_model({f"openai/{MODEL}": {"litellm_provider": "openai", "mode": "chat", "supports_reasoning": True}})


class Weather(BaseModel):
    city: str
    celsius: int = Field(description=CASES.structured.description)


def field(name, text):
    return f"[[ ## {name} ## ]]\n{text}\n\n[[ ## completed ## ]]"


def said(text, thought=""):
    """Returns a prompt for which the model writes a text as the field answer."""
    analysis = f"<channel>analysis<message>{thought}<end><start>assistant" if thought else ""
    return f"@@{analysis}<channel>final<message>{field('answer', text)}<return>@@"


@capability
def text():
    return {"text": dspy.Predict("question -> answer")(question=said(CASES.text.text)).answer}


@capability
async def stream():
    listener = dspy.streaming.StreamListener(signature_field_name="answer")
    program = dspy.streamify(dspy.Predict("question -> answer"), stream_listeners=[listener])
    pieces = []
    async for part in program(question=said(CASES.stream.text)):
        if isinstance(part, dspy.streaming.StreamResponse):
            pieces.append(part.chunk)
        elif isinstance(part, dspy.Prediction):
            assert part.answer == "".join(pieces), (part.answer, pieces)
    return {"text": "".join(pieces), "pieces": len(pieces)}


@capability
def tools():
    # ReAct sends calls and results as text of the one user message: its script grows
    # with the result.
    cities = []

    def get_weather(city: str) -> str:
        """Gets the weather."""
        cities.append(city)
        last = {"next_thought": "Done.", "next_tool_name": "finish", "next_tool_args": {}, "reasoning": "", "answer": CASES.tools.text}
        return f"{CASES.tools.result}\nJSON {json.dumps(last)}"

    think, _ = CASES.tools.prompt.split("\n")
    first = {"next_thought": "Ask.", "next_tool_name": "get_weather", "next_tool_args": {"city": CASES.tools.city}}
    with dspy.context(adapter=dspy.JSONAdapter()):
        reply = dspy.ReAct("question -> answer", tools=[get_weather])(question=f"{think}\nJSON {json.dumps(first)}")
    return {"city": cities[0], "text": reply.answer}


@capability
def structured():
    class Report(dspy.Signature):
        question: str = dspy.InputField()
        report: Weather = dspy.OutputField()

    value = json.dumps({"report": vars(CASES.structured.value)})
    with dspy.context(adapter=dspy.JSONAdapter()):
        return {"value": dspy.Predict(Report)(question=f"JSON {value}").report.model_dump()}


@capability
def reasoning():
    class Thoughtful(dspy.Signature):
        question: str = dspy.InputField()
        reasoning: dspy.Reasoning = dspy.OutputField()
        answer: str = dspy.OutputField()

    reply = dspy.Predict(Thoughtful)(question=said(CASES.reasoning.text, CASES.reasoning.reasoning))
    return {"reasoning": reply.reasoning.content, "text": reply.answer}


@capability
def usage():
    with dspy.context(track_usage=True):
        mark = CASES.usage.prompt.split("\n")[0]
        reply = dspy.Predict("question -> answer")(question=f"{mark}\n{said(CASES.usage.text)}")
    (used,) = reply.get_lm_usage().values()
    if API == "chat":
        return {"input": used["prompt_tokens"], "output": used["completion_tokens"]}
    return {"input": used["input_tokens"], "output": used["output_tokens"]}


@fault
def fails(case):
    if not case.stream:
        return lm(case.model)(case.prompt)
    with dspy.context(lm=lm(case.model)):
        program = dspy.streamify(dspy.Predict("question -> answer"), async_streaming=False, stream_listeners=[dspy.streaming.StreamListener(signature_field_name="answer")])
        return list(program(question=case.prompt))


@capability
def state():
    class Chat(dspy.Signature):
        history: dspy.History = dspy.InputField()
        question: str = dspy.InputField()
        answer: str = dspy.OutputField()

    with dspy.context(adapter=Plain()):
        first = {"question": CASES.state.first, "answer": "Noted."}
        assert dspy.Predict(Chat)(history=dspy.History(messages=[]), question=first["question"]).answer == "Noted."
        history = dspy.History(messages=[first])
        return {"history": dspy.Predict(Chat)(history=history, question=CASES.state.second).answer}


class Plain(dspy.ChatAdapter):
    """Reads an answer without fields: the simulated model's own words."""

    def parse(self, signature, completion):
        return {"answer": completion}


main()
