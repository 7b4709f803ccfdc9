#!/usr/bin/env python3
"""Writes tests/data/new_tokens.tar.xz: adapters whose tokenizer has more added tokens than the base's, as PEFT saves them,
with what transformers and PEFT make of texts that hold these tokens; and the ids that the tokenizers library gives for
the parity tokenizers with more added tokens.

usage: make_new_tokens.py DATA OUT   (the unpacked test data of a build; the pack to write)
Written with transformers 5.24.0, peft 0.21.2, tokenizers 0.23.3 and torch 2.13.0. A second run writes the same bytes.
"""
import json
import pathlib
import sys
import tempfile
import warnings

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from tokenizers import AddedToken, Tokenizer
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast
from transformers.utils import logging

from pack import write_pack

warnings.filterwarnings("ignore")
logging.set_verbosity_error()
logging.disable_progress_bar()
torch.set_num_threads(1)

NEW = [AddedToken("<|tool|>", special=True, normalized=False), AddedToken("<step>", special=False, normalized=False),
       AddedToken("rome", special=False, normalized=True, single_word=True)]
LORA = {"r": 4, "lora_alpha": 8, "task_type": "CAUSAL_LM", "init_lora_weights": False, "target_modules": ["q_proj", "v_proj"]}
# model, module: what PEFT is told; `N` stands for the new ids
MODULES = {
    ("llama_gqa_tied", "plain"): {},
    ("llama_gqa_tied", "saved"): {"modules_to_save": ["embed_tokens", "lm_head"]},
    ("llama_gqa_tied", "trained"): {"trainable_token_indices": "N"},
    ("llama_gqa_tied", "embedded"): {"target_modules": ["q_proj", "embed_tokens"]},
    ("llama3_rope", "plain"): {},
    ("llama3_rope", "trained"): {"trainable_token_indices": "N"},
    ("mistral_swa", "inside"): {"trainable_token_indices": "N"},  # its table has rows left
}
PROMPTS = ["<|tool|>the weather<step> in rome", "hello there <|tool|>", "<step>", "a rome, aromes and rome<step>rome"]
GREEDY = 12


def opened(folder, model):
    config = json.loads((folder / "tokenizer_config.json").read_text())
    return PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"), eos_token=config["eos_token"],
                                   bos_token=config.get("bos_token"))


def base_model(data, model, rows):
    made = AutoModelForCausalLM.from_pretrained(data / "golden" / "models" / model, dtype=torch.float32)
    if rows > made.config.vocab_size:
        made.resize_token_embeddings(rows, mean_resizing=False)
    return made.eval()


def set_new_rows(made, ids):
    """Rows that differ from all others; the first token's is such that it is often the most likely one."""
    with torch.no_grad():
        tables = {id(t): t for t in (made.get_input_embeddings().weight, made.get_output_embeddings().weight)}
        for table in tables.values():
            for at, token in enumerate(ids):
                table[token] = torch.randn(table.shape[1]) * table[:300].std() * (4.0 if at == 0 else 1.0)


def make_module(data, model, name, folder, seed):
    torch.manual_seed(seed)
    tokenizer = opened(data / "chats" / model, model)
    own = len(tokenizer)
    tokenizer.add_tokens(NEW)
    ids = list(range(own, own + len(NEW)))
    assert tokenizer.convert_tokens_to_ids([t.content for t in NEW]) == ids
    made = base_model(data, model, len(tokenizer))
    options = {**LORA, **MODULES[model, name]}
    if options.get("trainable_token_indices") == "N":
        options["trainable_token_indices"] = ids
    if name != "inside":
        set_new_rows(made, ids)
    adapted = get_peft_model(made, LoraConfig(**options))
    with torch.no_grad():
        for path, value in adapted.named_parameters():
            if "lora_" in path:
                value.copy_(torch.randn_like(value) * 0.1)
            elif "trainable_tokens_delta" in path:
                table = made.get_input_embeddings().weight
                value.copy_(torch.randn_like(value) * table[:300].std() * torch.tensor([[4.0], [1.0], [1.0]]))
            elif "modules_to_save" in path:
                value[70:100] += 0.1  # rows of the base's, too
    adapted.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    (folder / "README.md").unlink()
    config = json.loads((folder / "adapter_config.json").read_text())
    config["base_model_name_or_path"] = model
    (folder / "adapter_config.json").write_text(json.dumps(config, indent=2))
    return ids


