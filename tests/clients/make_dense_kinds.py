#!/usr/bin/env python3
"""Writes tests/data/dense_kinds.tar.xz: BOFT, OFT and LoKr adapters of many configs with random values, as PEFT saves them,
with the log-probabilities that transformers and PEFT give a few prompts under each.

usage: make_dense_kinds.py DATA OUT   (the unpacked test data of a build; the pack to write)
BOFT's butterflies need PEFT's CUDA extension, for one function that puts blocks on a diagonal: without it PEFT quietly
makes one stage of them. That function stands here in torch; `boft_no_extension` is what PEFT makes where there is neither.

Written with transformers 5.24.0, peft 0.21.2 and torch 2.13.0. A second run writes the same bytes.
"""
import json
import pathlib
import sys
import tempfile
import warnings

import peft.tuners.boft.layer as boft
import torch
from peft import BOFTConfig, LoKrConfig, OFTConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM
from transformers.utils import logging

from pack import write_pack

warnings.filterwarnings("ignore")
logging.set_verbosity_error()
logging.disable_progress_bar()
torch.set_num_threads(1)


class BlockDiagonal:
    """[stages, blocks, n, n] -> [stages, blocks n, blocks n], as the extension has it."""

    @staticmethod
    def apply(blocks):
        return torch.stack([torch.block_diag(*stage) for stage in blocks])


boft.FastBlockDiag = BlockDiagonal
WITH_EXTENSION = boft.get_fbd_cuda = lambda: True
QV = ["q_proj", "v_proj"]
SQUARE_AND_NOT = ["q_proj", "k_proj", "down_proj"]  # [64, 64], [32, 64] and [64, 160] in llama_gqa_tied
EXACT = {"use_cayley_neumann": False}
# model: module: (config class, what PEFT is told)
MODULES = {
    "llama_gqa_tied": {
        "boft_size4": (BOFTConfig, {"boft_block_size": 4, "boft_n_butterfly_factor": 1, "target_modules": SQUARE_AND_NOT}),
        "boft_count8": (BOFTConfig, {"boft_block_size": 0, "boft_block_num": 8, "target_modules": SQUARE_AND_NOT}),
        "boft_no_extension": (BOFTConfig, {"boft_block_size": 4, "boft_n_butterfly_factor": 2, "target_modules": QV}),
        "boft_butterfly2": (BOFTConfig, {"boft_block_size": 4, "boft_n_butterfly_factor": 2, "target_modules": SQUARE_AND_NOT}),
        "boft_butterfly2_count": (BOFTConfig, {"boft_block_size": 0, "boft_block_num": 8, "boft_n_butterfly_factor": 2,
                                               "target_modules": QV}),
        "boft_butterfly4": (BOFTConfig, {"boft_block_size": 8, "boft_n_butterfly_factor": 4, "target_modules": QV}),
        "oft_exact": (OFTConfig, {"r": 0, "oft_block_size": 8, **EXACT, "target_modules": SQUARE_AND_NOT}),
        "oft_exact_r": (OFTConfig, {"r": 4, "oft_block_size": 0, **EXACT, "target_modules": SQUARE_AND_NOT}),
        "oft_exact_shared": (OFTConfig, {"r": 0, "oft_block_size": 16, "block_share": True, **EXACT, "target_modules": SQUARE_AND_NOT}),
        "oft_exact_odd": (OFTConfig, {"r": 0, "oft_block_size": 5, **EXACT, "target_modules": ["down_proj"]}),
        "oft_neumann": (OFTConfig, {"r": 0, "oft_block_size": 8, "target_modules": SQUARE_AND_NOT}),
        **{f"oft_neumann_{n}_terms": (OFTConfig, {"r": 8, "oft_block_size": 0, "num_cayley_neumann_terms": n, "target_modules": QV})
           for n in (2, 3, 4, 6)},
        "oft_neumann_shared": (OFTConfig, {"r": 0, "oft_block_size": 8, "block_share": True, "num_cayley_neumann_terms": 8,
                                           "target_modules": SQUARE_AND_NOT}),
        "lokr_thin": (LoKrConfig, {"r": 3, "alpha": 5, "target_modules": SQUARE_AND_NOT}),
        "lokr_whole": (LoKrConfig, {"r": 64, "alpha": 16, "target_modules": SQUARE_AND_NOT}),
        "lokr_both": (LoKrConfig, {"r": 2, "alpha": 6, "decompose_both": True, "target_modules": SQUARE_AND_NOT}),
        "lokr_factor4": (LoKrConfig, {"r": 3, "alpha": 2, "decompose_factor": 4, "target_modules": SQUARE_AND_NOT}),
        "lokr_factor16_both": (LoKrConfig, {"r": 2, "alpha": 3, "decompose_both": True, "decompose_factor": 16,
                                            "target_modules": SQUARE_AND_NOT}),
        "lokr_patterns": (LoKrConfig, {"r": 4, "alpha": 4, "rank_pattern": {"v_proj": 2}, "alpha_pattern": {"layers.1.self_attn.q_proj": 9},
                                       "target_modules": QV}),
    },
    "qwen2_bias": {
        "boft_bias": (BOFTConfig, {"boft_block_size": 4, "boft_n_butterfly_factor": 2, "bias": "boft_only", "target_modules": QV}),
        "boft_all_bias": (BOFTConfig, {"boft_block_size": 8, "bias": "all", "target_modules": ["q_proj"]}),
        "oft_exact_bias": (OFTConfig, {"r": 0, "oft_block_size": 8, **EXACT, "bias": "oft_only", "target_modules": QV}),
        "lokr_biased_base": (LoKrConfig, {"r": 4, "alpha": 3, "target_modules": QV}),
    },
}
PROMPTS = [[5, 100, 31, 7, 250, 250, 19, 64, 3, 300, 42, 11], [77], list(range(20, 60, 3))]
GREEDY = 6
STRENGTH = {"boft_R": 0.6, "oft_R": 0.3, "lokr": 0.25, "bias": 0.2}


