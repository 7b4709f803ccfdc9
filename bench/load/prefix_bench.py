#!/usr/bin/env python3
"""The first token of a prompt that was asked before, against the same prompt new.

    python bench/load/prefix_bench.py --attune build/attune --model models/smollm2 [--pairs 15]

One stream; each pair is a new prompt asked twice, on the base and on a LoRA. Prints ratios of medians and writes
bench/results/NAME.json. Needs safetensors and numpy.
"""
import argparse
import random
import statistics
import tempfile
from pathlib import Path

from make_modules import write_module
from served import ROOT, Server, commit, machine, save, stream


def ask(server, model, prompt):
    """(ms to the first token, prompt tokens that were cached) of one stream."""
    body = {"model": model, "prompt": prompt, "max_tokens": 4,
            "stream_options": {"include_usage": True}, "attune": {"cold": "wait"}}
    times, last = stream(server, body)
    return times[0] * 1000, last["usage"]["prompt_tokens_details"]["cached_tokens"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--attune", type=Path, default=ROOT / "build" / "attune")
    parser.add_argument("--model", type=Path, default=ROOT / "models" / "smollm2")
    parser.add_argument("--dtype", default="bf16")
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--prompt-tokens", type=int, default=512)
    parser.add_argument("--name", default="prefix")
    args = parser.parse_args()
    about, numbers = machine(), random.Random(1)
    ttft = {"base": {"new": [], "again": []}, "lora": {"new": [], "again": []}}
    with tempfile.TemporaryDirectory(prefix="attune-bench-") as folder:
        write_module(args.model, Path(folder) / "lora", seed=1, rank=16)
        with Server(args.attune, args.model, folder, args.dtype, ["model.id=base"]) as server:
            server.warm(["lora"])
            for pair in range(-1, args.pairs):
                for model, sides in ttft.items():
                    prompt = [numbers.randrange(64, 49000) for _ in range(args.prompt_tokens)]
                    for side, hit in (("new", 0), ("again", (args.prompt_tokens - 1) // 16 * 16)):
                        ms, cached = ask(server, model, prompt)
                        if cached != hit:
                            raise SystemExit(f"{model}, {side}: {cached} tokens were cached, not {hit}")
                        if pair >= 0:  # the first pair touches every page and code path
                            sides[side].append(ms)
    medians = {}
    for model, sides in ttft.items():
        new, again = (statistics.median(sides[side]) for side in ("new", "again"))
        medians[model] = {"new_ttft_ms": round(new, 2), "again_ttft_ms": round(again, 2), "ratio": round(again / new, 3)}
        print(f"{model}: first token {new:.1f} ms new, {again:.1f} ms again, ratio {again / new:.3f}")
    save(args.name, {"bench": "prefix", "model": "SmolLM2-135M-Instruct", "dtype": args.dtype,
                     "prompt_tokens": args.prompt_tokens, "pairs": args.pairs, "machine": about, "commit": commit(),
                     "command": f"python bench/load/prefix_bench.py --dtype {args.dtype} --pairs {args.pairs}",
                     "medians": medians, "ttft_ms": ttft})


if __name__ == "__main__":
    main()
