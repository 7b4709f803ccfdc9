"""Routing over HTTP: rules that change while the server runs, rules by request, the classifier, owners and users."""
import asyncio
import json
import subprocess
import tempfile
import unittest
from pathlib import Path

import websockets
from support import BINARY, TINY_ID, Server, make_modules, make_tiny_model, within

KEYS = """
client = [{ key = "ann-key", name = "ann" }, { key = "bob-key", name = "bob" }]
admin = [{ key = "boss-key", name = "boss" }]
"""
FIRST = """
[[rule]]
name = "seventy-seven"
modules = ["m0"]
keywords = ["w77"]
[[rule]]
modules = ["m1"]
regex = ['w(200|201) w\\d+']
first_tokens = 4
[[rule]]
modules = ["m2"]
keywords = ["w99"]
owner = "ann"
[[rule]]
modules = ["nobody", "m1"]
task_ids = ["t"]
[users]
ann = { modules = ["m2"] }
"""


def read_whole_words(model):
    """The tiny model writes its words and cannot read them; here prompts are texts."""
    path = model / "tokenizer.json"
    tokenizer = json.loads(path.read_text())
    tokenizer["model"]["ignore_merges"] = True
    tokenizer["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [
        {"type": "Split", "pattern": {"Regex": r" \S+"}, "behavior": "Isolated", "invert": False},
        {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}]}
    path.write_text(json.dumps(tokenizer))
    return model


