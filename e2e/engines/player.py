"""A logits processor for vLLM that makes a model with random weights play the
script of its prompt (script.py), token by token. Scheduler, prefix cache,
grammars, stop handling, detokenizer and every wire format stay vLLM's own.

    PYTHONPATH=e2e/engines ... --logits-processors player:Player

A request without a script is left to the weights.
"""

import time

from vllm.v1.sample.logits_processor import AdapterLogitsProcessor

from script import Play

FORBIDDEN = float("-inf")  # what a grammar's mask leaves of a token


class Player(AdapterLogitsProcessor):
    def is_argmax_invariant(self):
        return False

    def new_req_logits_processor(self, params):
        play = None

        def process(prompt, made, logits):
            nonlocal play
            if play is None:
                play = Play(prompt)
            if not play.ways:
                return logits
            time.sleep(play.delay)
            token = play.next(made, lambda t: logits[t].item() != FORBIDDEN)
            if token is not None:
                logits.fill_(FORBIDDEN)
                logits[token] = 0.0
            return logits

        return process
