"""Compiles structural tags with xgrammar and the engines' vocabulary. Reads lines
{"tag": …, "texts": […]}, with the tag as a text. Prints {"accepts": […], "seconds": …}
for each, with whether it accepts each text and the CPU time of compiling it, or
{"error": …}. With "replies", lists of tokens, it prints {"follows": […]}: whether each is a whole reply."""

import json
import sys
import time

import xgrammar
from transformers import AutoTokenizer
from xgrammar.testing import _is_grammar_accept_string as accepts

tokenizer = xgrammar.TokenizerInfo.from_huggingface(AutoTokenizer.from_pretrained(sys.argv[1]), vocab_size=201088)
RETURN, CALL = 200002, 200012


def follows(grammar, tokens):
    """Whether the grammar takes the tokens, and then the end of the reply."""
    matcher = xgrammar.GrammarMatcher(grammar, override_stop_tokens=[RETURN, CALL])
    return all(not matcher.is_terminated() and matcher.accept_token(t) for t in tokens) and matcher.accept_token(RETURN)


for line in sys.stdin:
    case = json.loads(line)
    try:
        grammar = xgrammar.Grammar.from_structural_tag(case["tag"])
        compiler = xgrammar.GrammarCompiler(tokenizer, max_threads=8)
        start = time.process_time()
        compiled = compiler.compile_structural_tag(case["tag"])
        result = {
            "seconds": time.process_time() - start,
            "accepts": [accepts(grammar, text) for text in case.get("texts", [])],
            "follows": [follows(compiled, tokens) for tokens in case.get("replies", [])],
        }
    except RuntimeError as e:
        result = {"error": str(e).strip().splitlines()[-1]}
    print(json.dumps(result), flush=True)
