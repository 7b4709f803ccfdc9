#!/usr/bin/env python3
"""Makes tests/data/fuzz_seeds.tar.xz: small inputs for the fuzz targets, cut from the parity data and written here.

    make_seeds.py PARITY OUT.tar.xz     PARITY is the unpacked tests/data/parity.tar.xz (its folder parity/)
"""
import io
import json
import math
import pathlib
import struct
import sys
import tarfile

TOKENIZERS = ["gpt2", "llama3", "llama2", "llama2_legacy", "gemma", "o200k", "deepseek_v3", "metaspace_split",
              "added_zoo", "spm_unk", "mistral_v3"]
KEPT_TOKENS = 60
TEXT = "Hello  world, 12 ☃ naïve's\n\t<s> 你好"


def cut_tokenizer(config):
    """The first tokens and the merges that need no other, plus whatever the rest of the file names."""
    model = config["model"]
    names = sorted(model["vocab"], key=model["vocab"].get)
    added = {token["content"] for token in config["added_tokens"][:8]}
    kept = [name for name in names if len(name) == 1 or name.startswith("<0x")][:KEPT_TOKENS]
    known = set(kept)
    merges = []
    for merge in model["merges"]:
        left, right = merge.split(" ") if isinstance(merge, str) else merge
        if left in known and right in known and len(merges) < 20:
            merges.append(merge)
            known.add(left + right)
    config["added_tokens"] = config["added_tokens"][:8]
    specials = set(config.get("post_processor") and json.dumps(config["post_processor"]).split('"') or [])
    wanted = [name for name in names if name in known or name in added or name in specials or name == model["unk_token"]]
    model["vocab"] = {name: index for index, name in enumerate(wanted)}
    model["merges"] = merges
    for index, token in enumerate(config["added_tokens"]):
        token["id"] = model["vocab"].get(token["content"], len(wanted) + index)
    ids = {**model["vocab"], **{token["content"]: token["id"] for token in config["added_tokens"]}}
    renumber(config.get("post_processor"), ids)
    return config


def renumber(post_processor, ids):
    """Lets a post-processor add its tokens by their new ids."""
    for step in (post_processor or {}).get("processors", []):
        renumber(step, ids)
    for special in (post_processor or {}).get("special_tokens", {}).values():
        special["ids"] = [ids[token] for token in special["tokens"]]


def added(number, content):
    return {"id": number, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
            "special": True}


def framed(before, after):
    """Tokens around a text, as a post-processor."""
    parts = [{"SpecialToken": {"id": name, "type_id": 0}} for name in before] + [{"Sequence": {"id": "A", "type_id": 0}}]
    parts += [{"SpecialToken": {"id": name, "type_id": 0}} for name in after]
    return {"type": "TemplateProcessing", "single": parts, "pair": [],
            "special_tokens": {name: {"id": name, "ids": [number], "tokens": [name]}
                               for name, number in {**before, **after}.items()}}


