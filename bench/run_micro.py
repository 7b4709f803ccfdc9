#!/usr/bin/env python3
"""The kernels alone, beside what the machine allows: attention, sampling and hashing, and matrix products at 1 to 512
rows in each weight dtype and for both sizes of model, as shares of the limit measured in the same run and as ratios to
libtorch (int8 and 4-bit weights, and bf16_dot, bf16 weights and activations: to our own bf16).

    python bench/run_micro.py --build build [--sizes smollm2,1b] [--dtypes bf16,bf16_dot,f32,int8,int4] [--threads 2]

Prints one table per size and dtype and writes bench/results/micro.json.
"""
import argparse
import json
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "load"))
from served import ROOT, commit, machine, save, table  # noqa: E402


def run(command):
    told = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if told.returncode != 0:
        raise SystemExit(f"{command[0]}: {told.stderr}")
    return [json.loads(line) for line in told.stdout.splitlines()]


def product_table(lines):
    counts = sorted({line["rows"] for line in lines})
    rows = []
    for product in dict.fromkeys(line["product"] for line in lines):
        of = {line["rows"]: line for line in lines if line["product"] == product}
        rows.append((f"{product} {of[counts[0]]['in']}→{of[counts[0]]['out']}",
                     [f"{of[n]['of_limit']:.2f} ({of[n].get('of_libtorch') or of[n]['of_bf16']:.1f}×)" for n in counts]))
    return table(["product", *(f"{n} rows" for n in counts)], rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, default=ROOT / "build")
    parser.add_argument("--sizes", default="smollm2,1b")
    parser.add_argument("--dtypes", default="bf16,bf16_dot,f32,int8,int4")
    parser.add_argument("--threads", default="2")
    parser.add_argument("--name", default="micro")
    args = parser.parse_args()
    result = {"bench": "micro", "machine": machine(), "commit": commit(), "limits": {}, "gemm": []}
    for size in args.sizes.split(","):
        limits, *lines = run([args.build / "gemm_bench", "--size", size, "--dtypes", args.dtypes, "--threads", args.threads])
        result["limits"][size] = limits
        result["gemm"] += [{"size": size, **line} for line in lines]
        for dtype in args.dtypes.split(","):
            print(f"\n{size}, {dtype}, {args.threads} threads: share of the limit (ratio to "
                  f"{'libtorch' if dtype in ('f32', 'bf16') else 'our bf16'})\n")
            own = [line for line in lines if line["dtype"] == dtype]
            print(product_table(own) if own else "This processor has no such products.", flush=True)
    result["parts"] = run([args.build / "parts_bench", "--threads", args.threads])
    print("\nBesides products, share of the limit:\n")
    for line in result["parts"]:
        what = {key: value for key, value in line.items() if key not in ("bench", "kernels", "of_limit")}
        print(f"- {line['bench']} {what}: {line['of_limit']:.2f}", flush=True)
    save(args.name, result)


if __name__ == "__main__":
    main()
