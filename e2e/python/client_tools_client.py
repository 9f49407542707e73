"""Tests the tools that a client runs with openai-python and the OpenAI Agents SDK.

The client runs the calls of the simulated engine: commands in a directory of its
own, patches on its files. Every event and response is validated with
openai-python's types. The rendered prompt shows what the model sees of the turns.
"""

import asyncio
import os
import pathlib
import subprocess
import tempfile

import agents
import openai
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

MODEL = os.environ["MODEL"]
client = openai.OpenAI(max_retries=0)
agents.set_tracing_disabled(True)

TOOLS = [{"type": "shell", "environment": {"type": "local"}}, {"type": "local_shell"}, {"type": "apply_patch"}]
EVENT, RESPONSE = TypeAdapter(ResponseStreamEvent), TypeAdapter(Response)

SHELL = 'CALL shell {"commands":["echo one > a.txt","cat a.txt none.txt"],"timeout_ms":5000}'
LOCAL = 'CALL local_shell {"command":["cat","a.txt"],"env":{"LANG":"C"}}'
PATCH = r'CALL apply_patch {"type":"update_file","path":"a.txt","diff":"@@\n-one\n+two\n"}'


def check(got, want, what):
    assert got == want, f"{what}: got {got!r}, want {want!r}"


def valid(response):
    RESPONSE.validate_python(response.to_dict())
    return response


def ask(question, **more):
    return valid(client.responses.create(model=MODEL, input=question, **more))


def streamed(question, **more):
    """Returns the response of a stream; its items are those that the events told."""
    response, commands, done = None, {}, []
    for event in client.responses.create(model=MODEL, input=question, stream=True, **more):
        EVENT.validate_python(event.to_dict())
        if event.type == "response.shell_call_command.delta":
            commands.setdefault(event.output_index, {}).setdefault(event.command_index, []).append(event.delta)
        if event.type == "response.output_item.done":
            done.append(event.item.to_dict())
        if event.type == "response.completed":
            response = event.response
    check([item.to_dict() for item in response.output], done, "items")
    for index, item in enumerate(response.output):
        if item.type == "shell_call":
            told = ["".join(deltas) for _, deltas in sorted(commands[index].items())]
            check(told, item.action.commands, "commands")
    return valid(response)


def background(question, **more):
    return streamed(question, background=True, **more)


def run(call, root):
    """Runs a call as a client does, and returns its output item."""
    if call.type == "shell_call":
        outputs = []
        for command in call.action.commands:
            done = subprocess.run(command, shell=True, cwd=root, capture_output=True, text=True, timeout=60)
            outcome = {"type": "exit", "exit_code": done.returncode}
            outputs.append({"stdout": done.stdout, "stderr": done.stderr, "outcome": outcome})
        return {"type": "shell_call_output", "call_id": call.call_id, "output": outputs}
    if call.type == "local_shell_call":
        done = subprocess.run(call.action.command, cwd=root, env=os.environ | call.action.env, capture_output=True, text=True)
        return {"type": "local_shell_call_output", "id": call.call_id, "output": done.stdout}
    check(call.type, "apply_patch_call", "type")
    file = pathlib.Path(root, call.operation.path)
    file.write_text(agents.apply_diff(file.read_text(), call.operation.diff))
    return {"type": "apply_patch_call_output", "call_id": call.call_id, "status": "completed", "output": "Done."}


def turns(create, chained):
    """Three calls, each of a turn, and the answer."""
    with tempfile.TemporaryDirectory() as root:
        question = {"role": "user", "content": f"THINK Hm.\n{SHELL}\n{PATCH}\n{LOCAL}"}
        history, more, kinds = [question], {}, []
        response = create(history, tools=TOOLS, store=chained)
        while response.output[-1].type != "message":
            call = response.output[-1]
            kinds.append(call.type)
            output = run(call, root)
            history += [*response.output, output]
            new = [output] if chained else history
            if chained:
                more = {"previous_response_id": response.id}
            response = create(new, tools=TOOLS, store=chained, **more)
        check(kinds, ["shell_call", "apply_patch_call", "local_shell_call"], "calls")
        check(response.output_text, "RESULT: two\n", "answer")
        request = {"model": MODEL, "input": new, "tools": TOOLS, "store": chained, **more}
        prompt = client.post("/responses/render", cast_to=dict, body=request)["text"]
        check(prompt[prompt.index("<|start|>assistant") :], PROMPT, "prompt")
        if chained:
            items = client.responses.input_items.list(response.id, order="asc", limit=100)
            check([item.type for item in items][-1], "local_shell_call_output", "stored input")


def call(tool, arguments, output):
    return (
        "<|start|>assistant<|channel|>analysis<|message|>Hm.<|end|>"
        f"<|start|>assistant<|channel|>commentary to=functions.{tool} <|constrain|>json<|message|>{arguments}<|call|>"
        f"<|start|>functions.{tool} to=assistant<|channel|>commentary<|message|>{output}<|end|>"
    )


PROMPT = (
    call(
        "shell",
        SHELL.removeprefix("CALL shell "),
        "[output 1]\n[exit code 0]\n[output 2]\none\n[stderr]\ncat: none.txt: No such file or directory\n[exit code 1]",
    )
    + call("apply_patch", PATCH.removeprefix("CALL apply_patch "), "Done.")
    + call("local_shell", LOCAL.removeprefix("CALL local_shell "), "two\n")
    + "<|start|>assistant"
)


def choice(create):
    """The simulated engine obeys the grammar: its call is the smallest one that fits the action."""
    for kind, call_type in (("shell", "shell_call"), ("local_shell", "local_shell_call"), ("apply_patch", "apply_patch_call")):
        response = create("THINK Hm.", tools=TOOLS, tool_choice={"type": kind})
        check(response.output[-1].type, call_type, "forced call")
    check(response.output[-1].operation.type, "create_file", "the smallest operation")


class Editor:
    def __init__(self, root):
        self.root = root

    def update_file(self, operation):
        file = pathlib.Path(self.root, operation.path)
        file.write_text(agents.apply_diff(file.read_text(), operation.diff))
        return agents.editor.ApplyPatchResult(output="patched")

    create_file = delete_file = update_file


async def agents_sdk(stream):
    """The SDK's own tools, with its own loop."""
    with tempfile.TemporaryDirectory() as root:

        def execute(request):
            done = []
            for command in request.data.action.commands:
                ran = subprocess.run(command, shell=True, cwd=root, capture_output=True, text=True)
                outcome = agents.ShellCallOutcome(type="exit", exit_code=ran.returncode)
                done.append(agents.ShellCommandOutput(stdout=ran.stdout, stderr=ran.stderr, outcome=outcome))
            return agents.ShellResult(output=done)

        agent = agents.Agent(
            name="coder",
            model=MODEL,
            tools=[agents.ShellTool(executor=execute), agents.ApplyPatchTool(editor=Editor(root))],
        )
        question = f'THINK Hm.\n{SHELL}\n{PATCH}\nCALL shell {{"commands":["cat a.txt"]}}'
        if stream:
            result = agents.Runner.run_streamed(agent, question)
            async for _ in result.stream_events():
                pass
        else:
            result = await agents.Runner.run(agent, question)
        check(pathlib.Path(root, "a.txt").read_text(), "two\n", "file")
        assert result.final_output.startswith("RESULT: ") and "two" in result.final_output, result.final_output


async def with_agents():
    await agents_sdk(stream=False)
    await agents_sdk(stream=True)


for create in (ask, streamed):
    turns(create, chained=False)
    turns(create, chained=True)
    choice(create)
turns(background, chained=True)
asyncio.run(with_agents())
