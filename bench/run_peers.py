#!/usr/bin/env python3
"""attune, llama.cpp and vLLM on the same machine, one after the other, with the same requests: output tokens/s over
HTTP at 1 and 32 streams, on the base and over 8 and 32 LoRAs, and the time to the first token of a 512-token prompt.

    tools/setup.sh peers && python bench/run_peers.py [--model models/smollm2] [--rounds 3] [--only "attune bf16,llama.cpp bf16"]

All servers are asked by the same client (attune_load), with the same token ids, greedy, end tokens ignored, on all
cores. The rounds alternate over the servers, so that a change of the machine's mood hits all; figures are medians over
the rounds. Prints each server's row and attune's ratios to its peers of the same weight width, and writes
bench/results/NAME.json. A server whose program or weights are missing is left out and named, one that fails likewise.
"""
import http.client
import os
import shlex
import socket
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "load"))
from make_modules import write_module  # noqa: E402
from served import ROOT, Child, Server, bench_parser, commit, machine, run_load, save, table  # noqa: E402

PEERS = ROOT / ".peers"
LLAMA = PEERS / "llama" / "bin"
VENV = PEERS / "venv" / "bin"
SLOT_TOKENS = 640  # llama.cpp shares its context out evenly: room for the longest request in each slot
STREAMS = 32

# column -> (streams, requests, LoRAs, prompt tokens, tokens out); the figure is tokens/s, or milliseconds for "TTFT".
CASES = {
    "1 stream": (1, 4, 0, 109, 64),
    "32 streams, base": (STREAMS, 64, 0, 109, 64),
    "TTFT of 512 tokens": (1, 4, 0, 512, 1),
    "32 streams, 8 LoRAs": (STREAMS, 32, 8, 109, 64),
    "32 streams, 32 LoRAs": (STREAMS, 32, 32, 109, 64),
}
# attune that multiplies rounded activations, as its peers always do.
ROUNDED = "attune bf16 (bf16 activations)"
# name -> (kind, weights, attune's dtype, the peers it is compared with, attune's settings)
SERVERS = {
    "attune bf16": ("attune", "folder", "bf16", ("llama.cpp bf16", "vLLM bf16"), []),
    ROUNDED: ("attune", "folder", "bf16", ("llama.cpp bf16", "vLLM bf16"), ["model.activations=bf16"]),
    "llama.cpp bf16": ("llama", "bf16", None, (), []),
    "vLLM bf16": ("vllm", "folder", None, (), []),
    "attune int8": ("attune", "folder", "int8", ("llama.cpp q8_0", "attune bf16"), []),
    "llama.cpp q8_0": ("llama", "q8_0", None, (), []),
    "attune q4_0": ("attune", "q4_0", "auto", ("llama.cpp q4_0",), []),
    "llama.cpp q4_0": ("llama", "q4_0", None, (), []),
}


def answers(server, path):
    try:
        connection = http.client.HTTPConnection(server[0], server[1], timeout=5)
        connection.request("GET", path)
        return connection.getresponse().status == 200
    except OSError:
        return False


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


