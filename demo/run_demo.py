#!/usr/bin/env python3
"""Starts attune on SmolLM2 with the demo's three modules, asks it the things that make it what it is, and prints them.

    python3 demo/run_demo.py            # leaves the server running and says how to stop it
    python3 demo/run_demo.py --check    # checks every step, stops the server, exits 0 or 1

Only Python's standard library is needed.
"""
import argparse
import http.client
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BASE = "SmolLM2-135M-Instruct"
START_S = 120  # to the line `listening on`; a cold disk may be slow
ANSWER_S = 120
STOP_S = 40
REVIEW = "The soup was cold and the waiter ignored us."


class Server:
    """One `attune serve`, its output in files, so that it may outlive this script."""

    def __init__(self, args):
        args.run_dir.mkdir(parents=True, exist_ok=True)
        self.out_path, self.log_path = args.run_dir / "server.out", args.run_dir / "server.log"
        command = [str(args.attune), "serve", "--model", str(args.model), "--modules", str(args.modules), "--port", "0",
                   "--set", f"model.id={BASE}", "--set", f"routing.file={args.routes}"]
        for setting in args.set:
            command += ["--set", setting]
        self.command = command
        with open(self.out_path, "wb") as out, open(self.log_path, "wb") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=log,
                                            start_new_session=True)
        self.host, self.port = self._wait()

    def _wait(self):
        mark = "listening on http://"
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            for line in self.out_path.read_text(encoding="utf-8").splitlines():
                if line.startswith(mark):
                    host, port = line[len(mark):].strip().rstrip("/").rsplit(":", 1)
                    return host, int(port)
            if self.process.poll() is not None:
                sys.exit(f"the server ended with {self.process.returncode}:\n{self.log_path.read_text()[-2000:]}")
            time.sleep(0.05)
        self.stop()
        sys.exit(f"no 'listening on' within {START_S} s; see {self.log_path}")

    def stop(self):
        """SIGTERM drains; the exit status, or None when it had to be killed."""
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            return None


class Answer:
    """What a streamed answer said, and what it said about itself."""

    def __init__(self):
        self.text, self.usage, self.attune, self.finish, self.cold = "", {}, {}, None, None

    @property
    def route(self):
        return self.attune.get("route", {})

    def tokens_of(self, name=None):
        """Tokens made by the bare base (None) or by a module."""
        wanted = [] if name is None else [name]
        return sum(s["tokens"] for s in self.attune.get("served", []) if [m["name"] for m in s["modules"]] == wanted)


