#!/usr/bin/env python3
"""Writes random LoRA modules (plain PEFT folders) that fit a model folder: for load tests and for the client tests.

    python bench/load/make_modules.py models/smollm2 OUT --count 8 --rank 16

Needs safetensors and numpy. The same seed gives the same bytes.
"""
import argparse
import json
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
MLP = ("gate_proj", "up_proj", "down_proj")


def shapes_of(config):
    """projection -> (outputs, inputs) of one decoder layer."""
    hidden, mlp = config["hidden_size"], config["intermediate_size"]
    heads = config["num_attention_heads"]
    size = config.get("head_dim") or hidden // heads
    queries, keys = heads * size, config.get("num_key_value_heads", heads) * size
    return {"q_proj": (queries, hidden), "k_proj": (keys, hidden), "v_proj": (keys, hidden), "o_proj": (hidden, queries),
            "gate_proj": (mlp, hidden), "up_proj": (mlp, hidden), "down_proj": (hidden, mlp)}


def write_module(model, folder, seed, rank=16, targets=ATTENTION, strength=1.0):
    """One LoRA; B is not zero, so that every module changes the answers. `strength` scales B."""
    config = json.loads((Path(model) / "config.json").read_text())
    shapes, random = shapes_of(config), np.random.default_rng(seed)
    tensors = {}
    for layer in range(config["num_hidden_layers"]):
        for target in targets:
            outputs, inputs = shapes[target]
            block = "self_attn" if target in ATTENTION else "mlp"
            name = f"base_model.model.model.layers.{layer}.{block}.{target}"
            a = random.standard_normal((rank, inputs)) / inputs**0.5
            b = random.standard_normal((outputs, rank)) * (0.2 * strength / rank**0.5)
            tensors[f"{name}.lora_A.weight"] = a.astype(np.float32)
            tensors[f"{name}.lora_B.weight"] = b.astype(np.float32)
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, str(folder / "adapter_model.safetensors"), metadata={"format": "pt"})
    (folder / "adapter_config.json").write_text(json.dumps({
        "base_model_name_or_path": "", "bias": "none", "fan_in_fan_out": False, "inference_mode": True,
        "lora_alpha": rank, "lora_dropout": 0.0, "modules_to_save": None, "peft_type": "LORA", "r": rank,
        "target_modules": list(targets), "task_type": "CAUSAL_LM", "use_dora": False, "use_rslora": False}, indent=2))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--count", type=int, default=8)
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--mlp", action="store_true", help="gate, up and down too")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    targets = ATTENTION + (MLP if args.mlp else ())
    for i in range(args.count):
        write_module(args.model, args.out / f"lora{i}", args.seed * 1000 + i, args.rank, targets)


if __name__ == "__main__":
    main()
