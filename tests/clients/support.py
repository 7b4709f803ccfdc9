"""What the client tests share: a server of their own, a tiny model that speaks in countable words, and plain HTTP."""
import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

SOURCE = Path(os.environ["ATTUNE_SOURCE"])
BINARY = os.environ["ATTUNE_SERVER"]
TEST_DATA = Path(os.environ["ATTUNE_TEST_DATA"])
SMOLLM2 = Path(os.environ["ATTUNE_SMOLLM2"])

sys.path.insert(0, str(SOURCE / "bench" / "load"))
from make_modules import ATTENTION, MLP, write_module  # noqa: E402

START_S = 120
CALL_S = 60
TINY_VOCAB = 320
TINY_SPECIALS = ("<pad>", "<s>", "</s>")
TINY_ID = "tiny"


def word(token):
    """The text of one token of the tiny model: no two share one, so that a text tells its tokens."""
    return TINY_SPECIALS[token] if token < len(TINY_SPECIALS) else f" w{token}"


def tokens_of(text):
    """The tokens of a text that the tiny model made."""
    found = re.findall(r"<pad>|<s>|</s>| w\d+", text)
    assert "".join(found) == text, f"not the tiny model's words: {text!r}"
    return [TINY_SPECIALS.index(w) if w in TINY_SPECIALS else int(w[2:]) for w in found]


def make_words(folder, specials=()):
    """A tokenizer whose every entry is a word of its own, for any of the golden models; `specials` are its first ids."""
    vocab = {word(i).replace(" ", "\u0120"): i for i in range(TINY_VOCAB)}  # U+0120 is byte-level BPE's space
    added = [{"id": i, "content": text, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
              "special": True} for i, text in enumerate(specials)]
    (folder / "tokenizer.json").write_text(json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                  "vocab": vocab, "merges": []}}))


def make_tiny_model(folder):
    """The golden llama_gqa_tied with words for tokens."""
    shutil.copytree(TEST_DATA / "golden" / "models" / "llama_gqa_tied", folder)
    make_words(folder, TINY_SPECIALS)
    return folder


def make_modules(model, folder, count, strength=1.0):
    """`count` LoRAs m0, m1, ... of different ranks and targets under `folder`."""
    for i in range(count):
        targets = ATTENTION + (MLP if i % 2 else ())
        write_module(model, folder / f"m{i}", seed=100 + i, rank=(4, 7, 8, 16)[i % 4], targets=targets, strength=strength)
    return folder


class Server:
    """One `attune serve` on a free port. `stop()` asks it to drain and returns its exit status."""

    def __init__(self, model, *, modules=(), settings=(), model_id=None, dtype="f32"):
        command = [BINARY, "serve", "--model", str(model), "--port", "0", "--dtype", dtype]
        for root in modules:
            command += ["--modules", str(root)]
        if model_id:
            command += ["--set", f"model.id={model_id}"]
        for setting in settings:
            command += ["--set", setting]
        self.log = tempfile.NamedTemporaryFile(prefix="attune-", suffix=".log")
        self.out = tempfile.NamedTemporaryFile(prefix="attune-", suffix=".out")
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self.out, stderr=self.log)
        self.host, self.port = self._wait()
        self.url = f"http://{self.host}:{self.port}"

    def _wait(self):
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline and self.process.poll() is None:
            match = re.search(r"^listening on http://(\S+):(\d+)/?$", Path(self.out.name).read_text(), re.MULTILINE)
            if match:
                return match[1], int(match[2])
            time.sleep(0.02)
        status = self.process.poll()
        self.kill()
        raise RuntimeError(f"the server is not up (exit status {status}):\n{self.log_text()[-4000:]}")

    def log_text(self):
        return Path(self.log.name).read_text(errors="replace")

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError("the server did not end after SIGTERM:\n" + self.log_text()[-4000:]) from None

    def kill(self):
        self.process.kill()
        self.process.wait()

    def call(self, method, path, body=None, headers=None):
        """(status, parsed JSON or text, headers)."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=CALL_S)
        try:
            sent = {"Content-Type": "application/json"} if body is not None else {}
            connection.request(method, path, None if body is None else json.dumps(body), {**sent, **(headers or {})})
            response = connection.getresponse()
            text = response.read().decode("utf-8")
            is_json = "json" in (response.getheader("content-type") or "")
            return response.status, json.loads(text) if is_json else text, response.headers
        finally:
            connection.close()

    def post(self, path, body):
        return self.call("POST", path, body)

    def open_stream(self, body, path="/v1/completions"):
        """A connection whose response head has been read; the caller reads events and closes it."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=CALL_S)
        connection.request("POST", path, json.dumps({**body, "stream": True}), {"Content-Type": "application/json"})
        response = connection.getresponse()
        if response.status != 200:
            text = response.read().decode("utf-8", "replace")
            connection.close()
            raise AssertionError(f"{response.status}: {text}")
        return connection, response

    def send_only(self, body, path="/v1/completions"):
        """A socket on which the request was sent and nothing read."""
        text = json.dumps(body).encode()
        head = (f"POST {path} HTTP/1.1\r\nHost: {self.host}:{self.port}\r\nContent-Type: application/json\r\n"
                f"Content-Length: {len(text)}\r\n\r\n")
        connection = socket.create_connection((self.host, self.port), timeout=CALL_S)
        connection.sendall(head.encode() + text)
        return connection

    def modules(self):
        status, body, _ = self.call("GET", "/v1/modules")
        assert status == 200, body
        return {m["name"]: m for m in body["data"]}

    def metric(self, name):
        """The sum of a metric's samples over its labels."""
        status, text, _ = self.call("GET", "/metrics")
        assert status == 200, text
        values = re.findall(rf"^{re.escape(name)}(?:\{{[^}}]*\}})? (\S+)$", text, re.MULTILINE)
        assert values, f"no metric {name} in:\n{text[:2000]}"
        return sum(float(v) for v in values)


