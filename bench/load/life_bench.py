#!/usr/bin/env python3
"""What modules that come and go cost those who use the server meanwhile.

    python bench/load/life_bench.py --attune build/attune --model models/smollm2 [--rounds 3] [--only thrash|big]

`thrash`: two groups of modules take turns in bursts under `wait`, together larger than the memory for modules; the P95
of the first token against the same load on a server with room for all (the bar: 1.3), and reloads per module and minute.
`big`: a module of more than 200 MB is loaded again and again beside 8 streams of the base; the P95 of the gap between
tokens against the same streams without it (the bar: 1.1). Servers alternate round by round; writes
bench/results/NAME.json. Needs safetensors and numpy.
"""
import random
import re
import statistics
import tempfile
import threading
import time
from pathlib import Path

from make_modules import ATTENTION, MLP, write_module
from served import Server, bench_parser, commit, machine, save, stream

GROUPS = (["a0", "a1", "a2", "a3"], ["b0", "b1", "b2", "b3"])
STREAMS = 8


def felt(server, body):
    """(ms to the first token, gaps in ms) of one answer."""
    times, _ = stream(server, body)
    return times[0] * 1000, [(b - a) * 1000 for a, b in zip(times, times[1:])]


def in_parallel(count, work):
    """work(i) on `count` threads; their results in order."""
    results, faults = [None] * count, []

    def one(i):
        try:
            results[i] = work(i)
        except BaseException as fault:  # told below, by the thread that reports
            faults.append(fault)

    threads = [threading.Thread(target=one, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if faults:
        raise faults[0]
    return results


def p95(values):
    return statistics.quantiles(values, n=20)[-1]


def prompt(numbers, tokens):
    return [numbers.randrange(64, 49000) for _ in range(tokens)]


def reloads(server):
    text = server.call("GET", "/metrics")
    return sum(float(value) for value in re.findall(r"^attune_module_reloads_total\{.*\} (\S+)$", text, re.MULTILINE))


def thrash_round(args, folder, settings, seed):
    """First tokens of every request of bursts that alternate between the groups; reloads, and how long it took."""
    numbers = random.Random(seed)
    with Server(args.attune, args.model, folder, args.dtype, settings) as server:
        server.warm(GROUPS[0] + GROUPS[1])
        began, before, first = time.monotonic(), reloads(server), []
        for burst in range(args.bursts):
            group = GROUPS[burst % 2]
            asked = [{"model": group[i % len(group)], "prompt": prompt(numbers, 109), "max_tokens": 16,
                      "attune": {"cold": "wait"}} for i in range(args.burst_requests)]
            per_thread = [asked[i::4] for i in range(4)]
            for times in in_parallel(4, lambda i: [felt(server, body)[0] for body in per_thread[i]]):
                first += times
        return first, reloads(server) - before, (time.monotonic() - began) / 60


def thrash(args):
    roomy, tight = [], []
    counted, minutes = 0, 0.0
    with tempfile.TemporaryDirectory(prefix="attune-bench-") as folder:
        for i, name in enumerate(GROUPS[0] + GROUPS[1]):
            write_module(args.model, Path(folder) / name, seed=2000 + i)
        with Server(args.attune, args.model, folder, args.dtype) as server:
            server.warm(["a0"])
            slot = server.modules()["a0"]["bytes"]
        # Room for five of eight, in slots and in host memory (parsed copies are no larger than twice a slot).
        small = [f"modules.device_bytes={5 * slot + slot // 2}", f"modules.host_bytes={11 * slot}"]
        for number in range(args.rounds):
            roomy += thrash_round(args, folder, [], number)[0]
            times, more, took = thrash_round(args, folder, small, number)
            tight, counted, minutes = tight + times, counted + more, minutes + took
    ratio = p95(tight) / p95(roomy)
    rate = counted / len(GROUPS[0] + GROUPS[1]) / minutes
    print(f"thrash: P95 of the first token {p95(tight):.1f} ms in turns, {p95(roomy):.1f} ms with room for all, "
          f"ratio {ratio:.3f}; {rate:.1f} reloads per module and minute")
    return {"bursts": args.bursts, "burst_requests": args.burst_requests, "modules": 8, "room_for": 5,
            "ttft_p95_ms": {"in_turns": round(p95(tight), 2), "room_for_all": round(p95(roomy), 2)},
            "ratio": round(ratio, 3), "reloads_per_module_minute": round(rate, 2)}


def big(args):
    gaps = {"alone": [], "beside_loads": []}
    loads = 0
    with tempfile.TemporaryDirectory(prefix="attune-bench-") as folder:
        write_module(args.model, Path(folder) / "big", seed=1, rank=256, targets=ATTENTION + MLP, strength=0.1)
        size = (Path(folder) / "big" / "adapter_model.safetensors").stat().st_size
        settings = ["modules.max_rank=256", f"modules.host_bytes={2 * size}", f"modules.device_bytes={2 * size}"]
        with Server(args.attune, args.model, folder, args.dtype, settings) as server:
            numbers = random.Random(1)

            def answers():
                bodies = [{"model": server.call("GET", "/v1/models")["data"][0]["id"], "prompt": prompt(numbers, 32),
                           "max_tokens": args.tokens} for _ in range(STREAMS)]
                return [gap for _, some in in_parallel(STREAMS, lambda i: felt(server, bodies[i])) for gap in some]

            answers()
            for _ in range(args.rounds):
                gaps["alone"] += answers()
                done = threading.Event()

                def keep_loading():
                    nonlocal loads
                    while not done.is_set():
                        server.call("POST", "/v1/modules/big/load", {})
                        loads += 1
                        server.call("POST", "/v1/modules/big/unload", {})

                loader = threading.Thread(target=keep_loading)
                loader.start()
                gaps["beside_loads"] += answers()
                done.set()
                loader.join()
    ratio = p95(gaps["beside_loads"]) / p95(gaps["alone"])
    print(f"big: a module of {size / 1e6:.0f} MB loaded {loads} times beside {STREAMS} streams, P95 of the gap between tokens "
          f"{p95(gaps['beside_loads']):.2f} ms, {p95(gaps['alone']):.2f} ms without, ratio {ratio:.3f}")
    return {"module_bytes": size, "loads": loads, "streams": STREAMS,
            "itl_p95_ms": {name: round(p95(values), 3) for name, values in gaps.items()}, "ratio": round(ratio, 3)}


def main():
    parser = bench_parser(__doc__, "life", load=False)
    parser.add_argument("--dtype", default="bf16")
    parser.add_argument("--bursts", type=int, default=8)
    parser.add_argument("--burst-requests", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=200, help="of each of the streams beside the big module")
    parser.add_argument("--only", choices=("thrash", "big"))
    args = parser.parse_args()
    about, result = machine(), {}
    for name, bench in (("thrash", thrash), ("big", big)):
        if args.only in (None, name):
            result[name] = bench(args)
    if args.only is None:
        save(args.name, {"bench": "life", "model": "SmolLM2-135M-Instruct", "dtype": args.dtype, "machine": about,
                         "commit": commit(), "rounds": args.rounds,
                         "command": f"python bench/load/life_bench.py --rounds {args.rounds}", **result})


if __name__ == "__main__":
    main()
