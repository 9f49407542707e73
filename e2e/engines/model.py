"""Makes tiny gpt-oss models with random weights, and the real architecture and
vocabulary.

    model.py o200k_base.tiktoken FOLDER [FILE.gguf]

FOLDER has a model for vLLM and SGLang without weights, which they generate
(--load-format dummy). FILE.gguf is for llama.cpp and has weights: it needs gguf and numpy.
"""

import json
import sys
from pathlib import Path

import tiktoken
from tokenizers import AddedToken
from transformers.convert_slow_tokenizer import TikTokenConverter

LAYERS, WIDTH, HEADS, KV_HEADS, HEAD_WIDTH, EXPERTS, EXPERTS_USED, WINDOW = 2, 128, 4, 2, 64, 4, 2, 128
CONTEXT, ROPE_BASE, ROPE_FACTOR, ROPE_CONTEXT, EPSILON = 131072, 150000, 32.0, 4096, 1e-5
IDS = 201088  # rows of the embedding; the vocabulary is smaller

VOCABULARY = tiktoken.get_encoding("o200k_harmony")
# One name per control token: some have two.
CONTROL = {token: name for name, token in sorted(VOCABULARY._special_tokens.items(), reverse=True) if token < IDS}
START_OF_TEXT, END_OF_TEXT, RETURN, CALL = (
    VOCABULARY._special_tokens[f"<|{name}|>"] for name in ("startoftext", "endoftext", "return", "call")
)


def main():
    vocabulary, folder, *files = sys.argv[1:]
    without_weights(Path(folder), vocabulary)
    for file in files:
        for_llamacpp(file, Path(folder, "tokenizer.json"))


def without_weights(folder, vocabulary):
    folder.mkdir(parents=True, exist_ok=True)
    config = {
        "architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", "torch_dtype": "bfloat16",
        "vocab_size": IDS, "bos_token_id": START_OF_TEXT, "eos_token_id": RETURN, "pad_token_id": END_OF_TEXT,
        "hidden_size": WIDTH, "intermediate_size": WIDTH, "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "head_dim": HEAD_WIDTH, "attention_bias": True,
        "layer_types": ["sliding_attention", "full_attention"] * (LAYERS // 2), "sliding_window": WINDOW,
        "num_local_experts": EXPERTS, "num_experts_per_tok": EXPERTS_USED, "experts_per_token": EXPERTS_USED, "swiglu_limit": 7.0,
        "hidden_act": "silu", "rms_norm_eps": EPSILON, "tie_word_embeddings": False,
        "max_position_embeddings": CONTEXT, "initial_context_length": ROPE_CONTEXT, "rope_theta": ROPE_BASE,
        "rope_scaling": {
            "rope_type": "yarn", "factor": ROPE_FACTOR, "original_max_position_embeddings": ROPE_CONTEXT,
            "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False,
        },
    }  # fmt: skip
    generation = {"do_sample": True, "bos_token_id": START_OF_TEXT, "eos_token_id": [RETURN, END_OF_TEXT, CALL], "pad_token_id": END_OF_TEXT}
    specials = {"bos_token": CONTROL[START_OF_TEXT], "eos_token": CONTROL[RETURN], "pad_token": CONTROL[END_OF_TEXT]}
    tokenizer = TikTokenConverter(vocabulary, VOCABULARY._pat_str).converted()
    tokenizer.add_special_tokens([AddedToken(name, special=True, normalized=False) for _, name in sorted(CONTROL.items())])
    tokenizer.save(str(folder / "tokenizer.json"))
    write(folder / "config.json", config)
    write(folder / "generation_config.json", generation)
    write(folder / "tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": CONTEXT, **specials})


def for_llamacpp(path, tokenizer):
    import gguf
    import numpy

    w = gguf.GGUFWriter(path, "gpt-oss")
    w.add_context_length(CONTEXT)
    w.add_embedding_length(WIDTH)
    w.add_block_count(LAYERS)
    w.add_feed_forward_length(WIDTH)
    w.add_expert_feed_forward_length(WIDTH)
    w.add_expert_count(EXPERTS)
    w.add_expert_used_count(EXPERTS_USED)
    w.add_head_count(HEADS)
    w.add_head_count_kv(KV_HEADS)
    w.add_key_length(HEAD_WIDTH)
    w.add_value_length(HEAD_WIDTH)
    w.add_sliding_window(WINDOW)
    w.add_layer_norm_rms_eps(EPSILON)
    w.add_rope_freq_base(ROPE_BASE)
    w.add_rope_scaling_type(gguf.RopeScalingType.YARN)
    w.add_rope_scaling_factor(ROPE_FACTOR)
    w.add_rope_scaling_orig_ctx_len(ROPE_CONTEXT)

    model = json.loads(tokenizer.read_text())["model"]
    names = {token: name for name, token in model["vocab"].items()} | CONTROL
    kinds = {token: gguf.TokenType.CONTROL if token in CONTROL else gguf.TokenType.NORMAL for token in names}
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("gpt-4o")
    w.add_token_list([names.get(token, f"[PAD{token}]") for token in range(IDS)])
    w.add_token_types([kinds.get(token, gguf.TokenType.UNUSED) for token in range(IDS)])
    w.add_token_merges([" ".join(pair) for pair in model["merges"]])
    w.add_bos_token_id(START_OF_TEXT)
    w.add_eos_token_id(RETURN)
    w.add_pad_token_id(END_OF_TEXT)

    random = numpy.random.default_rng(1)

    def add(name, *shape, kind=numpy.float32):
        # All weights except norms are near zero, so that a logit_bias determines the output.
        values = numpy.ones(shape) if "norm" in name else random.normal(0, 0.002, shape)
        w.add_tensor(name, values.astype(kind))

    add("token_embd.weight", IDS, WIDTH, kind=numpy.float16)
    add("output_norm.weight", WIDTH)
    add("output.weight", IDS, WIDTH, kind=numpy.float16)
    for layer in range(LAYERS):
        block = f"blk.{layer}."
        add(block + "attn_norm.weight", WIDTH)
        add(block + "post_attention_norm.weight", WIDTH)
        add(block + "attn_sinks.weight", HEADS)
        for name, rows, columns in [
            ("attn_q", HEADS * HEAD_WIDTH, WIDTH),
            ("attn_k", KV_HEADS * HEAD_WIDTH, WIDTH),
            ("attn_v", KV_HEADS * HEAD_WIDTH, WIDTH),
            ("attn_output", WIDTH, HEADS * HEAD_WIDTH),
            ("ffn_gate_inp", EXPERTS, WIDTH),
        ]:
            add(block + name + ".weight", rows, columns)
            add(block + name + ".bias", rows)
        for name in ("ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"):
            add(block + name + ".weight", EXPERTS, WIDTH, WIDTH)
            add(block + name + ".bias", EXPERTS, WIDTH)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def write(path, value):
    path.write_text(json.dumps(value, indent=1) + "\n")


if __name__ == "__main__":
    main()
