#!/usr/bin/env python3
"""Writes the same llama with its hidden dimensions in another order: the embedding's columns, the inner values of each
MLP and those of each value head are shuffled, and whatever reads or writes them along. It computes the same function
up to the order of its sums, but other weights share a scale.

    python bench/quality/regroup.py models/smollm2 OUT

For weights that were once 4-bit (SmolLM2's folder is decoded from a Q4_1 file): rounding those again in their own groups
would find the very codes they came from and look lossless. Needs numpy; bfloat16 folders of one file, without biases.
"""
import json
import shutil
import struct
import sys
from pathlib import Path

import numpy as np


def read(path):
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        data = file.read()
    header.pop("__metadata__", None)
    for name, tensor in header.items():
        if tensor["dtype"] != "BF16" or name.endswith(".bias"):
            raise SystemExit(f"{name}: only bfloat16 and no biases")
        begin, end = tensor["data_offsets"]
        yield name, np.frombuffer(data[begin:end], np.uint16).reshape(tensor["shape"])


def write(path, tensors):
    header, at = {}, 0
    for name, x in tensors.items():
        header[name] = {"dtype": "BF16", "shape": list(x.shape), "data_offsets": [at, at + x.nbytes]}
        at += x.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for x in tensors.values():
            file.write(np.ascontiguousarray(x).tobytes())


def regroup(source, target):
    config = json.loads((source / "config.json").read_text())
    random = np.random.default_rng(1)
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    dim = config.get("head_dim") or hidden // heads
    stream = random.permutation(hidden)
    orders = {}

    def order(layer, what):
        if (layer, what) not in orders:
            if what == "mlp":
                orders[layer, what] = random.permutation(inner)
            else:  # within each value head, the same for the query heads that read it
                orders[layer, what] = [random.permutation(dim) for _ in range(kv_heads)]
        return orders[layer, what]

    def changed(name, x):
        parts = name.split(".")
        kind = parts[-2]
        layer = parts[2] if parts[1] == "layers" else ""
        if kind in ("input_layernorm", "post_attention_layernorm", "norm"):
            return x[stream]
        if kind in ("embed_tokens", "lm_head", "q_proj", "k_proj"):
            return x[:, stream]
        if kind in ("gate_proj", "up_proj"):
            return x[order(layer, "mlp")][:, stream]
        if kind == "down_proj":
            return x[stream][:, order(layer, "mlp")]
        each = order(layer, "values")
        if kind == "v_proj":
            return x[np.concatenate([head * dim + p for head, p in enumerate(each)])][:, stream]
        if kind == "o_proj":
            group = heads // kv_heads
            return x[stream][:, np.concatenate([head * dim + each[head // group] for head in range(heads)])]
        raise SystemExit(f"{name} has no known place")

    target.mkdir(parents=True, exist_ok=True)
    for file in source.iterdir():
        if file.suffix == ".json":
            shutil.copy(file, target)
    write(target / "model.safetensors", {name: changed(name, x) for name, x in read(source / "model.safetensors")})


if __name__ == "__main__":
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    regroup(Path(sys.argv[1]), Path(sys.argv[2]))
