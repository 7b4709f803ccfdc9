#!/usr/bin/env python3
"""One step of the model with modules in it, and what surrounds a step, without a server.

    python bench/run_steps.py --build build --model models/smollm2 [--rounds 3]

- decode throughput of 32 rows with 32 different modules of each kind, as a ratio to the base alone;
- the share of a step spent outside the model, at 32 and at 256 rows;
- installing a module of rank 16, as a ratio to copying its bytes;
- merging one into the whole base and restoring it, as ratios to copying the touched bytes (hashing apart).

Every case takes its turn in each round; medians over the rounds, beside the bars. Writes bench/results/NAME.json.
"""
import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "load"))
from served import ROOT, commit, machine, save  # noqa: E402

MODULES = "32"
# what -> (program, its options, the figure, the bar and on which side of it we want to be)
CASES = {
    "LoRA r16 on q k v o": ("model_step_bench", ["--kind", "lora", "--projections", "qkvo"], "ratio", ">= 0.90"),
    "LoRA r16 on all seven": ("model_step_bench", ["--kind", "lora", "--projections", "qkvogud"], "ratio", ">= 0.80"),
    "DoRA r16 on q k v o": ("model_step_bench", ["--kind", "dora"], "ratio", ">= 0.85"),
    "MiSS r16 on q k v o": ("model_step_bench", ["--kind", "miss"], "ratio", ">= 0.85"),
    "State, bottleneck 256 on 8 layers": ("model_step_bench", ["--kind", "state"], "ratio", ">= 0.85"),
    "prefix of 32": ("model_step_bench", ["--kind", "prefix"], "ratio", ">= 0.95"),
    "outside the model, 32 rows": ("step_overhead_bench", ["--rows", "32"], "outside_share", "<= 0.03"),
    "outside the model, 256 rows": ("step_overhead_bench", ["--rows", "256"], "outside_share", "<= 0.03"),
    "install, of a memcpy": ("lora_bench", ["--projections", "qkvo"], "install_of_memcpy", "<= 3"),
    "merge, of a memcpy": ("merge_bench", ["--restore-from", "file"], "merge_ratio", "<= 2"),
    "restore from the file, of a memcpy": ("merge_bench", ["--restore-from", "file"], "restore_ratio", "<= 2"),
    "restore from a clone, of a memcpy": ("merge_bench", ["--restore-from", "clone"], "restore_ratio", "<= 2"),
}


def run(command):
    told = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if told.returncode != 0:
        raise SystemExit(f"{command[0]}: {told.stderr}")
    return json.loads(told.stdout.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, default=ROOT / "build")
    parser.add_argument("--model", type=Path, default=ROOT / "models/smollm2")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", default="2")
    parser.add_argument("--name", default="steps")
    args = parser.parse_args()
    about, samples = machine(), {case: [] for case in CASES}
    for _ in range(args.rounds):
        told = {}  # two figures of one run are measured once
        for case, (program, options, figure, _) in CASES.items():
            command = (program, *options, "--threads", args.threads)
            if program != "lora_bench":
                command += ("--model", str(args.model))
            if program in ("lora_bench", "model_step_bench"):
                command += ("--modules", MODULES)
            if command not in told:
                told[command] = run([args.build / command[0], *command[1:]])
            samples[case].append(told[command][figure])
    figures = {case: round(statistics.median(values), 3) for case, values in samples.items()}
    for case, figure in figures.items():
        print(f"steps: {case}: {figure} (bar {CASES[case][3]})")
    save(args.name, {"bench": "steps", "model": args.model.name, "machine": about, "commit": commit(), "rounds": args.rounds,
                     "threads": args.threads, "command": f"python bench/run_steps.py --rounds {args.rounds}",
                     "bars": {case: bar for case, (*_, bar) in CASES.items()}, "figures": figures, "samples": samples})


if __name__ == "__main__":
    main()
