# pyright: basic, reportMissingImports=false
"""Runs under a Python that has vLLM: a request sequence in, cached tokens per request out.

Reads one JSON document from standard input: {"folder", "num_blocks", "block_size", "requests":
[{"session", "kept", "new", "output"}, ...]}. A request's prompt is the first `kept` tokens of its
session's context (prompt and reply so far) and then `new`. Requests go one after the other, or all
at once with "together". The last line of standard output is the JSON list of cached tokens.
"""

import json
import os
import sys
from pathlib import Path

os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")
os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

CONFIG = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "vocab_size": 1024,
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 64,
    "hidden_act": "silu",
    "max_position_embeddings": 32768,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1000000.0,
    "initializer_range": 0.02,
    "tie_word_embeddings": True,
    "attention_bias": False,
    "attention_dropout": 0.0,
    "torch_dtype": "bfloat16",
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def main() -> None:
    asked = json.load(sys.stdin)
    folder = Path(asked["folder"])
    (folder / "config.json").write_text(json.dumps(CONFIG))

    from vllm import LLM, SamplingParams

    llm = LLM(
        model=str(folder),
        skip_tokenizer_init=True,
        load_format="dummy",
        dtype="bfloat16",
        enforce_eager=True,
        max_model_len=3072,
        max_num_seqs=16,
        max_num_batched_tokens=8192,
        block_size=asked["block_size"],
        num_gpu_blocks_override=asked["num_blocks"],
        enable_prefix_caching=True,
    )
    contexts: dict[str, list[int]] = {}
    cached: list[int] = []
    prompts = []
    limits = []
    for request in asked["requests"]:
        context = contexts.get(request["session"], [])
        prompt = context[: request["kept"]] + request["new"]
        limit = SamplingParams(
            max_tokens=request["output"],
            min_tokens=request["output"],
            temperature=0.0,
            ignore_eos=True,
            detokenize=False,
        )
        prompts.append({"prompt_token_ids": prompt})
        limits.append(limit)
        if not asked["together"]:
            (answer,) = llm.generate(prompts[-1:], limits[-1:], use_tqdm=False)
            cached.append(answer.num_cached_tokens)
            contexts[request["session"]] = prompt + list(answer.outputs[0].token_ids)
    if asked["together"]:
        cached = [a.num_cached_tokens for a in llm.generate(prompts, limits, use_tqdm=False)]
    print(json.dumps(cached))


if __name__ == "__main__":
    main()
