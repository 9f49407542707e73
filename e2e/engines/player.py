"""A logits processor for vLLM that forces a model with random weights to generate
the script in its prompt (script.py), token by token. The scheduler, the prefix cache,
grammars, stop handling, the detokenizer and all wire formats are vLLM's.

    PYTHONPATH=e2e/engines ... --logits-processors player:Player

Without a script the weights generate the reply.
"""

import time

from vllm.v1.sample.logits_processor import AdapterLogitsProcessor

from script import Play


class Player(AdapterLogitsProcessor):
    def is_argmax_invariant(self):
        return False

    def new_req_logits_processor(self, params):
        play = None

        def process(prompt, output, logits):
            nonlocal play
            if play is None:
                play = Play(prompt)
            if not play.ways:
                return logits
            time.sleep(play.delay)
            play.force(output, logits)
            return logits

        return process
