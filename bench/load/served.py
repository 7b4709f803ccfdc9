"""A server for the benches: started on a free port, asked over HTTP, stopped at the end. Standard library only."""
import argparse
import http.client
import json
import os
import platform
import re
import shlex
import signal
import subprocess
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
START_S = 180


class Child:
    """A server process: started, waited for, stopped. Any that speaks OpenAI's routes."""

    def __init__(self, command, ready, env=None):
        """`ready(self)` gives (host, port) once the server answers, None before."""
        self.out = tempfile.NamedTemporaryFile(prefix="attune-bench-", suffix=".out")
        self.log = tempfile.NamedTemporaryFile(prefix="attune-bench-", suffix=".log")
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self.out, stderr=self.log, env=env)
        self.host, self.port = self._wait(ready)
        self.url = f"http://{self.host}:{self.port}"

    def _wait(self, ready):
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline and self.process.poll() is None:
            if found := ready(self):
                return found
            time.sleep(0.05)
        self.process.kill()
        raise SystemExit("the server did not start:\n" + Path(self.log.name).read_text(errors="replace")[-3000:])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def listening_line(server):
    match = re.search(r"^listening on http://(\S+):(\d+)/?$", Path(server.out.name).read_text(), re.MULTILINE)
    return match and (match[1], int(match[2]))


class Server(Child):
    """attune itself."""

    def __init__(self, attune, model, modules, dtype, settings=()):
        command = [str(Path(attune).resolve()), "serve", "--model", str(model), "--modules", str(modules), "--dtype", dtype, "--port", "0"]
        for setting in settings:
            command += ["--set", setting]
        super().__init__(command, listening_line)

    def call(self, method, path, body=None):
        connection = http.client.HTTPConnection(self.host, self.port, timeout=300)
        try:
            connection.request(method, path, None if body is None else json.dumps(body),
                               {"Content-Type": "application/json"} if body is not None else {})
            response = connection.getresponse()
            text = response.read().decode()
            if response.status >= 300:
                raise SystemExit(f"{path}: {response.status} {text}")
            return json.loads(text) if text.startswith(("{", "[")) else text
        finally:
            connection.close()

    def modules(self):
        return {m["name"]: m for m in self.call("GET", "/v1/modules")["data"]}

    def warm(self, names):
        """Makes modules resident: loaded, then used once each."""
        for name in names:
            self.call("POST", "/v1/completions", {"model": name, "prompt": [100, 200], "max_tokens": 1,
                                                  "attune": {"cold": "wait"}})


def stream(server, body):
    """One streamed, greedy completion: ([when each event with data came, seconds from the request], the last event's
    usage and attune records)."""
    connection = http.client.HTTPConnection(server.host, server.port, timeout=300)
    connection.connect()
    started, times, last = time.perf_counter(), [], {}
    connection.request("POST", "/v1/completions",
                       json.dumps({"stream": True, "temperature": 0, "ignore_eos": True, **body}),
                       {"Content-Type": "application/json"})
    response = connection.getresponse()
    if response.status != 200:
        raise SystemExit(f"{response.status} {response.read().decode()}")
    for line in response:
        if line.startswith(b"data: {"):
            times.append(time.perf_counter() - started)
            event = json.loads(line[6:])
            last.update({key: event[key] for key in ("usage", "attune") if event.get(key)})
    connection.close()
    return times, last


def bench_parser(doc, name, load=True):
    """The options that benches over a server share; `load`: it runs the load client."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--attune", type=Path, default=ROOT / "build" / "attune")
    if load:
        parser.add_argument("--load", type=Path, help="the load client; default: beside attune")
    parser.add_argument("--model", type=Path, default=ROOT / "models" / "smollm2")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--name", default=name, help="of the file in bench/results")
    return parser


def load_command(args, server, *words):
    program = (args.load or args.attune.parent / "attune_load").resolve()
    return [str(program), "--url", server.url, *map(str, words)]


def run_load(args, server, *words):
    """The load client's report. A request that fails ends the bench."""
    command = load_command(args, server, *words)
    told = subprocess.run(command, capture_output=True, text=True)
    if told.returncode != 0:
        raise SystemExit(f"{shlex.join(command)}\n{told.stdout}{told.stderr}")
    return json.loads(told.stdout)


def table(columns, rows):
    """Markdown. rows: (name, cells in the order of `columns`[1:])."""
    lines = ["| " + " | ".join(columns) + " |", "|---" * len(columns) + "|"]
    return "\n".join(lines + ["| " + " | ".join([name, *cells]) + " |" for name, cells in rows])


def machine():
    names = [line.split(":", 1)[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines()
             if line.startswith("model name")]
    flags = set(re.findall(r"^flags\s*:(.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)[0].split())
    return {"cpu": names[0] if names else platform.processor(), "cores": os.cpu_count(),
            "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
            "isa": sorted(flags & {"avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16", "amx_int8"}),
            "load_before": round(os.getloadavg()[0], 2)}


def commit():
    def git(*words):
        return subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True).stdout.strip()
    return git("rev-parse", "--short", "HEAD") + ("+" if git("status", "--porcelain", "--untracked-files=no") else "")


def save(name, result):
    path = ROOT / "bench" / "results" / f"{name}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(result, indent=2) + "\n")
    print(f"written: {path.relative_to(ROOT)}")
