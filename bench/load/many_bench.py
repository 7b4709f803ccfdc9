#!/usr/bin/env python3
"""What it costs to start, and to serve many more modules than there is room for.

    python bench/load/many_bench.py --attune build/attune --model models/smollm2 [--rounds 3] [--only start|register|zipf]

`start`: seconds from exec to ready, over three readings of the weights from the page cache + 0.3 s (the bar: 1).
`register`: 10,000 modules under a root: the seconds they add to the start over those that 1,000 add (the bar: linear,
so 10), and one listing over a JSON dump of the same objects (the bar: 2).
`zipf`: 1,000 modules asked for by Zipf's law (exponent 1) under `wait` with room for 32, beside a server with room for
all: the ratio of goodputs (the bar: 0.8), where every token must come from the module asked for.
Servers alternate round by round; writes bench/results/NAME.json. Needs safetensors and numpy.
"""
import json
import shutil
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
from make_modules import write_module
from safetensors.numpy import load_file, save_file
from served import Server, bench_parser, commit, machine, run_load, save

STREAMS = 16
ROOM = 32


def seconds(work):
    began = time.perf_counter()
    result = work()
    return time.perf_counter() - began, result


def started(args, modules, settings=()):
    """Seconds from exec to the first answer of /ready, and the server."""
    took, server = seconds(lambda: Server(args.attune, args.model, modules, args.dtype, settings))
    more, _ = seconds(lambda: server.call("GET", "/ready"))
    return took + more, server


def read_weights(model):
    for path in sorted(Path(model).glob("*.safetensors")):
        with open(path, "rb", buffering=0) as file:
            block = bytearray(1 << 20)
            while file.readinto(block):
                pass


def start(args):
    shares, ready = [], []
    with tempfile.TemporaryDirectory(prefix="attune-bench-") as folder:
        for number in range(args.rounds + 1):
            took, server = started(args, folder)
            with server:
                pass
            reading, _ = seconds(lambda: read_weights(args.model))
            if number > 0:  # the first one brings the files into the page cache
                shares.append(took / (3 * reading + 0.3))
                ready.append(took / reading)
    print(f"start: ready after {statistics.median(ready):.2f} readings of the weights, {statistics.median(shares):.2f} of "
          "three readings + 0.3 s")
    return {"of_three_readings_and_0.3_s": round(statistics.median(shares), 3),
            "readings": round(statistics.median(ready), 3)}


def copies_of(module, folder, count):
    """`count` modules alike but for their values."""
    tensors = load_file(module / "adapter_model.safetensors")
    for i in range(count):
        target = Path(folder) / f"m{i:05d}"
        target.mkdir()
        shutil.copy(module / "adapter_config.json", target)
        changed = {name: value * np.float32(1 + i / 4096) if ".lora_B." in name else value
                   for name, value in tensors.items()}
        save_file(changed, str(target / "adapter_model.safetensors"), metadata={"format": "pt"})


def small_module(model, folder):
    """The first layer's q_proj alone: what matters here is the number of files."""
    write_module(model, folder, seed=7, rank=1, targets=("q_proj",))
    path = folder / "adapter_model.safetensors"
    tensors = {name: value for name, value in load_file(path).items() if ".layers.0." in name}
    save_file(tensors, str(path), metadata={"format": "pt"})
    config = json.loads((folder / "adapter_config.json").read_text())
    config["layers_to_transform"] = [0]
    (folder / "adapter_config.json").write_text(json.dumps(config))