class Client:
    def __init__(self, host, port):
        self.host, self.port = host, port

    def call(self, method, path, body=None):
        connection = http.client.HTTPConnection(self.host, self.port, timeout=ANSWER_S)
        try:
            connection.request(method, path, None if body is None else json.dumps(body),
                               {"Content-Type": "application/json"} if body is not None else {})
            response = connection.getresponse()
            text = response.read().decode("utf-8")
            return response.status, json.loads(text) if text.startswith(("{", "[")) else text
        finally:
            connection.close()

    def stream(self, path, body, show):
        """Streams an answer; `show` gets each piece of text as it comes."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=ANSWER_S)
        body = {**body, "stream": True, "stream_options": {"include_usage": True}, "temperature": 0}
        answer = Answer()
        try:
            connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
            response = connection.getresponse()
            if response.status != 200:
                raise RuntimeError(f"{path}: {response.status} {response.read().decode('utf-8', 'replace')}")
            answer.cold = response.getheader("attune-cold")
            for line in response:
                line = line.decode("utf-8").rstrip("\r\n")
                if not line.startswith("data: ") or line == "data: [DONE]":
                    continue
                event = json.loads(line[len("data: "):])
                if "error" in event:
                    raise RuntimeError(f"{path}: {event['error']}")
                self._take(event, answer, show)
        finally:
            connection.close()
        return answer

    @staticmethod
    def _take(event, answer, show):
        answer.usage = event.get("usage") or answer.usage
        answer.attune = event.get("attune") or answer.attune
        for choice in event["choices"]:
            piece = choice["delta"].get("content", "") if "delta" in choice else choice.get("text", "")
            answer.finish = choice.get("finish_reason") or answer.finish
            answer.text += piece
            show(piece)


class Demo:
    def __init__(self, client, check):
        self.client, self.check, self.faults = client, check, []

    def expect(self, holds, what):
        """A fact that --check insists on; without it a miss is shown, not fatal."""
        if not holds:
            self.faults.append(what)
            print(f"   !! expected: {what}")

    def title(self, text):
        print(f"\n=== {text} ===")

    def ask(self, model, content=None, prompt=None, max_tokens=48, **attune):
        print(f"   model={model}{'  attune=' + json.dumps(attune) if attune else ''}")
        print(f">> {content or prompt}")
        body = {"model": model, "max_tokens": max_tokens}
        if attune:
            body["attune"] = attune
        print("<< ", end="", flush=True)
        show = lambda piece: print(piece.replace("\n", "\n   "), end="", flush=True)
        if content:
            answer = self.client.stream("/v1/chat/completions",
                                        {**body, "messages": [{"role": "user", "content": content}]}, show)
        else:
            answer = self.client.stream("/v1/completions", {**body, "prompt": prompt}, show)
        made = ", ".join(f"{'+'.join(m['name'] for m in s['modules']) or 'the base'} {s['tokens']} tokens"
                         for s in answer.attune.get("served", []))
        print(f"\n   route: {answer.route.get('rule')} -> {answer.route.get('modules') or 'base'}; "
              f"cold: {answer.attune.get('cold')}; made by: {made}")
        served = sum(s["tokens"] for s in answer.attune.get("served", []))
        self.expect(answer.finish in ("stop", "length"), "the answer ends with stop or length")
        self.expect(served == answer.usage.get("completion_tokens"), "`served` adds up to usage.completion_tokens")
        return answer

    def base(self):
        self.title("The base answers, streamed")
        answer = self.ask(BASE, "What is the capital of France?")
        self.expect(bool(answer.text.strip()), "the base says something")
        self.expect(answer.tokens_of() == answer.usage["completion_tokens"], "every token comes from the base")

    def upgrade(self):
        self.title("A cold module under `upgrade`: the base starts at once, the module takes over")
        # A fast disk may have it ready before the base has said a word, so the show is repeated a few times.
        for _ in range(5):
            status, _ = self.client.call("POST", "/v1/modules/legal/unload", {})
            self.expect(status in (200, 202), "`legal` can be made cold")
            answer = self.ask("legal", "Draft a clause about warranty.", cold="upgrade")
            if answer.tokens_of() >= 1 and answer.tokens_of("legal") >= 1:
                break
        print(f"   the switch: the base made {answer.tokens_of()} tokens, then legal made {answer.tokens_of('legal')}")
        self.expect(answer.cold == "upgrade", "the header attune-cold says upgrade")
        self.expect(answer.tokens_of() >= 1, "the base began the answer")
        self.expect(answer.tokens_of("legal") >= 1, "the module went on with it")

    def by_name(self):
        self.title("The module `code`, by name")
        answer = self.ask("code", prompt="def factorial(n):\n    if n", cold="wait")
        self.expect_all_by(answer, "code")
        self.title("The module `legal`, by name")
        self.expect_all_by(self.ask("legal", "What does the licence say about termination?", cold="wait"), "legal")
        self.title("The module `sentiment`, by name")
        answer = self.ask("sentiment", "I have already told all my friends about it.", cold="wait")
        self.expect_all_by(answer, "sentiment")
        self.expect(answer.text.strip() == "positive", "sentiment answers `positive`")

    def expect_all_by(self, answer, name):
        self.expect(answer.tokens_of(name) == answer.usage["completion_tokens"], f"every token comes from {name}")

    def auto(self):
        cases = (("English words for code", "Complete this Python code:\ndef mean(values):", "code", "keyword"),
                 ("Chinese words for code", "请补全这个函数的代码:\ndef mean(values):", "code", "keyword"),
                 ("English words for law", "Draft a clause about patents.", "legal", "keyword"),
                 ("Chinese words for law", "请写一条关于 warranty 的法条", "legal", "keyword"),
                 ("no rule matches: the default module", REVIEW, "sentiment", "default"))
        for what, content, name, rule in cases:
            self.title(f"auto, {what}")
            answer = self.ask("auto", content, max_tokens=32, cold="wait")
            chosen = (answer.route.get("rule"), answer.route.get("modules"))
            self.expect(chosen == (rule, [name]), f"the rule `{rule}` chooses {name}")
            self.expect_all_by(answer, name)
        self.expect(answer.text.strip() == "negative", "sentiment answers `negative`")

    def truth(self):
        self.title("The base is what it was")
        status, audit = self.client.call("POST", "/v1/audit", {})
        self.expect(status == 200 and audit["ok"] and audit["state"] == "verified", "the audit verifies the base")
        print(f"   audit: {audit['state']}, {audit['checkpoint']}, {audit['runs']} passes, {audit['alarms']} alarms")
        status, modules = self.client.call("GET", "/v1/modules")
        for module in modules["data"]:
            print(f"   module {module['name']}: {module['tier']}, {module['bytes']} bytes, rank {module['rank']}")
        self.expect({m["name"] for m in modules["data"]} == {"code", "legal", "sentiment"}, "three modules are listed")
        self.expect(all(m["leases"] == 0 for m in modules["data"]), "no lease is left")

    def run(self):
        self.base()
        self.upgrade()
        self.by_name()
        self.auto()
        self.truth()


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--attune", type=Path, default=ROOT / "build" / "attune")
    parser.add_argument("--model", type=Path, default=ROOT / "models" / "smollm2")
    parser.add_argument("--modules", type=Path, default=ROOT / "demo" / "modules")
    parser.add_argument("--routes", type=Path, default=ROOT / "demo" / "routes.toml")
    parser.add_argument("--run-dir", type=Path, default=ROOT / "build" / "demo", help="where the server's output goes")
    parser.add_argument("--set", action="append", default=[], metavar="section.key=value", help="a setting for the server")
    parser.add_argument("--check", action="store_true", help="check every step, stop the server, exit 0 or 1")
    args = parser.parse_args()
    for name in ("attune", "model", "modules", "routes", "run_dir"):
        setattr(args, name, getattr(args, name).resolve())
    return args


def main():
    args = parse_args()
    server = Server(args)
    demo = Demo(Client(server.host, server.port), args.check)
    print(f"attune serves {BASE} on http://{server.host}:{server.port}")
    try:
        demo.run()
    except BaseException:
        server.stop()
        raise
    if args.check:
        status = server.stop()
        demo.expect(status == 0, f"the server ends with 0 after SIGTERM, not {status}")
        print(f"\ndemo: {len(demo.faults)} faults" if demo.faults else "\ndemo: every step holds")
        return 1 if demo.faults else 0
    pid = server.process.pid
    print(f"\nThe server is still running: http://{server.host}:{server.port}   (log: {os.path.relpath(server.log_path)})")
    print(f"Stop it with:  kill {pid}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