class Routes(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="attune-clients-")
        cls.addClassCleanup(folder.cleanup)
        cls.root = Path(folder.name)
        model = read_whole_words(make_tiny_model(cls.root / "model"))
        keys = cls.root / "keys.toml"
        keys.write_text(KEYS)
        cls.file = cls.root / "routes.toml"
        cls.file.write_text(FIRST)
        cls.server = Server(model, modules=[make_modules(model, cls.root / "modules", 3)], model_id=TINY_ID,
                            settings=[f"server.keys_file={keys}", f"routing.file={cls.file}"])
        cls.addClassCleanup(cls.server.kill)

    def setUp(self):
        self.write(FIRST)

    def call(self, method, path, body=None, key="boss-key"):
        status, answer, _ = self.server.call(method, path, body, {"Authorization": f"Bearer {key}"})
        return status, answer

    def routes(self, key="boss-key"):
        status, answer = self.call("GET", "/v1/routes", key=key)
        self.assertEqual(status, 200, answer)
        return answer

    def write(self, text):
        """The file's next text, put in place as an editor does; returns when the server has looked at it."""
        before = self.routes()
        if before["status"] == "ok" and before["source"] == "file" and self.file.read_text() == text:
            return
        fresh = self.root / "routes.new"
        fresh.write_text(text)
        fresh.rename(self.file)
        def looked():
            now = self.routes()
            return (now["since"], now["failed_at"], now["source"], now["status"], now["routes"]) != (
                before["since"], before["failed_at"], before["source"], before["status"], before["routes"])
        self.assertTrue(within(30, looked), before)

    def complete(self, prompt, key="boss-key", **more):
        status, body = self.call("POST", "/v1/completions", {
            "model": "auto", "prompt": prompt, "max_tokens": 4, "temperature": 0, "ignore_eos": True, **more,
            "attune": {"cold": "wait", **more.get("attune", {})}}, key)
        self.assertEqual(status, 200, body)
        return body["attune"]

    def tried(self, text, key="boss-key", **more):
        status, body = self.call("POST", "/v1/routes/try", {"text": text, **more}, key)
        self.assertEqual(status, 200, body)
        return body

    def test_the_answer_tells_which_rule_chose_and_what_it_matched(self):
        told = self.complete(" w5 w77")
        self.assertEqual(told["route"], {"rule": "keyword", "modules": ["m0"], "name": "seventy-seven", "matched": "w77"})
        self.assertEqual([m["name"] for m in told["served"][0]["modules"]], ["m0"])
        told = self.complete(" w3 w200 w7")
        self.assertEqual((told["route"]["rule"], told["route"]["matched"]), ("regex", "w200 w7"))
        self.assertEqual(self.complete(" w3 w4 w5 w200 w7")["route"]["rule"], "default")  # beyond first_tokens
        told = self.complete(" w3", attune={"task_id": "t"})
        self.assertEqual(told["route"], {"rule": "default", "modules": [], "skipped": ["rule 4"]})

    def test_trying_a_route_generates_nothing(self):
        def requests():
            lines = self.call("GET", "/metrics")[1].splitlines()
            return [line for line in lines if line.startswith("vllm:request_success_total")]
        before = requests()
        answer = self.tried(" w77")
        self.assertEqual(answer["modules"], [{"name": "m0", "weight": 1.0}])
        self.assertIn("seventy-seven", answer["why"])
        self.assertEqual(before, requests())

    def test_a_changed_file_is_taken_and_a_broken_one_is_not(self):
        self.write('[[rule]]\nmodules = ["m1"]\nkeywords = ["w77"]\n')
        self.assertEqual(self.tried(" w77")["route"]["modules"], ["m1"])
        self.write('[[rule]]\nmodules = ["m2"]\nkeyword = ["w77"]\n')
        told = self.routes()
        self.assertIn("routes.toml, line 3: rule 1: unknown key keyword", told["status"])
        self.assertGreater(told["failed_at"], 1700000000)
        self.assertNotIn(str(self.root), json.dumps(told))
        self.assertEqual(self.tried(" w77")["route"]["modules"], ["m1"])

    def test_rules_by_request_count_until_the_file_changes(self):
        told = self.routes()["routes"]
        told["rule"] = [{"modules": ["m2"], "keywords": ["w77"]}]
        status, answer = self.call("PUT", "/v1/routes", told)
        self.assertEqual((status, answer["source"]), (200, "request"), answer)
        self.assertEqual(self.tried(" w77")["route"]["modules"], ["m2"])
        status, answer = self.call("PUT", "/v1/routes", {"rule": [{"modules": ["m1"], "regex": ["("]}]})
        self.assertEqual((status, answer["error"]["type"]), (400, "BadRequestError"))
        self.assertIn("rule 1, regex", answer["error"]["message"])
        self.assertEqual(self.tried(" w77")["route"]["modules"], ["m2"])
        self.assertEqual(self.file.read_text(), FIRST)
        self.assertEqual(self.call("PUT", "/v1/routes", {}, "ann-key")[0], 403)
        self.write(FIRST + "\n# changed\n")
        self.assertEqual(self.tried(" w77")["route"]["modules"], ["m0"])

    def test_another_owner_s_rules_are_neither_shown_nor_used(self):
        self.assertEqual(self.tried(" w99", "ann-key")["route"]["modules"], ["m2"])
        self.assertEqual(self.tried(" w99", "bob-key")["route"]["rule"], "default")
        self.assertEqual(len(self.routes("ann-key")["routes"]["rule"]), 4)
        self.assertEqual(len(self.routes("bob-key")["routes"]["rule"]), 3)
        self.assertEqual(self.routes("bob-key")["routes"]["users"], {})

    def test_a_classifier_decides_what_no_rule_matches(self):
        data = self.root / "labelled.jsonl"
        with data.open("w") as lines:
            for i in range(40):
                lines.write(json.dumps({"text": f" w10 w{20 + i % 7} w11", "module": "m1"}) + "\n")
                lines.write(json.dumps({"text": f" w50 w{60 + i % 7} w51", "module": ""}) + "\n")
        trained = subprocess.run([BINARY, "train-router", "--data", data, "--out", self.root / "router.bin", "--bits",
                                  "12"], capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(trained.returncode, 0, trained.stderr)
        self.assertRegex(trained.stdout, r"held out: accuracy 1\.0000; calibration error \(ECE\) 0\.\d+")
        self.assertRegex(trained.stdout, r"speed: \d+\.\d microseconds a text")
        self.write(FIRST + '\n[classifier]\nfile = "router.bin"\n')
        told = self.complete(" w10 w23 w11")["route"]
        self.assertEqual((told["rule"], told["modules"]), ("classifier", ["m1"]))
        self.assertGreater(told["score"], 0.5)
        self.assertEqual(self.tried(" w50 w61")["route"]["modules"], [])
        self.assertEqual(self.tried(" w10 w77")["route"]["rule"], "keyword")
        self.assertEqual(self.routes()["classifier"]["labels"], ["", "m1"])

        bad = subprocess.run([BINARY, "train-router", "--data", self.file, "--out", self.root / "x"],
                             capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(bad.returncode, 1)
        self.assertIn("routes.toml, line 2", bad.stderr)
        self.assertFalse((self.root / "x").exists())

    def test_hello_fetches_the_user_s_modules(self):
        self.call("POST", "/v1/modules/m2/unload", {})

        def tier():
            return next(m["tier"] for m in self.call("GET", "/v1/modules")[1]["data"] if m["name"] == "m2")
        self.assertEqual(tier(), "cold")

        async def hello():
            uri = f"ws://{self.server.host}:{self.server.port}/v1/ws"
            headers = {"Authorization": "Bearer bob-key"}
            async with websockets.connect(uri, subprotocols=["attune.v1"], additional_headers=headers) as connection:
                await connection.send('{"type": "hello", "user": "ann"}')
                return await asyncio.to_thread(within, 20, lambda: tier() == "resident")
        self.assertTrue(asyncio.run(hello()))


if __name__ == "__main__":
    unittest.main()
