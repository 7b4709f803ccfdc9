#!/usr/bin/env python3
"""The first token of a cold module under each policy, against the same module warm.

    python bench/load/cold_bench.py --attune build/attune --model models/smollm2 [--pairs 15]

One stream; each round makes the module cold, asks it under a policy, and asks it again warm. Prints ratios of medians
and writes bench/results/NAME.json. Needs safetensors and numpy.
"""
import argparse
import random
import statistics
import tempfile
import time
from pathlib import Path

from make_modules import write_module
from served import ROOT, Server, commit, machine, save, stream

POLICIES = ("fallback", "upgrade", "wait")


def ask(server, model, prompt, cold, max_tokens):
    """(ms to the first token, the attune record) of one stream."""
    body = {"model": model, "prompt": prompt, "max_tokens": max_tokens, "attune": {"cold": cold}}
    times, last = stream(server, body)
    return times[0] * 1000, last["attune"]


def wait_for_tier(server, name, tiers):
    deadline = time.monotonic() + 30
    while server.modules()[name]["tier"] not in tiers:
        if time.monotonic() > deadline:
            raise SystemExit(f"{name} stays {server.modules()[name]['tier']}, wanted {tiers}")
        time.sleep(0.005)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--attune", type=Path, default=ROOT / "build" / "attune")
    parser.add_argument("--model", type=Path, default=ROOT / "models" / "smollm2")
    parser.add_argument("--dtype", default="bf16")
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--prompt-tokens", type=int, default=109)
    parser.add_argument("--max-tokens", type=int, default=8)
    parser.add_argument("--name", default="cold")
    args = parser.parse_args()
    about, numbers = machine(), random.Random(1)
    prompt = lambda: [numbers.randrange(64, 49000) for _ in range(args.prompt_tokens)]
    ttft = {policy: {"cold": [], "warm": []} for policy in POLICIES}
    with tempfile.TemporaryDirectory(prefix="attune-bench-") as folder:
        write_module(args.model, Path(folder) / "lora", seed=1, rank=args.rank)
        with Server(args.attune, args.model, folder, args.dtype) as server:
            server.warm(["lora"])
            for _ in range(3):
                ask(server, "lora", prompt(), "wait", args.max_tokens)
            for _ in range(args.pairs):
                for policy in POLICIES:
                    server.call("POST", "/v1/modules/lora/unload", {})
                    wait_for_tier(server, "lora", ("cold",))
                    ms, record = ask(server, "lora", prompt(), policy, args.max_tokens)
                    if record["cold"] != policy:
                        raise SystemExit(f"asked cold under {policy}, the answer says {record['cold']}")
                    ttft[policy]["cold"].append(ms)
                    wait_for_tier(server, "lora", ("host", "resident"))
                    ask(server, "lora", prompt(), "wait", 1)
                    ms, record = ask(server, "lora", prompt(), policy, args.max_tokens)
                    if record["cold"] != "warm":
                        raise SystemExit(f"asked warm, the answer says {record['cold']}")
                    ttft[policy]["warm"].append(ms)
    medians = {}
    for policy, sides in ttft.items():
        cold, warm = (statistics.median(sides[side]) for side in ("cold", "warm"))
        medians[policy] = {"cold_ttft_ms": round(cold, 2), "warm_ttft_ms": round(warm, 2), "ratio": round(cold / warm, 3)}
        print(f"{policy}: first token {cold:.1f} ms cold, {warm:.1f} ms warm, ratio {cold / warm:.3f}")
    save(args.name, {"bench": "cold", "model": "SmolLM2-135M-Instruct", "dtype": args.dtype, "rank": args.rank,
                     "prompt_tokens": args.prompt_tokens, "pairs": args.pairs, "machine": about, "commit": commit(),
                     "command": f"python bench/load/cold_bench.py --dtype {args.dtype} --pairs {args.pairs}",
                     "medians": medians, "ttft_ms": ttft})


if __name__ == "__main__":
    main()
