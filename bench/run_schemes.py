#!/usr/bin/env python3
"""Three ways to serve several tasks on the same cores, under the same load:

    (a) one full process per task, each with its module resident
    (b) one process, all modules resident
    (c) one process, three modules pinned and room for two more

    python bench/run_schemes.py --attune build/attune --model models/smollm2 [--rounds 3] [--tasks 3,30]

Columns: memory (PSS of all processes, after the load), the tasks held without a load from disk, what a module adds to
the first token against the base on the same server when warm, and when cold under `wait` and under the default policy,
goodput at the SLO, and the P95 of the first token and of the gap between tokens. Every scheme is asked for the tasks in
turn by as many streams as there are tasks, at least six. The bars: (c) at most 1.1 times (b)'s P95s at three tasks, and
at most 0.45 times (a)'s memory. Schemes alternate round by round; writes bench/results/NAME.json. Needs safetensors and
numpy.
"""
import contextlib
import json
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "load"))
from make_modules import write_module  # noqa: E402
from served import Server, bench_parser, commit, load_command, machine, save, stream, table  # noqa: E402

PINNED, MORE = 3, 2
KV_MIB_PER_STREAM = 8  # some 350 tokens: what a stream needs, so that no scheme's prefix cache hoards memory
SLO = ("--slo-ttft-ms", "1000", "--slo-itl-ms", "100")


def pss(process):
    """MiB of memory, shared pages divided among those who share them."""
    told = Path(f"/proc/{process.pid}/smaps_rollup").read_text()
    return int(re.search(r"^Pss:\s+(\d+) kB", told, re.MULTILINE)[1]) / 1024


class Scheme:
    """The servers of one scheme and which of them answers for which task."""

    def __init__(self, args, name, tasks, roots, slot, stack):
        servers = len(tasks) if name == "a" else 1
        self.streams = max(6, len(tasks)) // servers
        room = {"a": 1, "b": len(tasks), "c": PINNED + MORE}[name]
        settings = [f"model.kv_bytes={self.streams * KV_MIB_PER_STREAM}MiB", f"modules.device_bytes={slot * room}",
                    *args.set]
        if name == "a":
            servers = [stack.enter_context(Server(args.attune, args.model, roots[task], args.dtype,
                                                  [*settings, f"modules.pinned={task}"])) for task in tasks]
            self.of = dict(zip(tasks, servers))
            self.held = len(tasks)
        else:
            held = tasks if name == "b" else tasks[:PINNED]
            server = stack.enter_context(Server(args.attune, args.model, roots["all"], args.dtype,
                                                [*settings, "modules.pinned=" + ",".join(held)]))
            self.of = dict.fromkeys(tasks, server)
            self.held = min(len(tasks), room)
        self.servers = list(dict.fromkeys(self.of.values()))

    def load(self, args, seed):
        """The report of each server's client, all at once."""
        clients = []
        for server in self.servers:
            mine = [task for task in self.of if self.of[task] is server]
            command = load_command(args, server, "--streams", self.streams, "--requests", 4 * self.streams, "--modules",
                                   ",".join(mine), "--seed", seed, *SLO)
            clients.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        reports = []
        for client in clients:
            told, _ = client.communicate()
            if client.returncode != 0:
                raise SystemExit(told)
            reports.append(json.loads(told))
        return reports


def first_token_ms(server, model, numbers, cold=None):
    body = {"model": model, "prompt": [numbers.randrange(64, 49000) for _ in range(109)], "max_tokens": 4}
    if cold:
        body["attune"] = {"cold": cold}
    return stream(server, body)[0][0] * 1000


