#!/usr/bin/env python3
"""Writes a random llama in bfloat16 with the shapes of Llama-3.2-1B: the benches' second size, so that nothing is tuned
to one model. Its answers mean nothing; its cost is that of the real one.

    python bench/make_model.py models/smollm2 models/random1b

The tokenizer is the first folder's (ids beyond it are never asked for). Needs numpy; 2.5 GB.
"""
import argparse
import json
import shutil
from pathlib import Path

import numpy as np

CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 2048, "intermediate_size": 8192,
    "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 64, "vocab_size": 128256,
    "max_position_embeddings": 8192, "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "hidden_act": "silu",
    "tie_word_embeddings": True, "attention_bias": False, "mlp_bias": False, "torch_dtype": "bfloat16",
    "bos_token_id": 1, "eos_token_id": 2,
}


def shapes(config):
    hidden, mlp = config["hidden_size"], config["intermediate_size"]
    kv = config["num_key_value_heads"] * config["head_dim"]
    yield "model.embed_tokens.weight", (config["vocab_size"], hidden)
    for layer in range(config["num_hidden_layers"]):
        at = f"model.layers.{layer}."
        yield at + "input_layernorm.weight", (hidden,)
        yield at + "post_attention_layernorm.weight", (hidden,)
        for name, rows, columns in (("self_attn.q_proj", hidden, hidden), ("self_attn.k_proj", kv, hidden),
                                    ("self_attn.v_proj", kv, hidden), ("self_attn.o_proj", hidden, hidden),
                                    ("mlp.gate_proj", mlp, hidden), ("mlp.up_proj", mlp, hidden),
                                    ("mlp.down_proj", hidden, mlp)):
            yield f"{at}{name}.weight", (rows, columns)
    yield "model.norm.weight", (hidden,)


def to_bf16(values):
    words = values.astype(np.float32).view(np.uint32)
    return ((words + 0x7FFF + ((words >> 16) & 1)) >> 16).astype(np.uint16)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tokenizer", type=Path, help="a model folder to take the tokenizer from")
    parser.add_argument("out", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    if (args.out / "model.safetensors").exists():
        return
    part = args.out.with_name(args.out.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    (part / "config.json").write_text(json.dumps(CONFIG, indent=2))
    for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"):
        if (args.tokenizer / name).exists():
            shutil.copy(args.tokenizer / name, part / name)
    random = np.random.default_rng(args.seed)
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, shape in shapes(CONFIG):
        size = 2 * int(np.prod(shape))
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(part / "model.safetensors", "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name, shape in shapes(CONFIG):
            if len(shape) == 1:
                values = np.ones(shape, np.float32)
            else:
                values = random.standard_normal(shape, np.float32) * np.float32(shape[1] ** -0.5)
            file.write(to_bf16(values).tobytes())
    part.rename(args.out)


if __name__ == "__main__":
    main()
