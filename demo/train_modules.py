#!/usr/bin/env python3
"""Trains the demo's three LoRA modules on SmolLM2-135M-Instruct with PEFT and measures them on text held out.

    python demo/train_modules.py --base models/smollm2 [code legal sentiment]

Writes demo/modules/<name>/ (a plain PEFT folder, bfloat16) and demo/modules/results.json. Seeds are fixed; needs
torch, transformers and peft. A module takes a few minutes on two cores.
"""
import argparse
import json
import math
import random
import time
from pathlib import Path

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from peft.utils import get_peft_model_state_dict
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

import sentiment_text
import training_text

BASE_NAME = "HuggingFaceTB/SmolLM2-135M-Instruct"
TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj"]
RANK, ALPHA = 8, 16
SEED = 20261130
IGNORED = -100  # cross entropy's label of positions that do not count


class Text:
    """Turns text into rows of (ids, labels)."""

    def __init__(self, base):
        self.tokenizer = AutoTokenizer.from_pretrained(base)
        self.end = self.tokenizer.eos_token_id  # <|im_end|>

    def ids(self, text):
        return self.tokenizer(text, add_special_tokens=False)["input_ids"]

    def prompt(self, question):
        return self.tokenizer.apply_chat_template(
            [{"role": "user", "content": question}], add_generation_prompt=True, tokenize=True, return_dict=False)

    def windows(self, texts, width, seed=None, count=None):
        """Plain windows of `width` tokens; `count` random ones, or in order when no seed is given."""
        rows = []
        for text in texts:
            ids = self.ids(text)
            rows += [ids[i:i + width] for i in range(0, len(ids) - width + 1, width)]
        if seed is not None:
            random.Random(seed).shuffle(rows)
        return [(row, row) for row in rows[:count]]

    def answer_row(self, question, answer, width):
        """A chat turn; only the answer counts."""
        head, tail = self.prompt(question), self.ids(answer) + [self.end]
        row = (head + tail)[:width]
        return row, ([IGNORED] * len(head) + tail)[:width]


def batch(rows, pad):
    width = max(len(ids) for ids, _ in rows)
    ids = torch.tensor([r + [pad] * (width - len(r)) for r, _ in rows])
    labels = torch.tensor([r + [IGNORED] * (width - len(r)) for _, r in rows])
    mask = torch.tensor([[1] * len(r) + [0] * (width - len(r)) for r, _ in rows])
    return ids, labels, mask


def loss_of(model, rows, pad):
    """(sum of negative log-likelihoods, how many tokens) of the positions that count."""
    ids, labels, mask = batch(rows, pad)
    target = labels[:, 1:]
    inner = model.get_base_model() if isinstance(model, PeftModel) else model
    hidden = inner.model(input_ids=ids, attention_mask=mask).last_hidden_state  # [rows, tokens, hidden]
    keep = target != IGNORED
    # Logits of the counted positions only: the vocabulary is a fifth of this model's work.
    logits = inner.lm_head(hidden[:, :-1][keep])
    return torch.nn.functional.cross_entropy(logits, target[keep], reduction="sum"), int(keep.sum())


@torch.no_grad()
def perplexity(model, rows, pad):
    total, tokens = 0.0, 0
    for i in range(0, len(rows), 8):
        loss, count = loss_of(model, rows[i:i + 8], pad)
        total, tokens = total + float(loss), tokens + count
    return math.exp(total / tokens)


@torch.no_grad()
def accuracy(model, text, pairs):
    """Share of pairs whose right word is likelier than the other as the answer's first token."""
    words = [text.ids(w)[0] for w in ("positive", "negative")]
    right = 0
    for question, label in pairs:
        logits = model(input_ids=torch.tensor([text.prompt(question)])).logits[0, -1]
        right += (logits[words[0]] > logits[words[1]]) == (label == "positive")
    return float(right) / len(pairs)