def expected(data, model, folder, ids):
    tokenizer = opened(folder, model)
    made = PeftModel.from_pretrained(base_model(data, model, len(tokenizer)), folder).eval()
    cases = []
    with torch.no_grad():
        for prompt in PROMPTS:
            tokens = tokenizer(prompt)["input_ids"]
            scores = []  # of each token after the first: its log-probability, given those before
            margins = []
            sequence = list(tokens)
            for _ in range(GREEDY):
                logits = torch.log_softmax(made(torch.tensor([sequence])).logits[0].double(), -1)
                if not scores:
                    scores = [float(logits[i, token]) for i, token in enumerate(tokens[1:])]
                best = torch.topk(logits[-1], 2)
                margins.append(float(best.values[0] - best.values[1]))
                sequence.append(int(best.indices[0]))
                scores.append(float(best.values[0]))
            cases.append({"prompt": prompt, "ids": tokens, "output": sequence[len(tokens):], "logprobs": scores,
                          "margins": margins, "text": tokenizer.decode(sequence[len(tokens):], skip_special_tokens=True),
                          "shown": tokenizer.decode(sequence[len(tokens):], skip_special_tokens=False)})
    return {"model": model, "module": folder.name, "new_ids": ids, "cases": cases}


def is_telling(result):
    """No near-tie, and an answer that holds a new token; mistral_swa's head keeps the base's rows, which were not trained."""
    margin = min(m for case in result["cases"] for m in case.pop("margins"))
    used = {token for case in result["cases"] for token in case["output"]} & set(result["new_ids"])
    return margin > 5e-3 and (len(used) > 0 or result["module"] == "inside")


FLAGS = [AddedToken("<|new|>", special=True, normalized=False), AddedToken("<plain>", special=False, normalized=False),
         AddedToken("ＷＩＤＥ", special=False, normalized=True), AddedToken("word", special=False, normalized=False, single_word=True),
         AddedToken("<l>", special=True, normalized=False, lstrip=True), AddedToken("<r>", special=False, normalized=False, rstrip=True),
         AddedToken("<|new|>longer", special=False, normalized=False)]
TEXTS = ["<|new|>", "a<|new|>b", "word words sword word", "some text <l> and <r>  more\n", "ＷＩＤＥ wide WIDE ＷＩＤＥx", "<plain><plain> <|new|>longer",
         "  <|new|> 你好 <plain>é", "no token here at all", "<|new", "<r> \n\t<l>"]


def tokenizer_rows(folder, name):
    """As the library reads them, with control tokens and without."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    own = json.loads((folder / "tokenizer.json").read_text())
    known = {token["content"] for token in own["added_tokens"]}
    for token in FLAGS:
        (tokenizer.add_special_tokens if token.special else tokenizer.add_tokens)([token])
    listed = json.loads(tokenizer.to_str())["added_tokens"]
    tokenizer = Tokenizer.from_str(tokenizer.to_str())  # as a module's file is read
    contents = {token["id"]: token["content"] for token in listed}
    rows = []
    for text in TEXTS:
        tokenizer.encode_special_tokens = False
        ids = tokenizer.encode(text).ids
        # tokenizers 0.23 shows an added token as the normalizer has it; 0.21 and we, as it is listed.
        as_listed = all(tokenizer.id_to_token(i) == contents.get(i, tokenizer.id_to_token(i)) for i in ids)
        decoded = tokenizer.decode(ids, skip_special_tokens=False) if as_listed else None
        skipped = tokenizer.decode(ids, skip_special_tokens=True) if as_listed else None
        tokenizer.encode_special_tokens = True
        rows.append({"text": text, "ids": ids, "decoded": decoded, "skipped": skipped,
                     "literal": tokenizer.encode(text, add_special_tokens=False).ids})
    return {"tokenizer": name, "added": [token for token in listed if token["content"] not in known], "rows": rows}


def main(data, out):
    data = pathlib.Path(data)
    files = {}
    results = []
    with tempfile.TemporaryDirectory() as scratch:
        for model, name in MODULES:
            folder = pathlib.Path(scratch) / model / name
            for seed in range(100):
                ids = make_module(data, model, name, folder, seed)
                result = expected(data, model, folder, ids)
                if is_telling(result):
                    break
            else:
                raise SystemExit(f"{model} {name}: no seed makes telling answers")
            print(model, name, "seed", seed, [case["shown"] for case in result["cases"]][:2])
            results.append(result)
            for path in sorted(folder.iterdir()):
                files[f"new_tokens/modules/{model}/{name}/{path.name}"] = path.read_bytes()
    files["new_tokens/modules.json"] = json.dumps(results).encode()
    folders = {"smollm2": data / "parity" / "smollm2"}
    folders.update({p.parent.name: p.parent for p in sorted((data / "parity" / "tokenizers").glob("*/tokenizer.json"))})
    lines = [json.dumps(tokenizer_rows(folder, name)) for name, folder in folders.items()]
    files["new_tokens/tokenizers.jsonl"] = "".join(line + "\n" for line in lines).encode()
    write_pack(out, files)


if __name__ == "__main__":
    main(*sys.argv[1:])
