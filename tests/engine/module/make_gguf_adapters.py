#!/usr/bin/env python3
"""LoRA files in GGUF, as llama.cpp's convert_lora_to_gguf.py lays them out, made from the golden PEFT adapters.

    python make_gguf_adapters.py GOLDEN OUT    # GOLDEN: the unpacked golden data; needs gguf, safetensors, numpy
    tar --sort=name --mtime='2026-01-01 UTC' --owner=0 --group=0 --numeric-owner -cf - gguf_adapters | xz -6

For the architecture llama the rows of q and k are reordered for ggml's interleaved RoPE, in lora_b as in the base.
"""
import json
import pathlib
import sys

import gguf
import numpy as np
from safetensors.numpy import load_file

NAMES = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
         "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
         "mlp.down_proj": "ffn_down"}
CASES = [("llama_gqa_tied", "lora_r4", "f32"), ("llama_gqa_tied", "alora", "f32"), ("llama_gqa_tied", "lora_r6_qv", "f16"),
         ("llama3_rope", "lora_all_linear", "f32"), ("llama3_rope", "lora_lm_head", "f32"),
         ("llama_gqa_tied", "lora_embed", "f32"), ("mistral_swa", "lora_r4", "f32"), ("qwen2_bias", "lora_r4", "f32"),
         ("qwen3_qknorm", "lora_r4", "q8_0")]


def permute(rows, heads):
    return rows.reshape(heads, 2, rows.shape[0] // heads // 2, rows.shape[1]).swapaxes(1, 2).reshape(rows.shape)


def convert(golden, model, adapter, dtype, out):
    base = json.loads((golden / "models" / model / "config.json").read_text())
    config = json.loads((golden / "adapters" / model / adapter / "adapter_config.json").read_text())
    tensors = load_file(golden / "adapters" / model / adapter / "adapter_model.safetensors")
    architecture = "llama" if base["model_type"] == "mistral" else base["model_type"]
    writer = gguf.GGUFWriter(out, architecture)
    writer.add_type("adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", config["lora_alpha"])
    if config.get("alora_invocation_tokens"):
        writer.add_array("adapter.alora.invocation_tokens", np.array(config["alora_invocation_tokens"], dtype=np.uint32).tolist())
    for key, value in sorted(tensors.items()):
        if ".base_layer." in key:
            continue
        path = key.removeprefix("base_model.model.")
        if "lora_embedding_" in path:
            half = "a" if path.endswith("_A") else "b"
            name, value = "token_embd.weight", value.T if half == "a" else value
        else:
            half = "a" if ".lora_A." in path else "b"
            path = path.split(".lora_")[0]
            if path == "lm_head":
                name = "output.weight"
            else:
                _, _, layer, rest = path.split(".", 3)
                name = f"blk.{layer}.{NAMES[rest]}.weight"
                if architecture == "llama" and half == "b" and rest in ("self_attn.q_proj", "self_attn.k_proj"):
                    heads = base["num_attention_heads" if rest.endswith("q_proj") else "num_key_value_heads"]
                    value = permute(value, heads)
        value = np.ascontiguousarray(value, dtype=np.float32)
        kind = gguf.GGMLQuantizationType[dtype.upper()]
        if dtype == "f16":
            writer.add_tensor(f"{name}.lora_{half}", value.astype(np.float16))
        elif dtype == "q8_0" and value.shape[-1] % 32 == 0:
            writer.add_tensor(f"{name}.lora_{half}", gguf.quants.quantize(value, kind), raw_dtype=kind)
        else:
            writer.add_tensor(f"{name}.lora_{half}", value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main():
    golden, out = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]) / "gguf_adapters"
    out.mkdir(parents=True, exist_ok=True)
    for model, adapter, dtype in CASES:
        convert(golden, model, adapter, dtype, out / f"{model}.{adapter}.{dtype}.gguf")


main()