def events_of(response):
    """The JSON of each event of an SSE response, up to [DONE]."""
    for line in response:
        line = line.decode("utf-8").rstrip("\r\n")
        if line == "data: [DONE]":
            return
        if line.startswith("data: "):
            yield json.loads(line[len("data: "):])


def prompt_of(number, length=12):
    """Token ids of a prompt, different for each number."""
    return [3 + (number * 31 + 7 * i * i + 11 * i) % (TINY_VOCAB - 3) for i in range(length)]


def binding_steps(choice):
    """How many of a greedy answer's tokens bind (the request asked for logprobs=2). Where the two best tokens are closer
    than this, rounding may choose either one: libtorch multiplies few rows differently than many."""
    for step, top in enumerate(choice["logprobs"]["top_logprobs"]):
        best, second = sorted(top.values(), reverse=True)[:2]
        if best - second < 1e-3:
            return step
    return len(choice["logprobs"]["top_logprobs"])


def within(seconds, holds):
    """Asks until it holds; False after `seconds`. The last answer decides."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


class TinyServerTest(unittest.TestCase):
    """Tests on one server with the tiny model and `module_count` LoRAs under a root."""

    module_count = 8
    settings = ()

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="attune-clients-")
        cls.addClassCleanup(cls.folder.cleanup)
        root = Path(cls.folder.name)
        cls.model = make_tiny_model(root / "model")
        cls.root = root / "modules"
        cls.root.mkdir()
        make_modules(cls.model, cls.root, cls.module_count)
        cls.server = Server(cls.model, modules=[cls.root], model_id=TINY_ID, settings=cls.settings)
        cls.addClassCleanup(cls.server.kill)

    @classmethod
    def tearDownClass(cls):
        assert cls.server.stop() == 0, cls.server.log_text()[-4000:]

    def complete(self, model, prompt, max_tokens=16, **more):
        """One unstreamed greedy completion that is expected to work."""
        status, body, headers = self.server.post("/v1/completions", {
            "model": model, "prompt": prompt, "max_tokens": max_tokens, "temperature": 0, "ignore_eos": True,
            "skip_special_tokens": False, **more})
        self.assertEqual(status, 200, body)
        self.headers = headers
        return body

    def assert_served(self, body, expected):
        """`expected`: [(module name or None, tokens)], tokens None for any number."""
        served = [(("+".join(m["name"] for m in s["modules"]) or None), s["tokens"]) for s in body["attune"]["served"]]
        self.assertEqual([n for n, _ in served], [n for n, _ in expected])
        for (_, got), (_, wanted) in zip(served, expected):
            if wanted is not None:
                self.assertEqual(got, wanted)
        self.assertEqual(sum(t for _, t in served), body["usage"]["completion_tokens"])

    def assert_idle(self, seconds=1.0):
        """Nothing runs, nothing is leased and every KV block is free, at the latest after `seconds`."""
        def idle():
            return (self.server.metric("vllm:num_requests_running") == 0
                    and self.server.metric("vllm:num_requests_waiting") == 0
                    and self.server.metric("vllm:kv_cache_usage_perc") == 0
                    and all(m["leases"] == 0 for m in self.server.modules().values()))
        self.assertTrue(within(seconds, idle), "running {}, waiting {}, KV {}, leases {}".format(
            self.server.metric("vllm:num_requests_running"), self.server.metric("vllm:num_requests_waiting"),
            self.server.metric("vllm:kv_cache_usage_perc"),
            {n: m["leases"] for n, m in self.server.modules().items() if m["leases"]}))
