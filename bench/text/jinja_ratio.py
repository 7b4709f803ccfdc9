#!/usr/bin/env python3
"""Our chat templates beside jinja2: one thread each, alternating on the same cases, medians of CPU time.

    python bench/text/jinja_ratio.py --bench build/template_bench [--rounds 5] [--each] [--save]

The cases are those of tests/data/parity.tar.xz that jinja2 renders without an error, and chats for SmolLM2's own template;
before anything is timed the texts of both sides are compared. jinja2 gets a compiled template under transformers' settings and the messages as Python
objects. `prompt` is our way from a request's JSON text to the rendered text and its literal spans, `engine` leaves the
parsing of that JSON out. A ratio is jinja2's time over ours, of a template's cases together; the last line has the least
of them and their geometric mean. `endless_ms` is the longest that a template without an end ran until its steps were used
up. `--save` writes bench/results/templates.json. Needs jinja2 (tools/setup.sh bench).
"""
import argparse
import gc
import json
import math
import shlex
import statistics
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import jinja2
import jinja2.ext
import jinja2.sandbox

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "load"))
from served import ROOT, commit, machine, save  # noqa: E402


class Generation(jinja2.ext.Extension):
    """{% generation %} as transformers knows it: a call block around the body."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_support"), [], [], body).set_lineno(line)

    def _support(self, caller):
        return caller()


def environment():
    """The settings of transformers' apply_chat_template."""
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda style: time.strftime(style)
    return env


def variables_of(case):
    names = ("messages", "tools", "documents", "add_generation_prompt")
    return {**case["kwargs"], **{name: case[name] for name in names}}


def prompt_of(case):
    """The case as a request's JSON texts. A request may not bring the tokenizer's tokens: those are given apart."""
    kwargs = {name: value for name, value in case["kwargs"].items() if not name.endswith("_token")}

    def text(value):
        return "" if value is None else json.dumps(value, ensure_ascii=False)

    return {
        "messages": text(case["messages"]),
        "tools": text(case["tools"]),
        "documents": text(case["documents"]),
        "kwargs": text(kwargs or None),
        "add_generation_prompt": bool(case["add_generation_prompt"]),
        "bos_token": case["kwargs"].get("bos_token", ""),
        "eos_token": case["kwargs"].get("eos_token", ""),
        "variables": json.dumps(variables_of(case), ensure_ascii=False),
    }


def microseconds(work, seconds=0.002):
    """CPU time of one call: the median of three batches."""
    clock = time.process_time
    begin = time.perf_counter()
    work()
    calls = max(1, int(seconds / max(time.perf_counter() - begin, 1e-7)))
    batches = []
    for _ in range(3):
        begin = clock()
        for _ in range(calls):
            work()
        batches.append((clock() - begin) / calls * 1e6)
    return statistics.median(batches)