def extra_first_token(scheme, task, numbers):
    """What the module adds to the base's first token, in ms: warm, cold under `wait`, cold under the default."""
    server = scheme.of[task]
    base = server.call("GET", "/v1/models")["data"][0]["id"]
    told = {"base": [], "warm": [], "wait": [], "default": []}
    server.warm([task])
    for _ in range(5):
        told["base"].append(first_token_ms(server, base, numbers))
        told["warm"].append(first_token_ms(server, task, numbers))
        for policy in ("wait", "default"):
            # A pinned one cannot leave: it is never cold.
            if server.modules()[task]["pinned"]:
                told[policy].append(told["warm"][-1])
                continue
            server.call("POST", f"/v1/modules/{task}/unload", {})
            told[policy].append(first_token_ms(server, task, numbers, policy if policy == "wait" else None))
            server.warm([task])
    middle = {name: statistics.median(values) for name, values in told.items()}
    return {name: middle[name] - middle["base"] for name in ("warm", "wait", "default")}


def run_round(args, name, tasks, roots, slot, number):
    with contextlib.ExitStack() as stack:
        scheme = Scheme(args, name, tasks, roots, slot, stack)
        scheme.load(args, 1000 + number)  # touches every page once
        reports = scheme.load(args, number)
        # With several servers the slowest one's P95 is what its users feel.
        told = {"memory_mib": sum(pss(server.process) for server in scheme.servers), "held": scheme.held,
                "goodput_per_s": sum(report["goodput_per_s"] for report in reports),
                "ttft_p95_ms": max(report["ttft_ms"]["p95"] for report in reports),
                "itl_p95_ms": max(report["itl_ms"]["p95"] for report in reports)}
        extra = extra_first_token(scheme, tasks[-1], random.Random(number))
        return {**told, **{f"extra_ttft_{key}_ms": value for key, value in extra.items()}}


def main():
    parser = bench_parser(__doc__, "schemes")
    parser.add_argument("--dtype", default="bf16")
    parser.add_argument("--tasks", default="3,30")
    parser.add_argument("--set", action="append", default=[], metavar="section.key=value")
    args = parser.parse_args()
    about, result = machine(), {}
    counts = [int(count) for count in args.tasks.split(",")]
    with tempfile.TemporaryDirectory(prefix="attune-bench-") as folder:
        folder = Path(folder)
        names = [f"task{i}" for i in range(max(counts))]
        roots = {"all": folder / "all"}
        for i, name in enumerate(names):
            write_module(args.model, roots["all"] / name, seed=3000 + i)
            roots[name] = folder / name
            roots[name].mkdir()
            shutil.copytree(roots["all"] / name, roots[name] / name)
        with Server(args.attune, args.model, roots["all"], args.dtype) as server:
            server.warm(names[:1])
            slot = server.modules()[names[0]]["bytes"]
        for count in counts:
            rounds = {"a": [], "b": [], "c": []}
            for number in range(1, args.rounds + 1):
                for name in rounds:
                    rounds[name].append(run_round(args, name, names[:count], roots, slot, number))
                    print(f"{count} tasks, round {number}, ({name}): {json.dumps(rounds[name][-1])}", flush=True)
            middle = {name: {key: round(statistics.median(told[key] for told in lines), 2) for key in lines[0]}
                      for name, lines in rounds.items()}
            result[str(count)] = {
                "schemes": middle,
                "c_over_b": {key: round(middle["c"][key] / middle["b"][key], 3) for key in ("ttft_p95_ms", "itl_p95_ms")},
                "c_over_a_memory": round(middle["c"]["memory_mib"] / middle["a"]["memory_mib"], 3)}
            rows = [(f"({name})", [f"{value:.1f}" for value in row.values()]) for name, row in middle.items()]
            print(f"\n{count} tasks\n\n" + table(["scheme", *middle["a"]], rows))
            print(f"\n(c) / (b): {result[str(count)]['c_over_b']}, memory (c) / (a): {result[str(count)]['c_over_a_memory']}\n",
                  flush=True)
    save(args.name, {"bench": "schemes", "model": "SmolLM2-135M-Instruct", "dtype": args.dtype, "machine": about,
                     "commit": commit(), "rounds": args.rounds,
                     "command": f"python bench/run_schemes.py --rounds {args.rounds} --tasks {args.tasks}", **result})


if __name__ == "__main__":
    main()
