"""Runs the capabilities of a client script and prints what the client sees.

A script decorates one function for each capability; it returns what the client sees.
README.md in the folder above has the contract.
"""

import asyncio
import inspect
import json
import os
import traceback
from types import SimpleNamespace

API = os.environ["API"]
BASE_URL = os.environ["OPENAI_BASE_URL"]
# The cases as objects: CASES.text.prompt, CASES.tools.result, ...
CASES = json.loads(os.environ["MATRIX"], object_hook=lambda members: SimpleNamespace(**members))
MODEL = CASES.model

_capabilities = {}
_loop = asyncio.Runner()


def capability(run):
    """Registers a function under its name."""
    _capabilities[run.__name__] = run
    return run


def name_of(error):
    """Returns the name of an exception's first class that is not private."""
    return next(kind.__name__ for kind in type(error).__mro__ if not kind.__name__.startswith("_"))


def fault(run, type_of=name_of):
    """Registers a function that makes the request of a fault: the capability errors."""

    def seen(request, case):
        try:
            request(run(case))
            return {"type": "", "message": "no error"}
        except Exception as e:
            return {"type": type_of(e), "message": str(e)}

    def errors():
        request = _loop.run if inspect.iscoroutinefunction(run) else lambda done: done
        return {name: seen(request, case) for name, case in vars(CASES.errors).items()}

    _capabilities["errors"] = errors
    return run


def main():
    """Runs all capabilities, each with one line of output."""
    for name, run in _capabilities.items():
        line = {"capability": name}
        try:
            line["saw"] = _loop.run(run()) if inspect.iscoroutinefunction(run) else run()
        except Exception as e:
            traceback.print_exc(limit=-3, chain=False)
            line["error"] = f"{type(e).__name__}: {e}"
        print(json.dumps(line), flush=True)
    _loop.close()
