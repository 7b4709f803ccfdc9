#!/usr/bin/env python3
"""What the server's own background work, and another program on the same cores, cost the streams of the base.

    python bench/load/background_bench.py --attune build/attune --model models/smollm2 [--rounds 3]

Output tokens/s of 32 streams, as a ratio to a server that does nothing else: while the base is audited at the default
pace (the bar: 0.99) and ten times as often, while a rank-16 module is loaded and unloaded once a second (0.97) and ten
times a second (a load is 9 ms of processor time, most of it the hash of its files: that alone leaves 0.955 of two
cores), and beside one spinning process (which takes a third of them: 0.67 are left, and threads that wait for each other
get far less). Medians of pairs measured one after the other; writes bench/results/NAME.json. Needs safetensors and
numpy.
"""
import contextlib
import functools
import statistics
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from make_modules import write_module
from served import Server, bench_parser, commit, machine, run_load, save

STREAMS = 32


@contextlib.contextmanager
def loading(server, pause_s):
    """A module comes and goes, and rests so long in between."""
    done = threading.Event()

    def keep_loading():
        while not done.is_set():
            server.call("POST", "/v1/modules/one/load", {})
            server.call("POST", "/v1/modules/one/unload", {})
            done.wait(pause_s)

    thread = threading.Thread(target=keep_loading)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


@contextlib.contextmanager
def spinning(_):
    neighbour = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        neighbour.kill()
        neighbour.wait()


@contextlib.contextmanager
def nothing(_):
    yield


QUIET = ["audit.interval_s=0"]
# What goes on beside the streams of one server, which is measured with and without it in turns.
BESIDE = {
    "a load a second": functools.partial(loading, pause_s=1),
    "ten loads a second": functools.partial(loading, pause_s=0.1),
    "busy neighbour": spinning,
}
# What a server does of its own, measured against one of QUIET settings, each started anew.
SETTINGS = {"audit": [], "audit, ten times as often": ["audit.interval_s=60"]}


def tokens_per_s(args, server, beside, seed, turns=3):
    with beside(server):
        return run_load(args, server, "--streams", STREAMS, "--requests", turns * STREAMS, "--seed",
                        seed)["output_tokens_per_s"]


def pairs_beside(args, folder, beside):
    with Server(args.attune, args.model, folder, args.dtype, QUIET) as server:
        tokens_per_s(args, server, nothing, 100, turns=1)
        # Every seed once: a prompt asked again would be read from the prefix cache.
        return [[tokens_per_s(args, server, what, 2 * number + turn) for turn, what in enumerate((nothing, beside))]
                for number in range(2 * args.rounds)]


def pairs_of_settings(args, folder, settings):
    pairs = []
    for number in range(args.rounds):
        pairs.append([])
        for some in (QUIET, settings):
            with Server(args.attune, args.model, folder, args.dtype, some) as server:
                tokens_per_s(args, server, nothing, 100, turns=1)
                pairs[-1].append(tokens_per_s(args, server, nothing, number))
    return pairs


def main():
    parser = bench_parser(__doc__, "background")
    parser.add_argument("--dtype", default="bf16")
    args = parser.parse_args()
    about, samples = machine(), {}
    with tempfile.TemporaryDirectory(prefix="attune-bench-") as folder:
        write_module(args.model, Path(folder) / "one", seed=1)
        for case, beside in BESIDE.items():
            samples[case] = pairs_beside(args, folder, beside)
        for case, settings in SETTINGS.items():
            samples[case] = pairs_of_settings(args, folder, settings)
    # Each against its neighbour in time: the machine's mood changes.
    ratios = {case: round(statistics.median(changed / alone for alone, changed in pairs), 3)
              for case, pairs in samples.items()}
    for case, ratio in ratios.items():
        print(f"background: {case}: {ratio:.3f} of the tokens/s without")
    save(args.name, {"bench": "background", "model": "SmolLM2-135M-Instruct", "dtype": args.dtype, "machine": about,
                     "commit": commit(), "rounds": args.rounds, "streams": STREAMS,
                     "command": f"python bench/load/background_bench.py --rounds {args.rounds}", "ratios": ratios,
                     "output_tokens_per_s_without_and_with": samples})


if __name__ == "__main__":
    main()
