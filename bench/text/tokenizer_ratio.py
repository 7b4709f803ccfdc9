#!/usr/bin/env python3
"""Our tokenizer beside the Rust library `tokenizers`: one thread each, alternating, medians of CPU time.

    python bench/text/tokenizer_ratio.py --bench build/text_bench [--model models/smollm2] [--rounds 5] [--save]

One JSON line per comparison; `ratio` is the library's time over ours, so above 1 we are faster. Before anything is timed
the ids of both sides are compared. The library is called in the way that is fastest for it: `encode`, or
`encode_batch_fast` over all texts, which pays Python's call once and computes no offsets. `--save` writes
bench/results/text.json. Needs tokenizers (tools/setup.sh bench).
"""
import argparse
import gc
import hashlib
import json
import os
import shlex
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"
import tokenizers  # noqa: E402

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "load"))
import texts  # noqa: E402
from served import ROOT, commit, machine, save  # noqa: E402

PARITY = ["llama3", "qwen2", "gemma", "llama2", "o200k"]
MEGABYTES = [1, 2, 5, 10]


class Ours:
    def __init__(self, bench, folder):
        self.process = subprocess.Popen([str(bench), str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, job, file=None):
        print(json.dumps({"job": job, "texts": str(file)}), file=self.process.stdin, flush=True)
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit("text_bench ended")
        return json.loads(line)

    def seconds(self, job, file=None):
        return self.ask(job, file)["seconds"]

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def cpu_seconds(work):
    gc.collect()
    gc.disable()
    begin = time.process_time()
    kept = work()
    seconds = time.process_time() - begin
    gc.enable()
    del kept
    return seconds


class Theirs:
    def __init__(self, folder):
        self.path = str(folder / "tokenizer.json")
        self.tokenizer = tokenizers.Tokenizer.from_file(self.path)

    def ids(self, all_texts):
        return [self.tokenizer.encode(text, add_special_tokens=False).ids for text in all_texts]

    def load(self):
        return cpu_seconds(lambda: tokenizers.Tokenizer.from_file(self.path))

    def encode(self, all_texts):
        alone = cpu_seconds(lambda: [self.tokenizer.encode(text, add_special_tokens=False) for text in all_texts])
        batch = cpu_seconds(lambda: self.tokenizer.encode_batch_fast(all_texts, add_special_tokens=False))
        return min(alone, batch)

    def decode(self, ids):
        alone = cpu_seconds(lambda: [self.tokenizer.decode(one, skip_special_tokens=False) for one in ids])
        batch = cpu_seconds(lambda: self.tokenizer.decode_batch(ids, skip_special_tokens=False))
        return min(alone, batch)


def compared(rounds, ours, theirs):
    """(ours, theirs): medians of seconds; the two alternate."""
    pairs = [(ours(), theirs()) for _ in range(rounds)]
    return statistics.median(p[0] for p in pairs), statistics.median(p[1] for p in pairs)


def tell(lines, tokenizer, case, ours_s, theirs_s, **more):
    line = {"bench": "tokenizer", "tokenizer": tokenizer, "case": case, "ours_ms": round(ours_s * 1e3, 3),
            "library_ms": round(theirs_s * 1e3, 3), "ratio": round(theirs_s / ours_s, 2), **more}
    lines.append(line)
    print(json.dumps(line), flush=True)


class Cases:
    """The texts, as lists in memory for the library and as files for text_bench."""

    def __init__(self, folder, megabytes):
        text = texts.mixed()
        prompts = texts.prompts(text)
        self.texts = {"mixed text": [text], "short prompts": prompts, "repeated prompts": prompts[:50] * 60}
        for size in megabytes:
            self.texts[f"one word of {size} MB"] = [texts.single_word(size * 10**6)]
        self.files = {}
        for case, all_texts in self.texts.items():
            self.files[case] = folder / (case.replace(" ", "_") + ".json")
            self.files[case].write_text(json.dumps(all_texts, ensure_ascii=False))
        self.about = {"mixed_bytes": len(text.encode()), "mixed_sha256": hashlib.sha256(text.encode()).hexdigest()[:16],
                      "prompts": len(prompts)}


def run_tokenizer(name, folder, cases, args, lines):
    ours, theirs = Ours(args.bench, folder), Theirs(folder)
    for case, all_texts in cases.texts.items():
        size, words = sum(len(text.encode()) for text in all_texts), case.startswith("one word")
        ids = theirs.ids(all_texts)
        if ours.ask("ids", cases.files[case])["ids"] != ids:
            raise SystemExit(f"{name}, {case}: the ids differ")
        pair = compared(1 if words else args.rounds, lambda: ours.seconds("encode", cases.files[case]), lambda: theirs.encode(all_texts))
        tell(lines, name, f"encode, {case}", *pair, mb_per_s=round(size / 1e6 / pair[0], 1), tokens=sum(map(len, ids)))
        if not words:
            pair = compared(args.rounds, lambda: ours.seconds("decode", cases.files[case]), lambda: theirs.decode(ids))
            tell(lines, name, f"decode, {case}", *pair, mb_per_s=round(size / 1e6 / pair[0], 1))
    tell(lines, name, "load", *compared(2 * args.rounds + 1, lambda: ours.seconds("load"), theirs.load))
    ours.close()
    times = [line["ours_ms"] for line in lines if line["tokenizer"] == name and "one word" in line["case"]]
    if len(times) > 1:
        growth = max(time / times[0] / (size / args.megabytes[0]) for time, size in zip(times, args.megabytes))
        line = {"bench": "tokenizer", "tokenizer": name, "case": "time per byte of a long word against the shortest", "growth": round(growth, 2)}
        lines.append(line)
        print(json.dumps(line), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bench", type=Path, default=ROOT / "build" / "text_bench")
    parser.add_argument("--model", type=Path, default=ROOT / "models" / "smollm2")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokenizers", default=",".join(["smollm2", *PARITY]))
    parser.add_argument("--megabytes", default=",".join(map(str, MEGABYTES)), help="sizes of the single words; empty: none")
    parser.add_argument("--save", action="store_true")
    args = parser.parse_args()
    args.megabytes = [int(size) for size in args.megabytes.split(",") if size]
    about, lines = machine(), []
    with tempfile.TemporaryDirectory(prefix="attune-bench-") as scratch:
        folder = Path(scratch)
        with tarfile.open(ROOT / "tests" / "data" / "parity.tar.xz") as pack:
            for member in pack.getmembers():
                if member.name.endswith("tokenizer.json"):
                    target = folder / Path(member.name).parent.name / "tokenizer.json"
                    target.parent.mkdir(exist_ok=True)
                    target.write_bytes(pack.extractfile(member).read())
        cases = Cases(folder, args.megabytes)
        for name in args.tokenizers.split(","):
            own = args.model if name == "smollm2" and (args.model / "tokenizer.json").exists() else folder / name
            run_tokenizer(name, own, cases, args, lines)
    ratios = [line["ratio"] for line in lines if "ratio" in line]
    print(json.dumps({"bench": "tokenizer", "case": "all", "comparisons": len(ratios), "slowest_ratio": min(ratios),
                      "geometric_mean": round(statistics.geometric_mean(ratios), 2)}))
    if args.save:
        save("text", {"bench": "tokenizer", "library": f"tokenizers {tokenizers.__version__}", "machine": about, "commit": commit(),
                      "rounds": args.rounds, "command": shlex.join(["python", "bench/text/tokenizer_ratio.py", *sys.argv[1:]]),
                      "texts": cases.about, "lines": lines})


if __name__ == "__main__":
    main()
