#!/usr/bin/env python3
"""Writes rope_expected.json: rotary frequencies and angles as transformers computes them, for rope_test.cpp.

    python make_rope_expected.py [OUT]          # needs torch and transformers
"""
import json
import pathlib
import sys

import torch
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

BASE = {"hidden_size": 256, "intermediate_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2,
        "num_hidden_layers": 1, "vocab_size": 32, "max_position_embeddings": 4096}
POSITIONS = [0, 1, 2, 17, 255, 4095]
CASES = {
    "default": {"rope_theta": 10000.0},
    "default_theta_1e6": {"rope_theta": 1000000.0},
    "linear": {"rope_theta": 10000.0, "rope_scaling": {"type": "linear", "factor": 2.5}},
    "dynamic": {"rope_theta": 10000.0, "rope_scaling": {"type": "dynamic", "factor": 4.0}},
    "llama3": {"rope_theta": 500000.0, "rope_scaling": {
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 1024}},
    "llama3_32": {"rope_theta": 500000.0, "rope_scaling": {
        "rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.5, "high_freq_factor": 5.0,
        "original_max_position_embeddings": 512}},
    "yarn": {"rope_theta": 1000000.0, "rope_scaling": {
        "type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024}},
    "yarn_betas_untruncated": {"rope_theta": 10000.0, "rope_scaling": {
        "rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 512, "beta_fast": 16.0,
        "beta_slow": 2.0, "truncate": False}},
    "yarn_mscale": {"rope_theta": 10000.0, "rope_scaling": {
        "rope_type": "yarn", "factor": 40.0, "original_max_position_embeddings": 4096, "mscale": 1.0,
        "mscale_all_dim": 0.8}},
    "yarn_attention_factor": {"rope_theta": 10000.0, "rope_scaling": {
        "rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 2048, "attention_factor": 1.25}},
    "yarn_without_factor": {"rope_theta": 10000.0, "rope_scaling": {
        "rope_type": "yarn", "factor": None, "original_max_position_embeddings": 1024}},
    "parameters_style": {"rope_parameters": {
        "rope_type": "yarn", "rope_theta": 50000.0, "factor": 4.0, "original_max_position_embeddings": 1024}},
}


def main():
    out = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent / "rope_expected.json")
    cases = []
    for name, change in CASES.items():
        config = {**BASE, **change}
        rope = LlamaRotaryEmbedding(LlamaConfig(**json.loads(json.dumps(config))))
        position_ids = torch.tensor([POSITIONS])
        cos, sin = rope(torch.zeros(1, len(POSITIONS), 64), position_ids)
        half = cos.shape[-1] // 2
        cases.append({
            "name": name,
            "config": {"model_type": "llama", **config},
            "attention_factor": float(rope.attention_scaling),
            "inv_freq": [float(x) for x in rope.inv_freq],
            "positions": POSITIONS,
            "cos": [[round(float(x), 7) for x in row[:half]] for row in cos[0]],
            "sin": [[round(float(x), 7) for x in row[:half]] for row in sin[0]],
        })
    out.write_text(json.dumps({"cases": cases}, separators=(",", ":")).replace('{"name"', '\n{"name"') + "\n")


if __name__ == "__main__":
    main()
