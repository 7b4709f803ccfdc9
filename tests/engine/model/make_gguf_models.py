#!/usr/bin/env python3
"""Makes tests/data/gguf_models.tar.xz: the golden models as GGUF files, as llama.cpp's converter would write them.

    python tests/engine/model/make_gguf_models.py GOLDEN tests/data/gguf_models.tar.xz

GOLDEN is the unpacked golden folder (build/test_data/golden). Needs numpy, gguf 0.19.0 and safetensors. Files:
  <model>/f32.gguf, q8_0.gguf     every model
  llama_gqa_tied/f32_v2.gguf      format version 2
  llama_gqa_tied/mixed.gguf       another type for each tensor
  index.json                      each file's checkpoint id, and the SHA-256 of what each tensor stands for: gguf-py's
                                  float32 values, under Hugging Face's names and in its order of rows
"""
import hashlib
import io
import json
import lzma
import math
import re
import struct
import sys
import tarfile
import tempfile
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType as Q, GGUFReader, GGUFWriter
from gguf.quants import dequantize, quantize
from safetensors.numpy import load_file

MODELS = ["llama_gqa_tied", "llama3_rope", "qwen2_bias", "qwen3_qknorm", "mistral_swa"]
TOP = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
LAYER = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q",
         "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
         "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm", "mlp.gate_proj": "ffn_gate",
         "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}
MIXED = [Q.Q4_0, Q.Q4_1, Q.Q5_0, Q.Q5_1, Q.Q8_0, Q.F16, Q.BF16, Q.F32]


def gguf_name(name):
    stem, kind = name.rsplit(".", 1)
    if stem in TOP:
        return f"{TOP[stem]}.{kind}"
    layer, part = re.fullmatch(r"model\.layers\.(\d+)\.(.+)", stem).groups()
    return f"blk.{layer}.{LAYER[part]}.{kind}"


def heads_to_permute(name, config):
    """llama.cpp's converter reorders q and k of the llama architecture, which has mistral in it."""
    if config["model_type"] not in ("llama", "mistral"):
        return 0
    if ".q_proj." in name:
        return config["num_attention_heads"]
    return config["num_key_value_heads"] if ".k_proj." in name else 0


def permute(x, heads):
    return x.reshape(heads, 2, x.shape[0] // heads // 2, *x.shape[1:]).swapaxes(1, 2).reshape(x.shape)


def unpermute(x, heads):
    return x.reshape(heads, x.shape[0] // heads // 2, 2, *x.shape[1:]).swapaxes(1, 2).reshape(x.shape)


def rope_factors(config):
    """The converter's own lines for rope type llama3."""
    rope, dim = config["rope_parameters"], config["head_dim"]
    freqs = 1.0 / (rope["rope_theta"] ** (np.arange(0, dim, 2, dtype=np.float32) / dim))
    old, low, high = rope["original_max_position_embeddings"], rope["low_freq_factor"], rope["high_freq_factor"]
    factors = []
    for freq in freqs:
        wavelen = 2 * math.pi / float(freq)
        if wavelen < old / high:
            factors.append(1)
        elif wavelen > old / low:
            factors.append(rope["factor"])
        else:
            smooth = (old / wavelen - low) / (high - low)
            factors.append(1 / ((1 - smooth) / rope["factor"] + smooth))
    return np.array(factors, dtype=np.float32)


def write(path, config, tensors, type_of):
    """Returns the values that the file's tensors stand for, under Hugging Face's names and in their order of rows."""
    kind = config["model_type"]
    writer = GGUFWriter(path, "llama" if kind == "mistral" else kind)
    writer.add_type("model")
    writer.add_name("golden " + kind)
    writer.add_vocab_size(config["vocab_size"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
    head_dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    if kind == "qwen3":
        writer.add_key_length(head_dim)
        writer.add_value_length(head_dim)
    elif kind != "qwen2":
        writer.add_rope_dimension_count(head_dim)
    if kind == "mistral":
        writer.add_sliding_window(config["sliding_window"])
    writer.add_eos_token_id(config["eos_token_id"])
    values = {}
    if config["rope_parameters"]["rope_type"] == "llama3":
        writer.add_tensor("rope_freqs.weight", rope_factors(config))
    for index, (name, x) in enumerate(sorted(tensors.items())):
        heads = heads_to_permute(name, config)
        stored = np.ascontiguousarray(permute(x, heads) if heads else x, dtype=np.float32)
        qtype = type_of(index) if x.ndim == 2 else Q.F32  # as llama.cpp: vectors stay float32
        if qtype in (Q.F32, Q.F16):
            data = stored.astype(np.float32 if qtype == Q.F32 else np.float16)
            back = data.astype(np.float32)
            writer.add_tensor(gguf_name(name), data)
        else:
            data = quantize(stored, qtype)
            back = dequantize(data, qtype).reshape(x.shape).astype(np.float32)
            writer.add_tensor(gguf_name(name), data, raw_dtype=qtype)
        values[name] = np.ascontiguousarray(unpermute(back, heads) if heads else back)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return values


def checkpoint(path):
    """name NUL ggml type NUL shape (ne reversed) NUL bytes, over all tensors in name order."""
    digest = hashlib.sha256()
    for tensor in sorted(GGUFReader(path).tensors, key=lambda t: t.name.encode()):
        shape = ",".join(str(int(d)) for d in reversed(tensor.shape))
        digest.update(f"{tensor.name}\0{tensor.tensor_type.name}\0{shape}\0".encode())
        digest.update(np.ascontiguousarray(tensor.data).tobytes())
    return "sha256:" + digest.hexdigest()


def make(golden, out):
    index = {}
    for model in MODELS:
        source, folder = golden / "models" / model, out / model
        folder.mkdir(parents=True)
        config = json.loads((source / "config.json").read_text())
        tensors = load_file(source / "model.safetensors")
        kinds = {"f32": lambda i: Q.F32, "q8_0": lambda i: Q.Q8_0}
        if model == "llama_gqa_tied":
            kinds["mixed"] = lambda i: MIXED[i % len(MIXED)]
        for kind, type_of in kinds.items():
            values = write(folder / f"{kind}.gguf", config, tensors, type_of)
            if kind == "f32":
                assert all(np.array_equal(values[name], x) for name, x in tensors.items())
            index[f"{model}/{kind}.gguf"] = {
                "checkpoint": checkpoint(folder / f"{kind}.gguf"),
                "values": {name: hashlib.sha256(x.tobytes()).hexdigest() for name, x in values.items()}}
        if model == "llama_gqa_tied":
            data = (folder / "f32.gguf").read_bytes()
            # The two versions differ in what big-endian files may be, nowhere else.
            (folder / "f32_v2.gguf").write_bytes(data[:4] + struct.pack("<I", 2) + data[8:])
            index[f"{model}/f32_v2.gguf"] = index[f"{model}/f32.gguf"]
    (out / "index.json").write_text(json.dumps(index, indent=1) + "\n")


def pack(folder, target):
    """The same bytes at every run: sorted names, no times, no owners."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for path in sorted(p for p in folder.rglob("*") if p.is_file()):
            info = tarfile.TarInfo("gguf_models/" + str(path.relative_to(folder)))
            info.size = path.stat().st_size
            with open(path, "rb") as file:
                tar.addfile(info, file)
    target.write_bytes(lzma.compress(buffer.getvalue(), preset=9 | lzma.PRESET_EXTREME))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    with tempfile.TemporaryDirectory() as folder:
        make(Path(sys.argv[1]), Path(folder) / "gguf_models")
        pack(Path(folder) / "gguf_models", Path(sys.argv[2]))
