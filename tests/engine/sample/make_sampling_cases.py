"""Writes sampling_cases.json: what a row of logits becomes under vLLM's parameters, computed independently with torch
and the logits processors of transformers, in vLLM's order (logit_bias, penalties, temperature, min_p, top_k, top_p).

    python make_sampling_cases.py sampling_cases.json        (torch 2.13, transformers 5.24)
"""

import json
import sys

import torch
from transformers import (
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

VOCAB = 150
TOP = 5
ROWS = {
    "peaked": lambda g: torch.randn(VOCAB, generator=g) * 4,
    "flat": lambda g: torch.randn(VOCAB, generator=g) * 0.7,
    "all_negative": lambda g: -torch.rand(VOCAB, generator=g) * 6 - 1,
}
PARAMS = [
    {},
    {"temperature": 0.3},
    {"temperature": 1.8},
    {"top_k": 1},
    {"top_k": 7},
    {"top_k": 100},
    {"top_p": 0.9},
    {"top_p": 0.35},
    {"min_p": 0.1},
    {"min_p": 0.02, "top_p": 0.8},
    {"top_k": 20, "top_p": 0.8, "temperature": 0.7},
    {"top_k": 20, "min_p": 0.05, "top_p": 0.95},
    {"repetition_penalty": 1.3},
    {"repetition_penalty": 0.8, "temperature": 0.9},
    {"frequency_penalty": 0.7, "presence_penalty": 0.4},
    {"frequency_penalty": -0.5, "presence_penalty": -1.0, "repetition_penalty": 1.1, "top_p": 0.7},
    {"logit_bias": [[3, 5.0], [77, -100.0]]},
    {"logit_bias": [[3, 5.0], [9, 2.5]], "repetition_penalty": 1.5, "top_k": 12, "min_p": 0.01},
]
PROMPT = [3, 9, 9, 20, 64, 149]
OUTPUT = [5, 5, 5, 9, 70, 149]


def probabilities(logits, params):
    x = logits.clone().unsqueeze(0)
    for token, bias in params.get("logit_bias", []):
        x[0, token] += bias
    if "repetition_penalty" in params:
        x = RepetitionPenaltyLogitsProcessor(params["repetition_penalty"])(torch.tensor([PROMPT + OUTPUT]), x)
    counts = torch.bincount(torch.tensor(OUTPUT), minlength=VOCAB)
    x = x - params.get("frequency_penalty", 0.0) * counts
    x = x - params.get("presence_penalty", 0.0) * (counts > 0)
    if "temperature" in params:
        x = TemperatureLogitsWarper(params["temperature"])(None, x)
    for name, warper in (("min_p", MinPLogitsWarper), ("top_k", TopKLogitsWarper), ("top_p", TopPLogitsWarper)):
        if name not in params:
            continue
        before = x.double().softmax(-1)[0].sort(descending=True).values
        x = warper(params[name])(None, x)
        # A case that rounding could tip over proves nothing.
        edge = before.cumsum(0) - params[name] if name == "top_p" else before / before[0] - params[name]
        if name != "top_k" and edge.abs().min() < 2e-4:
            return None
    return x.double().softmax(-1)[0]


def main():
    generator = torch.Generator().manual_seed(7)
    cases = []
    for name, make in ROWS.items():
        row = (make(generator) * 1000).round() / 1000
        assert row.unique().numel() > VOCAB // 2
        scores = row.double().log_softmax(-1)
        top = scores.topk(TOP)
        entry = {
            "row": name,
            "logits": [round(v, 3) for v in row.tolist()],
            "logprobs": [round(v, 7) for v in scores.tolist()],
            "top_ids": top.indices.tolist(),
            "cases": [],
        }
        for params in PARAMS:
            expected = probabilities(row, params)
            if expected is None:
                print("left out, too near an edge:", name, params)
                continue
            kept = [[i, float(f"{p:.7g}")] for i, p in enumerate(expected.tolist()) if p > 0]
            entry["cases"].append({"params": params, "probabilities": kept})
        cases.append(entry)
    with open(sys.argv[1], "w") as file:
        json.dump({"prompt": PROMPT, "output": OUTPUT, "rows": cases}, file, separators=(",", ":"))
        file.write("\n")


main()