class Weights:
    """The model and its LoRAs in every format that a server wants, made once in `folder`."""

    def __init__(self, model, folder):
        self.model, self.folder = model, folder
        self.loras = [folder / "modules" / f"lora{i}" for i in range(max(case[2] for case in CASES.values()))]
        for i, lora in enumerate(self.loras):
            write_module(model, lora, seed=1000 + i, rank=16)

    def _convert(self, script, *words):
        env = dict(os.environ, PYTHONPATH=str(PEERS / "llama.cpp" / "gguf-py"))
        subprocess.run([VENV / "python", PEERS / "llama.cpp" / script, *map(str, words)], env=env, check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def of(self, kind):
        if kind == "folder":
            return self.model
        path = self.folder / f"{kind}.gguf"
        if not path.exists() and kind == "bf16":
            self._convert("convert_hf_to_gguf.py", self.model, "--outtype", "bf16", "--outfile", path)
        elif not path.exists():
            subprocess.run([LLAMA / "llama-quantize", self.of("bf16"), path, kind], check=True,
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return path

    def gguf_loras(self, count):
        paths = []
        for lora in self.loras[:count]:
            paths.append(self.folder / f"{lora.name}.gguf")
            if not paths[-1].exists():
                self._convert("convert_lora_to_gguf.py", lora, "--base", self.model, "--outtype", "bf16",
                              "--outfile", paths[-1])
        return paths


def start(args, name, loras, made):
    kind, weights, dtype, _, settings = SERVERS[name]
    threads = str(os.cpu_count())
    if kind == "attune":
        return Server(args.attune, made.of(weights), made.folder / "modules", dtype, settings + args.set)
    port = free_port()
    ready = lambda _: answers(("127.0.0.1", port), "/health") and ("127.0.0.1", port)  # noqa: E731
    if kind == "llama":
        command = [LLAMA / "llama-server", "-m", made.of(weights), "--host", "127.0.0.1", "--port", port, "-t", threads,
                   "-np", STREAMS, "-c", STREAMS * SLOT_TOKENS, "--no-webui"]
        for lora in made.gguf_loras(loras):
            command += ["--lora", lora]
        if loras:
            command.append("--lora-init-without-apply")
        return Child(list(map(str, command)), ready)
    command = [VENV / "vllm", "serve", made.of(weights), "--host", "127.0.0.1", "--port", port, "--dtype", "bfloat16",
               "--max-model-len", 2048, "--max-num-seqs", 64, "--served-model-name", "base"]
    if loras:
        # It computes every slot's product for every row: more slots are slower.
        command += ["--enable-lora", "--max-loras", 8, "--max-cpu-loras", loras, "--max-lora-rank", 16, "--lora-modules"]
        command += [f"{lora.name}={lora}" for lora in made.loras[:loras]]
    env = dict(os.environ, HF_HUB_OFFLINE="1", VLLM_NO_USAGE_STATS="1", DO_NOT_TRACK="1", VLLM_CPU_KVCACHE_SPACE="3")
    return Child(list(map(str, command)), ready, env)


def measure(args, kind, server, case, seed):
    streams, requests, loras, prompt, out = case
    words = ["--streams", streams, "--requests", requests, "--seed", seed, "--prompt-tokens", prompt, "--max-tokens", out,
             "--timeout", 3000]
    if loras and kind == "llama":
        words += ["--lora-ids", "--modules", ",".join(map(str, range(loras)))]
    elif loras:
        words += ["--modules", ",".join(f"lora{i}" for i in range(loras))]
    line = run_load(args, server, *words)
    return line["ttft_ms"]["p50"] if out == 1 else line["output_tokens_per_s"]


def run_server(args, name, made, number, samples):
    kind, weights, *_ = SERVERS[name]
    for with_loras in (False, True):
        cases = {column: case for column, case in CASES.items() if (case[2] > 0) == with_loras and column in args.columns}
        if not cases or (with_loras and weights != ("bf16" if kind == "llama" else "folder")):
            continue
        with start(args, name, max(case[2] for case in cases.values()), made) as server:
            if kind == "attune" and with_loras:
                server.warm([lora.name for lora in made.loras])
            warm_up = (8, 8, max(case[2] for case in cases.values()) and 8, 109, 8)
            measure(args, kind, server, warm_up, 99)
            for index, (column, case) in enumerate(cases.items()):
                # No prompt twice: it would come out of a prefix cache.
                figure = measure(args, kind, server, case, len(CASES) * number + index + 1)
                samples.setdefault(name, {}).setdefault(column, []).append(figure)
                print(f"round {number}, {name}, {column}: {figure:.1f}", flush=True)


def missing(name, args):
    kind = SERVERS[name][0]
    program = {"attune": args.attune, "llama": LLAMA / "llama-server", "vllm": VENV / "vllm"}[kind]
    return None if Path(program).exists() else program.name


def ratios(figures):
    told = {}
    for name, row in figures.items():
        for peer in SERVERS[name][3]:
            for column, figure in row.items():
                if column in figures.get(peer, {}):
                    faster = figures[peer][column] / figure if column.startswith("TTFT") else figure / figures[peer][column]
                    told.setdefault(f"{name} / {peer}", {})[column] = round(faster, 2)
    return told


def rows_of(figures, columns, digits):
    for name, row in figures.items():
        yield name, [f"{row[column]:.{digits}f}" if column in row else "–" for column in columns]


def main():
    parser = bench_parser(__doc__, "peers")
    parser.add_argument("--only", help="names of servers, comma separated", default=",".join(SERVERS))
    parser.add_argument("--columns", type=lambda text: text.split(";"), default=list(CASES), help="separated by ;")
    parser.add_argument("--set", action="append", default=[], metavar="section.key=value")
    args = parser.parse_args()
    args.model = args.model.resolve()
    about, samples = machine(), {}
    names = args.only.split(",")
    for name in [name for name in names if missing(name, args)]:
        print(f"left out: {name}, as {missing(name, args)} is not there")
        names.remove(name)
    with tempfile.TemporaryDirectory(prefix="attune-peers-") as folder:
        made = Weights(args.model, Path(folder))
        for number in range(1, args.rounds + 1):
            for name in names:
                try:
                    run_server(args, name, made, number, samples)
                except SystemExit as fault:  # one peer that fails does not cost the others their figures
                    print(f"round {number}, {name} failed: {fault}", flush=True)
    figures = {name: {column: round(statistics.median(values), 1) for column, values in row.items()}
               for name, row in samples.items()}
    columns = ["", *args.columns]
    print("\nOutput tokens/s, and milliseconds to the first token:\n\n" + table(columns, rows_of(figures, args.columns, 0)))
    print("\nTimes faster:\n\n" + table(columns, rows_of(ratios(figures), args.columns, 2)) + "\n")
    save(args.name, {"bench": "peers", "model": args.model.name, "machine": about, "commit": commit(),
                     "rounds": args.rounds, "command": shlex.join(["python", "bench/run_peers.py", "--rounds",
                                                                   str(args.rounds), "--only", args.only]),
                     "medians": figures, "ratios": ratios(figures), "rounds_told": samples})


if __name__ == "__main__":
    main()