class Ours:
    def __init__(self, bench):
        self.process = subprocess.Popen([str(bench)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, job, source, cases):
        print(json.dumps({"job": job, "template": source, "cases": cases}), file=self.process.stdin, flush=True)
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit("template_bench ended")
        return json.loads(line)

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def read_templates(only):
    """{name: (source, cases)} of the parity tests."""
    found, own = {}, {}
    with tarfile.open(ROOT / "tests" / "data" / "parity.tar.xz") as pack:
        for member in pack.getmembers():
            path = Path(member.name)
            if path.name in ("template.jinja", "cases.jsonl") and path.parts[-3] == "chat_templates":
                found.setdefault(path.parts[-2], {})[path.name] = pack.extractfile(member).read().decode()
            elif path.parts[-2:] == ("smollm2", "tokenizer_config.json"):
                own = json.load(pack.extractfile(member))
    templates = {name: (files["template.jinja"], [json.loads(line) for line in files["cases.jsonl"].splitlines()])
                 for name, files in sorted(found.items())}
    chats = json.loads((ROOT / "tests" / "engine" / "text" / "smollm2_chats.json").read_text())
    tokens = {key: own[key] for key in ("bos_token", "eos_token")}
    templates["smollm2"] = (own["chat_template"], [{"tools": None, "documents": None, "kwargs": tokens, "expected": chat["text"],
                                                    **chat} for chat in chats])
    return {name: template for name, template in templates.items() if not only or name in only}


def rendered(template, cases):
    """The cases that end in a text, and those texts: the clock stands elsewhere than in the tests."""
    usable = [case for case in cases if "expected" in case]
    return usable, [template.render(**variables_of(case)) for case in usable]


# Each would go on for minutes: loops, long texts, long lists, searches.
ENDLESS = ["{% for b in range(100000) %}x{% endfor %}", "{% set x = range(100000) | list | sort %}",
           "{{ (word * 100000) | upper | length }}", "{% set x = range(99999) | map('string') | join(',') %}",
           "{% if 'b' in 'a' * 10000000 %}{% endif %}", "{% set x = (word * 100000) | list %}", "{{ word * 100000 }}"]


def endless_ms(ours):
    loops = ["{% set word = 'ab' %}{% for a in range(100000) %}" + body + "{% endfor %}" for body in ENDLESS]
    return round(max(ours.ask("endless", loop, [])["ms"] for loop in loops), 1)


def compared(ours, name, source, cases, rounds):
    """Sums over the cases, in microseconds, of each case's median over the rounds; None when all end in errors."""
    template = environment().from_string(source)
    usable, texts = rendered(template, cases)
    if not usable:
        return None
    prompts = [prompt_of(case) for case in usable]
    if ours.ask("texts", source, prompts)["texts"] != texts:
        raise SystemExit(f"{name}: the texts differ")
    rows = {"prompt": [], "engine": [], "jinja2": []}
    for _ in range(rounds):
        reply = ours.ask("time", source, prompts)
        rows["prompt"].append(reply["prompt_us"])
        rows["engine"].append(reply["engine_us"])
        gc.collect()
        gc.disable()
        rows["jinja2"].append([microseconds(lambda given=variables_of(case): template.render(**given)) for case in usable])
        gc.enable()
    us = {side: sum(map(statistics.median, zip(*row))) for side, row in rows.items()}
    return {"template": name, "cases": len(usable), "jinja2_us": round(us["jinja2"] / len(usable), 2),
            "prompt_us": round(us["prompt"] / len(usable), 2), "prompt_ratio": round(us["jinja2"] / us["prompt"], 2),
            "engine_us": round(us["engine"] / len(usable), 2), "engine_ratio": round(us["jinja2"] / us["engine"], 2)}


def summary(lines, side):
    ratios = {line["template"]: line[f"{side}_ratio"] for line in lines}
    worst = min(ratios, key=ratios.get)
    total = {key: sum(line[f"{key}_us"] * line["cases"] for line in lines) for key in ("jinja2", side)}
    return {"geometric_mean": round(math.exp(statistics.fmean(map(math.log, ratios.values()))), 1),
            "total": round(total["jinja2"] / total[side], 1), "min": ratios[worst], "min_template": worst}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bench", type=Path, default=ROOT / "build" / "template_bench")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--templates", default="", help="names, with commas; empty: all")
    parser.add_argument("--each", action="store_true", help="a line for each template as well")
    parser.add_argument("--save", action="store_true")
    args = parser.parse_args()
    about, lines = machine(), []
    ours = Ours(args.bench)
    for name, (source, cases) in read_templates(set(filter(None, args.templates.split(",")))).items():
        line = compared(ours, name, source, cases, args.rounds)
        if line is None:
            continue
        lines.append(line)
        if args.each:
            print(json.dumps(line), flush=True)
    longest = endless_ms(ours)
    ours.close()
    result = {"bench": "templates", "endless_ms": longest, "jinja2": jinja2.__version__, "templates": len(lines),
              "cases": sum(line["cases"] for line in lines), "prompt": summary(lines, "prompt"), "engine": summary(lines, "engine")}
    print(json.dumps(result))
    if args.save:
        save("templates", {**result, "machine": about, "commit": commit(), "rounds": args.rounds,
                           "command": shlex.join(["python", "bench/text/jinja_ratio.py", *sys.argv[1:]]), "lines": lines})


if __name__ == "__main__":
    main()
