"""Keys, and modules that cannot be loaded: each hurts only who asked."""
import concurrent.futures
import hashlib
import json
import shutil
import signal
import tempfile
import unittest
from pathlib import Path

import openai
from support import TINY_ID, Server, TinyServerTest, make_modules, make_tiny_model, prompt_of, within


class Keys(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="attune-clients-")
        cls.addClassCleanup(folder.cleanup)
        root = Path(folder.name)
        model = make_tiny_model(root / "model")
        hashed = hashlib.sha256(b"boss-key").hexdigest()
        keys = root / "keys.toml"
        keys.write_text(f'client = ["plain-key", {{ key = "named-key", name = "ann" }}]\nadmin = ["sha256:{hashed}"]\n')
        modules = make_modules(model, root / "modules", 1)
        shutil.copytree(modules / "m0", modules / "hers" / "adapter")  # m0's content, but ann's
        (modules / "hers" / "module_config.json").write_text(json.dumps(
            {"format": 1, "name": "hers", "adapter": {"path": "adapter"}, "serving": {"owner": "ann"}}))
        cls.server = Server(model, modules=[modules], model_id=TINY_ID,
                            settings=[f"server.keys_file={keys}"])
        cls.addClassCleanup(cls.server.kill)

    def client(self, key):
        client = openai.OpenAI(base_url=f"{self.server.url}/v1", api_key=key, max_retries=0, timeout=60)
        self.addCleanup(client.close)
        return client

    def call(self, key, method, path, body=None):
        return self.server.call(method, path, body, {"Authorization": f"Bearer {key}"} if key else {})

    def test_a_wrong_key_is_401_and_a_client_s_key_generates(self):
        with self.assertRaises(openai.AuthenticationError):
            self.client("guess").completions.create(model=TINY_ID, prompt=prompt_of(1), max_tokens=4)
        for key in ("plain-key", "named-key", "boss-key"):
            answer = self.client(key).completions.create(model=TINY_ID, prompt=prompt_of(1), max_tokens=4)
            self.assertEqual(answer.usage.prompt_tokens, 12)

    def test_no_key_is_401_with_a_challenge_even_on_loopback(self):
        status, body, headers = self.call(None, "GET", "/v1/models")
        self.assertEqual((status, body["error"]["type"]), (401, "AuthenticationError"))
        self.assertIn("WWW-Authenticate", headers)

    def test_a_client_s_key_on_an_operator_s_route_is_403(self):
        with self.assertRaises(openai.PermissionDeniedError):
            self.client("plain-key").post("/audit", body={}, cast_to=object)
        for method, path in (("GET", "/metrics"), ("POST", "/v1/modules/m0/pin"), ("POST", "/v1/load_lora_adapter"),
                             ("POST", "/v1/audit")):
            self.assertEqual(self.call("plain-key", method, path, {} if method == "POST" else None)[0], 403, path)
        self.assertEqual(self.call("boss-key", "GET", "/metrics")[0], 200)
        self.assertEqual(self.call("boss-key", "POST", "/v1/audit", {})[0], 200)

    def test_the_cache_of_an_owner_s_module_is_the_owner_s(self):
        def cached(key, model):
            status, body, _ = self.call(key, "POST", "/v1/completions", {
                "model": model, "prompt": prompt_of(3, 50), "max_tokens": 2, "attune": {"cold": "wait"}})
            return body["usage"]["prompt_tokens_details"]["cached_tokens"] if status == 200 else status

        self.assertEqual([cached("named-key", "hers"), cached("named-key", "hers")], [0, 48])
        self.assertEqual(cached("plain-key", "hers"), 404)
        self.assertEqual([cached("plain-key", "m0"), cached("plain-key", "m0")], [0, 48])
        self.assertEqual(cached("boss-key", "hers"), 48)

    def test_health_and_ready_stay_open(self):
        self.assertEqual([self.call(None, "GET", path)[0] for path in ("/health", "/ready")], [200, 200])


class Failing(TinyServerTest):
    module_count = 2

    def break_module(self, name):
        """A module that looks right from its header and fails the full check: its last number is not one."""
        shutil.copytree(self.root / "m0", self.root / name)
        path = self.root / name / "adapter_model.safetensors"
        data = bytearray(path.read_bytes())
        data[-4:] = b"\x00\x00\xc0\x7f"  # a float32 NaN
        path.write_bytes(data)
        self.server.process.send_signal(signal.SIGHUP)
        self.assertTrue(within(10, lambda: name in self.server.modules()))

    def test_a_module_with_a_nan_fails_for_its_own_requests_and_nobody_else_s(self):
        self.break_module("bad")
        body = {"model": "bad", "prompt": prompt_of(1), "max_tokens": 8, "attune": {"cold": "wait"}}
        with concurrent.futures.ThreadPoolExecutor(12) as pool:
            bad = [pool.submit(self.server.post, "/v1/completions", body) for _ in range(4)]
            good = [pool.submit(self.complete, name, prompt_of(2), 64, attune={"cold": "wait"})
                    for name in (TINY_ID, "m0", "m1", TINY_ID, "m0", "m1")]
            for answer in good:
                self.assertEqual(answer.result()["usage"]["completion_tokens"], 64)
            for answer in bad:
                status, error, _ = answer.result()
                self.assertEqual(status, 422, error)
                self.assertEqual(error["error"]["type"], "UnprocessableEntityError")
                self.assertIn("bad", error["error"]["message"])
                self.assertNotIn(self.folder.name, error["error"]["message"])
        listed = self.server.modules()["bad"]
        self.assertEqual(listed["tier"], "failed")
        self.assertTrue(listed["last_error"])
        self.assertNotIn(self.folder.name, listed["last_error"])
        self.assertNotIn("bad", [card["id"] for card in self.server.call("GET", "/v1/models")[1]["data"]])
        self.assert_idle()

    def test_under_upgrade_a_module_that_fails_leaves_the_base_to_finish(self):
        self.break_module("worse")
        body = self.complete("worse", prompt_of(3), 200, attune={"cold": "upgrade"})
        self.assert_served(body, [(None, 200)])
        self.assertEqual(self.headers["attune-cold"], "upgrade")


if __name__ == "__main__":
    unittest.main()