def register(args):
    with tempfile.TemporaryDirectory(prefix="attune-bench-") as folder:
        folder = Path(folder)
        small_module(args.model, folder / "one")
        roots = {}
        for count in (0, 1000, 10000):
            roots[count] = folder / f"root{count}"
            roots[count].mkdir()
            copies_of(folder / "one", roots[count], count)
        middle, listings = {count: [] for count in roots}, []
        for _ in range(args.rounds):
            for count, root in roots.items():
                ready, server = started(args, root)
                middle[count].append(ready)
                with server:
                    if count < 10000:
                        continue
                    taken = [seconds(lambda: server.call("GET", "/v1/modules")) for _ in range(5)]
                    listing, told = statistics.median(one for one, _ in taken), taken[-1][1]
                    # The client's parsing is not the server's cost.
                    text = json.dumps(told)
                    parsing, _ = seconds(lambda: json.loads(text))
                    dumping, _ = seconds(lambda: json.dumps(told))
                    assert len(told["data"]) == count, len(told["data"])
                    listings.append((listing - parsing) / dumping)
        middle = {count: statistics.median(values) for count, values in middle.items()}
    growth = (middle[10000] - middle[0]) / (middle[1000] - middle[0])
    print(f"register: 10,000 modules add {growth:.1f} times what 1,000 add; a listing of them costs "
          f"{statistics.median(listings):.2f} JSON dumps")
    return {"growth_10000_over_1000": round(growth, 2), "listing_over_json_dump": round(statistics.median(listings), 3),
            "start_s": {str(count): round(value, 3) for count, value in middle.items()}}


def zipf(args):
    goodput, base_tokens = {"room_for_all": [], f"room_for_{ROOM}": []}, 0
    with tempfile.TemporaryDirectory(prefix="attune-bench-") as folder:
        folder = Path(folder)
        write_module(args.model, folder / "one", seed=7, rank=8)
        (folder / "root").mkdir()
        copies_of(folder / "one", folder / "root", args.modules)
        with Server(args.attune, args.model, folder / "root", args.dtype) as server:
            server.warm(["m00000"])
            slot = server.modules()["m00000"]["bytes"]
        size = (folder / "one" / "adapter_model.safetensors").stat().st_size
        rooms = {"room_for_all": [f"modules.device_bytes={args.modules * slot * 11 // 10}",
                                  f"modules.host_bytes={args.modules * size * 12 // 10}"],
                 f"room_for_{ROOM}": [f"modules.device_bytes={ROOM * slot}"]}
        names = [f"m{i:05d}" for i in range(args.modules)]
        for number in range(args.rounds):
            for room, settings in rooms.items():
                with Server(args.attune, args.model, folder / "root", args.dtype, settings) as server:
                    if room == "room_for_all":
                        server.warm(names)
                    line = run_load(args, server, "--streams", STREAMS, "--requests", args.requests, "--modules",
                                    ",".join(names), "--zipf", 1, "--cold", "wait", "--seed", number + 1,
                                    "--max-tokens", 32)
                    goodput[room].append(line["goodput_per_s"])
                    base_tokens += line["base_tokens"]
                    print(f"round {number}, {room}: {line['goodput_per_s']:.1f} good answers/s, TTFT p50 "
                          f"{line['ttft_ms']['p50']:.0f} ms, p99 {line['ttft_ms']['p99']:.0f} ms", flush=True)
    if base_tokens:
        raise SystemExit(f"{base_tokens} tokens came from the base under `wait`")
    middle = {room: statistics.median(values) for room, values in goodput.items()}
    ratio = middle[f"room_for_{ROOM}"] / middle["room_for_all"]
    print(f"zipf: {args.modules} modules with room for {ROOM} reach {ratio:.3f} of the goodput with room for all, no token "
          "from the base")
    return {"modules": args.modules, "room_for": ROOM, "streams": STREAMS, "requests": args.requests,
            "goodput_per_s": middle, "ratio": round(ratio, 3)}


def main():
    parser = bench_parser(__doc__, "many")
    parser.add_argument("--dtype", default="bf16")
    parser.add_argument("--modules", type=int, default=1000)
    parser.add_argument("--requests", type=int, default=320)
    parser.add_argument("--only", choices=("start", "register", "zipf"))
    args = parser.parse_args()
    about, result = machine(), {}
    for name, bench in (("start", start), ("register", register), ("zipf", zipf)):
        if args.only in (None, name):
            result[name] = bench(args)
    if args.only is None:
        save(args.name, {"bench": "many", "model": "SmolLM2-135M-Instruct", "dtype": args.dtype, "machine": about,
                         "commit": commit(), "rounds": args.rounds,
                         "command": f"python bench/load/many_bench.py --rounds {args.rounds}", **result})


if __name__ == "__main__":
    main()