def task_of(name, text):
    """(training rows, steps, batch, learning rate, {measure: function of the model}) of one module."""
    pad = text.end
    if name in ("code", "legal"):
        files = {"code": training_text.code_files, "legal": training_text.legal_files}[name]
        pairs = {"code": training_text.code_pairs, "legal": training_text.legal_pairs}[name]
        train, held = files()
        plain = text.windows(train, 160, SEED, 700)
        chat = [text.answer_row(q, a, 192) for q, a in pairs(train, 300, SEED + 1)]
        rows = plain + chat
        held_plain = text.windows(held, 256, SEED + 2, 48)
        held_chat = [text.answer_row(q, a, 256) for q, a in pairs(held, 48, SEED + 3)]
        measures = {"held-out text, perplexity": lambda m: perplexity(m, held_plain, pad),
                    "held-out answers, perplexity": lambda m: perplexity(m, held_chat, pad)}
        return rows, 130, 4, 8e-4, measures
    rows = [text.answer_row(q, a, 96) for q, a in sentiment_text.training_pairs(900, SEED)]
    ask = "Answer with one word, positive or negative: {}".format
    words, sentences = sentiment_text.held_out_words(SEED + 2), sentiment_text.held_out_sentences()
    measures = {
        "held-out words, asked, accuracy": lambda m: accuracy(m, text, [(ask(t), y) for t, y in words]),
        "held-out sentences, asked, accuracy": lambda m: accuracy(m, text, [(ask(t), y) for t, y in sentences]),
        "held-out sentences alone, accuracy": lambda m: accuracy(m, text, sentences)}
    return rows, 90, 6, 5e-4, measures


def train(model, rows, steps, size, rate, pad, name):
    """Plain AdamW with a short warm-up and a cosine down to a tenth."""
    weights = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(weights, lr=rate, weight_decay=0.0, betas=(0.9, 0.99))
    order, queue = random.Random(SEED + 4), []
    model.train()
    start = time.time()
    for step in range(steps):
        warm = min(1.0, (step + 1) / 8)
        now = rate * warm * (0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * step / steps)))
        for group in optimizer.param_groups:
            group["lr"] = now
        if len(queue) < size:
            queue = order.sample(rows, len(rows))
        picked, queue = queue[:size], queue[size:]
        loss, count = loss_of(model, picked, pad)
        (loss / count).backward()
        torch.nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if step % 10 == 0 or step == steps - 1:
            print(f"{name}: step {step:3} loss {float(loss.detach()) / count:.3f} {time.time() - start:.0f} s", flush=True)
    model.eval()


def save(model, folder):
    """A plain PEFT folder. Written here, since PEFT's own config carries this machine's path of the base."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {k: v.detach().to(torch.bfloat16).contiguous() for k, v in sorted(get_peft_model_state_dict(model).items())}
    save_file(tensors, folder / "adapter_model.safetensors", metadata={"format": "pt"})
    (folder / "adapter_config.json").write_text(json.dumps({
        "base_model_name_or_path": BASE_NAME, "bias": "none", "fan_in_fan_out": False, "inference_mode": True,
        "init_lora_weights": True, "lora_alpha": ALPHA, "lora_dropout": 0.0, "modules_to_save": None,
        "peft_type": "LORA", "r": RANK, "rank_pattern": {}, "alpha_pattern": {}, "revision": None,
        "target_modules": TARGETS, "task_type": "CAUSAL_LM", "use_dora": False, "use_rslora": False}, indent=2) + "\n")


def main():
    here = Path(__file__).resolve().parent
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=["code", "legal", "sentiment"])
    parser.add_argument("--base", type=Path, required=True, help="the folder that convert_smollm2.py writes")
    parser.add_argument("--out", type=Path, default=here / "modules")
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    text = Text(args.base)
    for name in args.names:
        torch.manual_seed(SEED)
        model = AutoModelForCausalLM.from_pretrained(args.base, dtype=torch.float32).eval()
        rows, steps, size, rate, measures = task_of(name, text)
        before = {what: measure(model) for what, measure in measures.items()}
        print(name, "base:", before, flush=True)
        model = get_peft_model(model, LoraConfig(r=RANK, lora_alpha=ALPHA, target_modules=TARGETS, task_type="CAUSAL_LM"))
        started = time.time()
        train(model, rows, steps, size, rate, text.end, name)
        seconds = time.time() - started
        save(model, args.out / name)
        # What is measured is what was saved: rounded to bfloat16.
        with torch.no_grad():
            for weight in model.parameters():
                if weight.requires_grad:
                    weight.copy_(weight.to(torch.bfloat16))
        after = {what: measure(model) for what, measure in measures.items()}
        print(name, "module:", after, flush=True)
        path = args.out / "results.json"
        results = json.loads(path.read_text()) if path.exists() else {}
        results[name] = {"steps": steps, "batch": size, "learning_rate": rate, "seconds": round(seconds),
                         "threads": args.threads,
                         "held_out": {what: {"base": round(before[what], 4), "module": round(after[what], 4)}
                                      for what in measures}}
        path.write_text(json.dumps(results, indent=2, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