def base_model(data, model):
    return AutoModelForCausalLM.from_pretrained(data / "golden" / "models" / model, dtype=torch.float32).eval()


def make_module(data, model, name, folder, seed):
    kind, told = MODULES[model][name]
    torch.manual_seed(seed)
    adapted = get_peft_model(base_model(data, model), kind(task_type="CAUSAL_LM", **told))
    with torch.no_grad():
        for path, value in adapted.named_parameters():
            if not value.requires_grad:
                continue
            if "boft_s" in path:
                value.copy_(1 + 0.2 * torch.randn_like(value))
                continue
            strength = next(amount for part, amount in STRENGTH.items() if part in path)
            value.copy_(strength * torch.randn_like(value) + (value if "bias" in path else 0))
    adapted.save_pretrained(folder)
    (folder / "README.md").unlink()
    config = json.loads((folder / "adapter_config.json").read_text())
    config["base_model_name_or_path"] = model
    config["target_modules"].sort()  # a set's order is another one each time
    (folder / "adapter_config.json").write_text(json.dumps(config, indent=2))


def answers(made):
    """Greedy, with each token's log-probability after the first of the prompt, and the least margin of a choice."""
    cases = []
    margin = float("inf")
    with torch.no_grad():
        for prompt in PROMPTS:
            sequence = list(prompt)
            for _ in range(GREEDY):
                logits = torch.log_softmax(made(torch.tensor([sequence])).logits[0].double(), -1)
                best = torch.topk(logits[-1], 2)
                margin = min(margin, float(best.values[0] - best.values[1]))
                sequence.append(int(best.indices[0]))
            logits = torch.log_softmax(made(torch.tensor([sequence])).logits[0].double(), -1)
            cases.append({"prompt": prompt, "output": sequence[len(prompt):],
                          "logprobs": [float(logits[i, token]) for i, token in enumerate(sequence[1:])]})
    return cases, margin


def main(data, out):
    data = pathlib.Path(data)
    files = {}
    results = []
    with tempfile.TemporaryDirectory() as scratch:
        for model, modules in MODULES.items():
            plain, _ = answers(base_model(data, model))
            for name in modules:
                folder = pathlib.Path(scratch) / model / name
                boft.get_fbd_cuda = (lambda: None) if name == "boft_no_extension" else WITH_EXTENSION
                for seed in range(20):
                    make_module(data, model, name, folder, seed)
                    cases, margin = answers(PeftModel.from_pretrained(base_model(data, model), folder).eval())
                    effect = max(abs(a - b) for a, b in zip(cases[0]["logprobs"][:11], plain[0]["logprobs"][:11]))
                    if effect > 0.2 and margin > 2e-3:
                        break
                else:
                    raise SystemExit(f"{model} {name}: no seed makes telling answers")
                print(f"{model} {name}: seed {seed}, effect {effect:.3f}, least margin {margin:.4f}")
                results.append({"model": model, "module": name, "cases": cases})
                for path in sorted(folder.iterdir()):
                    files[f"dense_kinds/modules/{model}/{name}/{path.name}"] = path.read_bytes()
    files["dense_kinds/modules.json"] = json.dumps(results).encode()
    write_pack(out, files)


if __name__ == "__main__":
    main(*sys.argv[1:])
