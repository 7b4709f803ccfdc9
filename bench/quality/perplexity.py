#!/usr/bin/env python3
"""What weights in fewer bits cost: the perplexity of bench/quality/text.txt (prose and code, written for this) under each
dtype, asked for over HTTP, as ratios to the same weights in full.

    python bench/quality/perplexity.py [--attune build/attune] [--model models/smollm2] [--gguf models/smollm2.gguf]
                                       [--llama FOLDER] [--window 512] [--save]

Windows of so many tokens, one after the other; each token of a window's second half counts, given all before it (as
llama.cpp's llama-perplexity does). "regrouped" is the same model with its dimensions in another order (regroup.py), the
fair case for a model that was once 4-bit. With --llama (a folder that holds llama-perplexity, llama-quantize and
convert_hf_to_gguf.py somewhere, as .peers does after tools/setup.sh peers) llama.cpp's own types are measured beside it.
Ends with an error when a ratio is beyond its margin: f32 and rounded activations 0.5 %, int8 and a file as stored 1 %, int4 10 %, and 40 % where
135 million weights are rounded to 4 bits for the second time.
"""
import argparse
import math
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "load"))
from served import ROOT, Server, commit, machine, save  # noqa: E402

TEXT = Path(__file__).resolve().with_name("text.txt")
# bf16 weights that multiply rounded activations (model.activations).
ROUNDED = "bf16, bf16 activations"
MARGIN = {"f32": 0.005, "bf16": 0.0, ROUNDED: 0.005, "int8": 0.01, "int4": 0.10, "auto": 0.01, "regrouped int4": 0.40}


def perplexity(attune, model, dtype, window):
    settings = ["model.activations=bf16"] if dtype == ROUNDED else []
    with (tempfile.TemporaryDirectory(prefix="attune-none-") as modules,
          Server(attune, model, modules, dtype.split(",")[0], settings) as server):
        name = server.call("GET", "/v1/models")["data"][0]["id"]
        ids = server.call("POST", "/tokenize", {"model": name, "prompt": TEXT.read_text(), "add_special_tokens": False})
        ids = ids["tokens"]
        total, count = 0.0, 0
        for first in range(0, len(ids) - window + 1, window):
            answer = server.call("POST", "/v1/completions", {
                "model": name, "prompt": ids[first:first + window], "max_tokens": 0, "echo": True, "logprobs": 0})
            scores = answer["choices"][0]["logprobs"]["token_logprobs"][window // 2 + 1:]
            total -= sum(scores)
            count += len(scores)
        megabytes = re.search(r"^attune_weight_bytes\S* (\S+)", server.call("GET", "/metrics"), re.MULTILINE)
        return math.exp(total / count), count, round(float(megabytes[1]) / 1e6, 1) if megabytes else None


class Llama:
    """llama.cpp's tools; files are made in `folder` on first use."""

    def __init__(self, tools, folder):
        self.folder = folder
        self.programs = {}
        for word in ("llama-perplexity", "llama-quantize", "convert_hf_to_gguf.py"):
            found = [path for path in sorted(tools.rglob(word)) if path.is_file()]
            if not found:
                raise SystemExit(f"{tools} holds no {word}")
            self.programs[word] = found[0]
        venv = tools / "venv" / "bin" / "python"
        self.python = venv if venv.exists() else sys.executable

    def perplexity(self, label, model, kind, window):
        full = self.folder / f"{label}.gguf"
        if not full.exists():
            script = self.programs["convert_hf_to_gguf.py"]
            env = dict(os.environ, PYTHONPATH=str(script.parent / "gguf-py"))
            subprocess.run([self.python, script, model, "--outtype", "bf16", "--outfile", full], env=env, check=True,
                           capture_output=True)
        path = full
        if kind != "bf16":
            path = self.folder / f"{label}.{kind}.gguf"
            subprocess.run([self.programs["llama-quantize"], full, path, kind], check=True, capture_output=True)
        told = subprocess.run([self.programs["llama-perplexity"], "-m", path, "-f", TEXT, "-c", str(window)], check=True,
                              capture_output=True, text=True)
        return float(re.search(r"PPL = ([0-9.]+)", told.stdout + told.stderr)[1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--attune", type=Path, default=ROOT / "build" / "attune")
    parser.add_argument("--model", type=Path, default=ROOT / "models" / "smollm2")
    parser.add_argument("--gguf", type=Path, default=ROOT / "models" / "smollm2.gguf")
    parser.add_argument("--llama", type=Path)
    parser.add_argument("--window", type=int, default=512)
    parser.add_argument("--save", action="store_true")
    args = parser.parse_args()
    rows, beyond = [], []
    with tempfile.TemporaryDirectory(prefix="attune-quality-") as made:
        regrouped = Path(made) / "regrouped"
        subprocess.run([sys.executable, Path(__file__).with_name("regroup.py"), args.model, regrouped], check=True)
        llama = Llama(args.llama, Path(made)) if args.llama else None
        for label, path, dtypes in (("folder", args.model, ("bf16", ROUNDED, "f32", "int8", "int4")),
                                    ("regrouped", regrouped, ("bf16", "int8", "int4")),
                                    ("GGUF file", args.gguf, ("bf16", "auto"))):
            full = None
            for dtype in dtypes:
                value, tokens, megabytes = perplexity(args.attune, path, dtype, args.window)
                full = full or value
                ratio = value / full
                rows.append({"program": "attune", "weights": label, "dtype": dtype, "perplexity": round(value, 4),
                             "of_full": round(ratio, 4), "tokens": tokens, "weight_mb": megabytes})
                print(f"{label:10} {dtype:5} {value:9.4f}  {ratio:.4f}  {megabytes} MB", flush=True)
                if ratio > 1 + MARGIN.get(f"{label} {dtype}", MARGIN[dtype]):
                    beyond.append(f"{label} {dtype}")
            if not llama or label == "GGUF file":
                continue
            full = None
            for kind in ("bf16", "q8_0", "q4_0", "q4_1"):
                value = llama.perplexity(label, path, kind, args.window)
                full = full or value
                rows.append({"program": "llama.cpp", "weights": label, "dtype": kind, "perplexity": value,
                             "of_full": round(value / full, 4)})
                print(f"{label:10} llama.cpp {kind:5} {value:9.4f}  {value / full:.4f}", flush=True)
    if args.save:
        save("quality", {"bench": "quality", "machine": machine(), "commit": commit(), "window": args.window, "rows": rows})
    if beyond:
        raise SystemExit("beyond its margin: " + ", ".join(beyond))


if __name__ == "__main__":
    main()
