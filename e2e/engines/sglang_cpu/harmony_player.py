"""Plugins for SGLang, which finds them by the entry points beside this file.

`player` forces a model with random weights to generate the script in its prompt (script.py),
token by token, as a custom logit processor of SGLang's own kind. Scheduler, radix cache,
grammars, stop handling, the detokenizer and all wire formats are SGLang's. It reads all earlier
ids, which the scheduler has only with --disable-overlap-schedule.

`sinks` leaves out the attention sinks of gpt-oss, which SGLang's attention in torch cannot do.
With random weights they have no meaning.
"""

import functools
import time

from sglang.srt.plugins.hook_registry import HookRegistry, HookType
from sglang.srt.sampling.custom_logit_processor import CustomLogitProcessor

from script import Play


class Player(CustomLogitProcessor):
    def __call__(self, logits, custom_param_list=None):
        for row, params in zip(logits, custom_param_list):
            request = params["__req__"]
            if not hasattr(request, "play"):
                request.play = Play(list(request.origin_input_ids))
            if request.play.ways:
                time.sleep(request.play.delay)
                request.play.force(list(request.output_ids), row)
        return logits


@functools.cache
def reference():
    return Player.to_str()


def play(init, self, rid, text, ids, sampling, *args, **kwargs):
    """Makes a request with the player. SGLang adds the request itself to parameters that are there."""
    if not kwargs.get("custom_logit_processor"):
        kwargs["custom_logit_processor"] = reference()
        sampling.custom_params = sampling.custom_params or {}
    init(self, rid, text, ids, sampling, *args, **kwargs)


def player():
    HookRegistry.register("sglang.srt.managers.schedule_batch.Req.__init__", play, HookType.AROUND)


def leave_out(forward, *args, sinks=None, **kwargs):
    return forward(*args, **kwargs)


def sinks():
    backend = "sglang.srt.layers.attention.torch_native_backend.TorchNativeAttnBackend"
    for name in ("forward_extend", "forward_decode"):
        HookRegistry.register(f"{backend}.{name}", leave_out, HookType.AROUND)
