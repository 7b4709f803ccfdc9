#!/usr/bin/env python3
"""Measures output tokens/s over HTTP at 1 and 32 streams, on the base and over 8 and 32 LoRAs, with f32 and bf16 weights.

    python bench/run_load.py --attune build/attune --model models/smollm2 [--rounds 3] [--name load]

The dtypes alternate round by round in one run, so that a change of the machine's mood hits both; figures are medians
over the rounds. Prints a table and writes bench/results/NAME.json; bench/run_peers.py compares with
other servers. Needs safetensors and numpy.
"""
import statistics
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "load"))
from make_modules import write_module  # noqa: E402
from served import Server, bench_parser, commit, machine, run_load, save, table  # noqa: E402

LORAS = [f"lora{i}" for i in range(32)]
# column -> (streams, requests, modules)
CASES = {"1 stream": (1, 4, []), "32 streams, base": (32, 64, []), "32 streams, 8 LoRAs": (32, 64, LORAS[:8]),
         "32 streams, 32 LoRAs": (32, 64, LORAS)}


def measure(args, server, streams, requests, modules, seed):
    words = ["--streams", streams, "--requests", requests, "--seed", seed, "--prompt-tokens", 109, "--max-tokens", 64]
    return run_load(args, server, *words, *(["--modules", ",".join(modules)] if modules else []))


def run_round(args, folder, dtype, number, samples):
    with Server(args.attune, args.model, folder, dtype, args.set) as server:
        server.warm(LORAS)
        measure(args, server, 8, 8, [], 0)  # touches every page and code path once
        for case, (column, (streams, requests, modules)) in enumerate(CASES.items()):
            # No prompt twice: it would come out of the prefix cache.
            line = measure(args, server, streams, requests, modules, len(CASES) * number + case)
            samples.setdefault(dtype, {}).setdefault(column, []).append(line)
            print(f"round {number}, {dtype}, {column}: {line['output_tokens_per_s']:.1f} tokens/s, "
                  f"TTFT p50 {line['ttft_ms']['p50']:.0f} ms, ITL p50 {line['itl_ms']['p50']:.1f} ms", flush=True)


def median(lines, *keys):
    values = []
    for line in lines:
        for key in keys:
            line = line[key]
        values.append(line)
    return round(statistics.median(values), 2)


def cells(row):
    for column in CASES:
        ttft = f" (TTFT {row[column]['ttft_p50_ms']:.0f} ms)" if column == "1 stream" else ""
        yield f"{row[column]['output_tokens_per_s']:.0f}{ttft}"


def main():
    parser = bench_parser(__doc__, "load")
    parser.add_argument("--dtypes", default="f32,bf16")
    parser.add_argument("--set", action="append", default=[], metavar="section.key=value")
    args = parser.parse_args()
    about, samples = machine(), {}
    with tempfile.TemporaryDirectory(prefix="attune-bench-") as folder:
        for i, name in enumerate(LORAS):
            write_module(args.model, Path(folder) / name, seed=1000 + i, rank=16)
        for number in range(1, args.rounds + 1):
            for dtype in args.dtypes.split(","):
                run_round(args, folder, dtype, number, samples)
    figures = {dtype: {column: {"output_tokens_per_s": median(lines, "output_tokens_per_s"),
                                "ttft_p50_ms": median(lines, "ttft_ms", "p50"),
                                "ttft_p99_ms": median(lines, "ttft_ms", "p99"),
                                "itl_p50_ms": median(lines, "itl_ms", "p50"),
                                "itl_p99_ms": median(lines, "itl_ms", "p99"),
                                "e2e_p50_ms": median(lines, "e2e_ms", "p50")}
                       for column, lines in columns.items()} for dtype, columns in samples.items()}
    print("\n" + table(["weights", *CASES], [(dtype, cells(row)) for dtype, row in figures.items()]) + "\n")
    save(args.name, {"bench": "load", "model": "SmolLM2-135M-Instruct", "prompt_tokens": 109, "max_tokens": 64,
                     "machine": about, "commit": commit(), "rounds": args.rounds,
                     "command": "python bench/run_load.py --rounds %d --dtypes %s" % (args.rounds, args.dtypes),
                     "settings": args.set, "medians": figures, "rounds_told": samples})


if __name__ == "__main__":
    main()