PIECES = ["<pad>", "</s>", "<unk>", "\u2581", "a", "b", "s", "<", "/", ">", "\u2581a", "ab", "12", "\u2581He", "llo"]
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "b", "he", "##llo", "##a", "[", "]", "cls", "##s", "1", "##2", ",", "\u4f60"]
OTHER_TOKENIZERS = {
    "unigram": {"added_tokens": [added(0, "<pad>"), added(1, "</s>"), added(2, "<unk>")],
                "normalizer": {"type": "Sequence", "normalizers": [{"type": "NFKC"}, {"type": "Replace", "pattern": {"Regex": " {2,}"},
                                                                                      "content": " "}]},
                "pre_tokenizer": {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": True},
                "post_processor": framed({}, {"</s>": 1}),
                "decoder": {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": True},
                "model": {"type": "Unigram", "unk_id": 2, "byte_fallback": False,
                          "vocab": [[piece, -number / 4] for number, piece in enumerate(PIECES)]}},
    "unigram_bytes": {"added_tokens": [added(1, "</s>")], "decoder": {"type": "ByteFallback"},
                      "model": {"type": "Unigram", "unk_id": 2, "byte_fallback": True,
                                "vocab": [[piece, -1.5] for piece in PIECES] + [[f"<0x{byte:02X}>", -9.0] for byte in range(256)]}},
    "word_piece": {"added_tokens": [added(number, WORDS[number]) for number in range(4)],
                   "normalizer": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None,
                                  "lowercase": True},
                   "pre_tokenizer": {"type": "BertPreTokenizer"}, "post_processor": framed({"[CLS]": 2}, {"[SEP]": 3}),
                   "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
                   "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                             "max_input_chars_per_word": 20, "vocab": {word: number for number, word in enumerate(WORDS)}}},
}


def templates(parity):
    for folder in sorted((parity / "chat_templates").iterdir()):
        if not folder.is_dir():
            continue
        source = (folder / "template.jinja").read_text()
        cases = [json.loads(line) for line in (folder / "cases.jsonl").read_text().splitlines()]
        yield folder.name, source + "\0" + json.dumps(cases[len(cases) // 2]["messages"], ensure_ascii=False)
    lines = (parity / "chat_templates" / "one_liners.jsonl").read_text().splitlines()
    for number, line in enumerate(lines[::3]):
        yield f"one_liner_{number}", json.loads(line)["template"]


REQUESTS = [
    {"model": "base", "prompt": "hi", "max_tokens": 3, "temperature": 0.5, "top_p": 0.9, "top_k": 5, "min_p": 0.1,
     "n": 2, "stop": ["a", "b"], "seed": 7, "logprobs": 2, "echo": True, "logit_bias": {"3": -1.5}},
    {"model": "base", "prompt": [1, 2, 3], "stream": True, "stream_options": {"include_usage": True},
     "stop_token_ids": [4], "ignore_eos": True, "min_tokens": 1},
    {"model": "auto", "prompt": [[1], [2, 3]], "prompt_logprobs": 1, "user": "ann", "cache_salt": "x"},
    {"model": "code", "messages": [{"role": "user", "content": "hi"}], "logprobs": True, "top_logprobs": 2,
     "attune": {"modules": [{"name": "code", "weight": 0.5}], "combine": "sequence", "cold": "wait",
                "timeout_ms": 5, "task_id": "t", "tags": ["x"], "priority": 1, "deadline_ms": 9}},
    {"model": "base", "messages": [{"role": "user", "content": [{"type": "text", "text": "a"},
                                                                  {"type": "text", "text": "\u00e9"}]},
                                    {"role": "assistant", "content": None, "tool_calls": [{"id": "c"}]},
                                    {"role": "tool", "content": "1", "tool_call_id": "c"}],
     "tools": [{"type": "function", "function": {"name": "f"}}], "documents": [{"title": "t"}],
     "chat_template_kwargs": {"enable_thinking": False}, "continue_final_message": True,
     "response_format": {"type": "text"}},
    {"type": "request", "id": "r1", "endpoint": "completions", "body": {"model": "base", "prompt": "hi"}},
    {"type": "request", "id": "r2", "endpoint": "chat.completions",
     "body": {"model": "base", "messages": [{"role": "user", "content": "hi"}]}},
    {"type": "cancel", "id": "r1"}, {"type": "hello", "user": "ann"},
    {"lora_name": "x", "lora_path": "/m/x", "load_inplace": True, "expected_generation": "3f"},
    {"model": "base", "prompt": "x", "add_special_tokens": False},
    {"model": "base", "tokens": [1, 2, 999]},
    {"model": "base", "messages": [{"role": "user", "content": "x"}], "add_generation_prompt": False},
    [1e308, -0.0, 1e-7, 18446744073709551615, True, None, "\ud83d\ude00\u0000"],
]

CONFIGS = [
    {"peft_type": "LORA", "r": 2, "lora_alpha": 4, "target_modules": ["q_proj"], "base_model_name_or_path": "b",
     "bias": "none", "task_type": "CAUSAL_LM", "use_rslora": True, "modules_to_save": None},
    {"peft_type": "LORA", "r": 2, "lora_alpha": 4.5, "target_modules": r".*\.(q|v)_proj$",
     "rank_pattern": {r"layers\.[01]\..*q_proj": 2}, "alpha_pattern": {"q_proj": 3},
     "exclude_modules": ["mlp"], "layers_to_transform": [0, 1], "layers_pattern": "layers"},
    {"peft_type": "LORA", "target_modules": "all-linear", "r": 2, "use_dora": True, "lora_bias": True},
    {"peft_type": "LORA", "r": 2, "target_modules": ["q_proj"], "alora_invocation_tokens": [1, 2],
     "trainable_token_indices": [3], "modules_to_save": ["lm_head"]},
    {"peft_type": "MISS", "r": 2, "mini_r": 1, "init_weights": "bat", "target_modules": ["q_proj"]},
    {"peft_type": "VERA", "r": 2, "projection_prng_key": 0, "save_projection": True, "target_modules": ["q_proj"]},
    {"peft_type": "OFT", "oft_block_size": 2, "r": 0, "use_cayley_neumann": True, "target_modules": ["q_proj"]},
    {"peft_type": "LOKR", "r": 2, "alpha": 2, "decompose_both": True, "target_modules": ["q_proj"]},
    {"peft_type": "IA3", "target_modules": ["k_proj", "down_proj"], "feedforward_modules": ["down_proj"]},
    {"peft_type": "PREFIX_TUNING", "num_virtual_tokens": 2, "token_dim": 8, "num_layers": 2},
    {"format": 1, "name": "legal", "version": "1.0", "description": "d", "license": "MIT",
     "base": {"match": "checkpoint", "checkpoint": "sha256:aaaa"},
     "adapter": {"path": "adapter", "scale": 0.5},
     "routing": {"task_ids": ["a"], "tags": ["b"], "keywords": ["法条"], "priority": 10},
     "serving": {"cold": "wait", "pin": True, "owner": "ann"}},
    {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 8, "intermediate_size": 16,
     "num_attention_heads": 2, "num_key_value_heads": 1, "num_hidden_layers": 2, "vocab_size": 32, "head_dim": 4,
     "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "hidden_act": "silu", "rope_theta": 10000.0,
     "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                      "original_max_position_embeddings": 32}, "tie_word_embeddings": True},
    {"model_type": "mistral", "hidden_size": 8, "intermediate_size": 16, "num_attention_heads": 2,
     "num_hidden_layers": 2, "vocab_size": 32, "max_position_embeddings": 64, "rms_norm_eps": 1e-5,
     "sliding_window": 16, "layer_types": ["full_attention", "sliding_attention"],
     "rope_scaling": {"type": "yarn", "factor": 4.0, "beta_fast": 32, "mscale": 1}},
]

PATTERNS = [r".*\.(q|v)_proj$", r"model\.layers\.(?:[0-9]|1[0-5])\.mlp\.(?!gate)\w+", r"^a{2,5}?b+\b[^x-z\d]\Z",
            r"(?=.*q)(a|b|)*c??", r"[\]\-a\s]+|\x41\u00e9"]

ROUTES = ["""default = "sentiment"
[[rule]]
modules = ["code", {name = "x", weight = 0.5}]
keywords = ["code", "代码", "Straße"]
task_ids = ["t"]
tags = ["code"]
priority = 10
[[rule]]
modules = []
users = ["ann"]
owner = "ann-key"
keywords = ["my notes"]
[users]
ann = { tags = ["code"], modules = ["legal"] }
\0ann my NOTES ｃｏｄｅ 代码""", "[[rule]]\nmodules = [\"a\"]\nkeywords = [\"a\", \"aa\", \"aba\"]\n\0abaa aba"]


class Gguf:
    """A small file of the format, version 3."""

    U8, U32, I32, F32, BOOL, STRING, ARRAY = 0, 4, 5, 6, 7, 8, 9
    PACKED = {U8: "<B", U32: "<I", I32: "<i", F32: "<f", BOOL: "<?"}

    def __init__(self):
        self.keys, self.tensors = [], []

    @staticmethod
    def text(value):
        data = value.encode("utf-8", "surrogatepass")
        return struct.pack("<Q", len(data)) + data

    def packed(self, kind, value):
        return self.text(value) if kind == self.STRING else struct.pack(self.PACKED[kind], value)

    def add(self, key, kind, value):
        if isinstance(value, list):
            head = struct.pack("<IIQ", self.ARRAY, kind, len(value))
            data = head + b"".join(self.packed(kind, one) for one in value)
        else:
            data = struct.pack("<I", kind) + self.packed(kind, value)
        self.keys.append(self.text(key) + data)
        return self

    def add_tensor(self, name, shape):
        """F32, of small numbers."""
        self.tensors.append((name, shape))
        return self

    def file(self):
        infos, values, at = [], b"", 0
        for name, shape in self.tensors:
            count = math.prod(shape)
            infos.append(self.text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *reversed(shape), 0, at))
            data = b"".join(struct.pack("<f", index % 7 / 8) for index in range(count))
            values += data + bytes(-len(data) % 32)
            at = len(values)
        head = b"GGUF" + struct.pack("<IQQ", 3, len(infos), len(self.keys)) + b"".join(self.keys + infos)
        return head + bytes(-len(head) % 32) + values


def gguf_tokenizers(parity):
    """The cut tokenizers as a GGUF file holds them: byte-level ones, and SentencePiece's with scores."""
    key = "tokenizer.ggml."
    for name, pre in (("gpt2", "gpt-2"), ("llama3", "llama-bpe"), ("o200k", "gpt-4o"), ("deepseek_v3", "deepseek-v3")):
        config = cut_tokenizer(json.loads((parity / "tokenizers" / name / "tokenizer.json").read_text()))
        merges = [one if isinstance(one, str) else " ".join(one) for one in config["model"]["merges"]]
        tokens = list(config["model"]["vocab"])
        special = [token["content"] for token in config["added_tokens"] if token["content"] not in tokens]
        file = Gguf().add("general.architecture", Gguf.STRING, "llama").add(key + "model", Gguf.STRING, "gpt2")
        file.add(key + "pre", Gguf.STRING, pre).add(key + "tokens", Gguf.STRING, tokens + special)
        file.add(key + "token_type", Gguf.I32, [1] * len(tokens) + [3, 4] * (len(special) // 2) + [3] * (len(special) % 2))
        file.add(key + "merges", Gguf.STRING, merges).add(key + "bos_token_id", Gguf.U32, len(tokens))
        yield name, file.add(key + "eos_token_id", Gguf.U32, 0).add(key + "add_bos_token", Gguf.BOOL, True).file()
    pieces = ["<unk>", "<s>", "</s>", "\u2581", "a", "b", "\u2581a", "ab", "\u2581ab", "<0x0A>", "s", "<", ">", "<tool>"]
    file = Gguf().add(key + "model", Gguf.STRING, "llama").add(key + "tokens", Gguf.STRING, pieces)
    file.add(key + "scores", Gguf.F32, [0.0] * 3 + [-float(index) for index in range(len(pieces) - 3)])
    file.add(key + "token_type", Gguf.I32, [2, 3, 3, 1, 1, 1, 1, 1, 1, 6, 1, 1, 1, 4]).add(key + "unknown_token_id", Gguf.U32, 0)
    file.add(key + "bos_token_id", Gguf.U32, 1).add(key + "eos_token_id", Gguf.U32, 2)
    yield "scored", file.add(key + "add_space_prefix", Gguf.BOOL, True).file()
    yield "scored_collapsed", file.add(key + "remove_extra_whitespaces", Gguf.BOOL, True).file()


def gguf_modules():
    def adapter():
        file = Gguf().add("general.architecture", Gguf.STRING, "llama").add("general.type", Gguf.STRING, "adapter")
        return file.add("adapter.type", Gguf.STRING, "lora").add("adapter.lora.alpha", Gguf.F32, 4.0)

    file = adapter()
    for name, inside, out in (("attn_q", 8, 8), ("attn_k", 8, 4), ("attn_output", 8, 8), ("ffn_gate", 8, 16), ("ffn_down", 16, 8)):
        file.add_tensor(f"blk.1.{name}.weight.lora_a", [2, inside]).add_tensor(f"blk.1.{name}.weight.lora_b", [out, 2])
    yield "lora", file.file()
    file = adapter().add("adapter.alora.invocation_tokens", Gguf.U32, [3, 31])
    file.add_tensor("token_embd.weight.lora_a", [32, 2]).add_tensor("token_embd.weight.lora_b", [8, 2])
    yield "alora", file.add_tensor("output.weight.lora_a", [1, 8]).add_tensor("output.weight.lora_b", [32, 1]).file()
    file = Gguf().add("general.architecture", Gguf.STRING, "controlvector").add("controlvector.layer_count", Gguf.I32, 2)
    yield "control_vector", file.add_tensor("direction.1", [8]).file()


def tars():
    """As tar and Python write them; small ones in each form of a name."""
    for name, form in (("ustar", tarfile.USTAR_FORMAT), ("pax", tarfile.PAX_FORMAT), ("gnu", tarfile.GNU_FORMAT)):
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w", format=form) as pack:
            folder = tarfile.TarInfo("adapter")
            folder.type = tarfile.DIRTYPE
            pack.addfile(folder)
            for path in ("module_config.json", "./adapter/adapter_config.json", "d" * 60 + "/" + "n" * 60 + ".json"):
                entry = tarfile.TarInfo(path if form == tarfile.USTAR_FORMAT else path.replace("n", "\u00e9"))
                entry.size = 2
                pack.addfile(entry, io.BytesIO(b"{}"))
        data = out.getvalue().rstrip(b"\0")
        yield name, data + bytes(-len(data) % 512 + 1024)
    link = io.BytesIO()
    with tarfile.open(fileobj=link, mode="w", format=tarfile.USTAR_FORMAT) as pack:
        entry = tarfile.TarInfo("adapter_config.json")
        entry.type, entry.linkname = tarfile.SYMTYPE, "../../etc/passwd"
        pack.addfile(entry)
    yield "link", link.getvalue()[:1024]


HEADS = ["GET /v1/modules\0localhost:80", "POST /v1/modules/a%20b/load?x=1\0[::1]:8000",
         "POST /v1/chat/completions\0https://chat.example", "DELETE /v1/models/%ff\0127.9.0.1", "GET *\0http://[::2]:80"]


def seeds(parity):
    for name in TOKENIZERS:
        config = cut_tokenizer(json.loads((parity / "tokenizers" / name / "tokenizer.json").read_text()))
        yield f"tokenizer/{name}", json.dumps(config, ensure_ascii=False) + "\0" + TEXT
    for name, config in OTHER_TOKENIZERS.items():
        yield f"tokenizer/{name}", json.dumps(config, ensure_ascii=False) + "\0" + TEXT
    texts = [TEXT, "don't stop  \r\n\r\n x=1;\n", "<|endoftext|><s>[INST] a</s>", "日本語テキスト 한국어", "e\u0301\u200d🏳️‍🌈 \u00a0"]
    count = len(TOKENIZERS) + len(OTHER_TOKENIZERS)
    for number, text in enumerate(texts * count):
        yield f"text/{number}", chr(number % count) + text
    yield from ((f"chat_template/{name}", text) for name, text in templates(parity))
    for folder, items in (("request", REQUESTS), ("module_config", CONFIGS)):
        yield from ((f"{folder}/{number}", json.dumps(item)) for number, item in enumerate(items))
    for folder, items in (("path_pattern", PATTERNS), ("routing", ROUTES), ("http_head", HEADS)):
        yield from ((f"{folder}/{number}", item) for number, item in enumerate(items))
    yield from ((f"gguf_tokenizer/{name}", data) for name, data in gguf_tokenizers(parity))
    yield from ((f"gguf_module/{name}", data) for name, data in gguf_modules())
    yield from ((f"tar_index/{name}", data) for name, data in tars())
    yield "path_pattern/path", PATTERNS[0] + "\0model.layers.3.self_attn.q_proj"


def main():
    parity, out = pathlib.Path(sys.argv[1]), sys.argv[2]
    with tarfile.open(out, "w:xz", preset=9, format=tarfile.USTAR_FORMAT) as pack:
        for name, text in sorted(seeds(parity), key=lambda seed: seed[0]):
            data = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
            entry = tarfile.TarInfo("fuzz_seeds/" + name)
            entry.size = len(data)
            pack.addfile(entry, io.BytesIO(data))


if __name__ == "__main__":
    main()
