"""Modules by HTTP: cold ones, adapters that come and go, bad ones, and the audit that nothing touched the base."""
import concurrent.futures
import json
import os
import shutil
import tempfile
import unittest
from pathlib import Path

from support import (ATTENTION, MLP, TEST_DATA, TINY_ID, Server, TinyServerTest, binding_steps, events_of, make_modules,
                     make_tiny_model, prompt_of, tokens_of, within, write_module)


class ColdModules(TinyServerTest):
    module_count = 60

    def ask(self, name):
        return self.complete(name, prompt_of(5), 24, attune={"cold": "wait"}, logprobs=2)

    def test_60_cold_modules_asked_at_once_all_answer_as_each_does_alone(self):
        names = [f"m{i}" for i in range(self.module_count)]
        with concurrent.futures.ThreadPoolExecutor(len(names)) as pool:
            answers = list(pool.map(self.ask, names))
        first_scores = set()
        for name, body in zip(names, answers):
            with self.subTest(module=name):
                self.assert_served(body, [(name, 24)])
                alone = self.ask(name)["choices"][0]
                choice, binding = body["choices"][0], binding_steps(alone)
                self.assertEqual(tokens_of(choice["text"])[:binding], tokens_of(alone["text"])[:binding])
                score = choice["logprobs"]["token_logprobs"][0]
                self.assertAlmostEqual(score, alone["logprobs"]["token_logprobs"][0], delta=1e-4)
                first_scores.add(round(score, 5))
        self.assertEqual(len(first_scores), len(names), "two modules gave the same log-probability")
        self.assert_idle()


class FewSlotBytes(TinyServerTest):
    """Slots for two of three modules (430 kB each in bfloat16)."""

    module_count = 0
    settings = ("modules.device_bytes=1MiB", "modules.max_rank=256")
    names = ("big0", "big1", "big2")

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        for i, name in enumerate(cls.names):
            cls.load(name, seed=30 + i, rank=64)

    @classmethod
    def load(cls, name, seed, rank):
        write_module(cls.model, cls.root / name, seed=seed, rank=rank, targets=ATTENTION + MLP)
        return cls.server.post("/v1/load_lora_adapter", {"lora_name": name, "lora_path": str(cls.root / name)})

    def ask(self, name):
        body = self.complete(name, prompt_of(9), 24, attune={"cold": "wait"}, logprobs=2)
        self.assert_served(body, [(name, 24)])
        return body["choices"][0]["logprobs"]["token_logprobs"]

    def test_modules_that_push_each_other_out_answer_the_same_every_time(self):
        first = {name: self.ask(name) for name in self.names}
        self.assertEqual(len({scores[0] for scores in first.values()}), len(self.names))
        for _ in range(8):
            for name in self.names:
                for got, expected in zip(self.ask(name), first[name]):
                    self.assertAlmostEqual(got, expected, delta=1e-4)
        resident = [m["name"] for m in self.server.modules().values() if m["tier"] == "resident"]
        self.assertLessEqual(len(resident), 2)
        self.assert_idle()

    def test_asked_at_once_they_all_get_their_turn(self):
        names = self.names * 5
        with concurrent.futures.ThreadPoolExecutor(len(names)) as pool:
            list(pool.map(self.ask, names))
        self.assert_idle()

    def test_a_module_larger_than_all_slots_is_refused_with_both_sizes(self):
        self.load("huge", seed=3, rank=200)  # whether it may wait in host memory is the house's own affair
        for cold in ("wait", "upgrade", "fallback"):
            status, body, _ = self.server.post("/v1/completions", {
                "model": "huge", "prompt": prompt_of(1), "max_tokens": 4, "attune": {"cold": cold}})
            self.assertTrue(400 <= status < 500, (status, body))
            self.assertIn("1048576", body["error"]["message"])


class Modules(TinyServerTest):
    module_count = 3

    def make_cold(self, name):
        status, body, _ = self.server.post(f"/v1/modules/{name}/unload", {})
        self.assertIn(status, (200, 202), body)
        self.assertTrue(within(5, lambda: self.server.modules()[name]["tier"] == "cold"), self.server.modules()[name])

    def load(self, name, folder, **more):
        return self.server.post("/v1/load_lora_adapter", {"lora_name": name, "lora_path": str(folder), **more})

    def unload(self, name):
        return self.server.post("/v1/unload_lora_adapter", {"lora_name": name})

    def test_wait_gives_the_module_from_the_first_token(self):
        self.make_cold("m0")
        body = self.complete("m0", prompt_of(1), attune={"cold": "wait"})
        self.assertEqual(self.headers["attune-cold"], "wait")
        self.assertEqual(self.headers["attune-served"], "module")
        self.assert_served(body, [("m0", 16)])
        self.assertEqual(self.server.modules()["m0"]["tier"], "resident")

    def test_fallback_gives_the_base_to_the_end_and_loads_the_module(self):
        self.make_cold("m1")
        base = self.complete(TINY_ID, prompt_of(2), 32)
        body = self.complete("m1", prompt_of(2), 32, attune={"cold": "fallback"})
        self.assertEqual(self.headers["attune-cold"], "fallback")
        self.assertEqual(self.headers["attune-served"], "base")
        self.assert_served(body, [(None, 32)])
        self.assertEqual(body["choices"][0]["text"], base["choices"][0]["text"])
        self.assertTrue(within(10, lambda: self.server.modules()["m1"]["tier"] in ("host", "resident")))
        self.assert_served(self.complete("m1", prompt_of(2), 32), [("m1", 32)])
        self.assertEqual(self.headers["attune-cold"], "warm")

    def test_upgrade_switches_and_goes_on_as_the_module_would_on_that_context(self):
        total, prompt = 400, prompt_of(4)
        for _ in range(10):  # a load may end before the base has said a word: then there was no switch to look at
            self.make_cold("m2")
            body = self.complete("m2", prompt, total, attune={"cold": "upgrade"})
            self.assertEqual(self.headers["attune-cold"], "upgrade")
            served = body["attune"]["served"]
            if len(served) == 2:
                break
        self.assert_served(body, [(None, None), ("m2", None)])
        self.assertEqual(self.headers["attune-served"], "mixed")
        tokens, before = tokens_of(body["choices"][0]["text"]), served[0]["tokens"]
        self.assertEqual(tokens[:before], tokens_of(self.complete(TINY_ID, prompt, before)["choices"][0]["text"]))
        after = self.complete("m2", prompt + tokens[:before], 24, logprobs=2)["choices"][0]
        binding = binding_steps(after)
        self.assertGreater(binding, 0)
        expected = tokens_of(after["text"])
        self.assertEqual(tokens[before:before + 24][:binding], expected[:len(tokens) - before][:binding])

    def test_an_adapter_is_added_served_and_removed_as_vllm_clients_expect(self):
        write_module(self.model, self.root / "late", seed=7)
        status, text, headers = self.load("newcomer", self.root / "late")
        self.assertEqual((status, text), (200, "Success: LoRA adapter 'newcomer' added successfully."))
        self.assertTrue(headers["content-type"].startswith("text/plain"))
        self.assertIn("newcomer", [card["id"] for card in self.server.call("GET", "/v1/models")[1]["data"]])
        self.assert_served(self.complete("newcomer", prompt_of(1)), [("newcomer", 16)])
        self.assertEqual(self.headers["attune-cold"], "warm")
        self.assertEqual(self.load("newcomer", self.root / "late")[0], 400)
        self.assertEqual(self.load("newcomer", self.root / "late", load_inplace=True)[0], 200)
        status, text, _ = self.unload("newcomer")
        self.assertEqual((status, text), (200, "Success: LoRA adapter 'newcomer' removed successfully."))
        self.assertNotIn("newcomer", self.server.modules())
        self.assertEqual(self.server.post("/v1/completions", {"model": "newcomer", "prompt": [5]})[0], 404)
        status, body, _ = self.unload("newcomer")
        self.assertEqual((status, body["error"]["type"]), (404, "NotFoundError"))
        self.assertIn("newcomer", body["error"]["message"])

    def test_a_name_that_moves_to_another_content_never_answers_from_the_first_one_s_cache(self):
        """Case A1 over HTTP, and the same for a module that is replaced in place."""
        for number in (11, 12):
            write_module(self.model, self.root / f"content{number}", seed=number)
        prompt = prompt_of(5, 70)

        def answer(name):
            body = self.complete(name, prompt, attune={"cold": "wait"})
            return body["choices"][0]["text"], body["usage"]["prompt_tokens_details"]["cached_tokens"]

        for name, number in (("alone11", 11), ("alone12", 12)):
            self.assertEqual(self.load(name, self.root / f"content{number}")[0], 200)
        # A salt of its own, so that these leave nothing for the others.
        expected = {number: self.complete(f"alone{number}", prompt, attune={"cold": "wait"}, cache_salt="apart")
                    ["choices"][0]["text"] for number in (11, 12)}
        self.assertNotEqual(expected[11], expected[12])
        self.assertEqual(self.load("moving", self.root / "content11")[0], 200)
        self.assertEqual(answer("moving"), (expected[11], 0))
        self.assertEqual(answer("moving"), (expected[11], 64))
        self.unload("moving")
        self.assertEqual(self.load("moving", self.root / "content12")[0], 200)
        self.assertEqual(answer("moving"), (expected[12], 0))
        self.assertEqual(self.load("moving", self.root / "content11", load_inplace=True)[0], 200)
        self.assertEqual(answer("moving"), (expected[11], 64))
        self.assertEqual(self.load("moving", self.root / "content12", load_inplace=True)[0], 200)
        self.assertEqual(answer("moving"), (expected[12], 64))
        for name in ("moving", "alone11", "alone12"):
            self.unload(name)

    def test_a_module_of_some_layers_is_listed_with_those(self):
        shutil.copytree(TEST_DATA / "golden" / "adapters" / "llama_gqa_tied" / "lora_regex_l1", self.root / "upper")
        self.assertEqual(self.load("upper", self.root / "upper")[0], 200)
        layers = self.server.modules()["upper"]["layers"]
        self.assertEqual(layers, [{"layer": layer, "rank": 4, "scale": 2.0} for layer in (1, 2)])

    def test_20_loads_of_one_name_and_path_at_once_make_one_module_and_no_500(self):
        write_module(self.model, self.root / "rush", seed=8)
        with concurrent.futures.ThreadPoolExecutor(20) as pool:
            statuses = list(pool.map(lambda _: self.load("crowd", self.root / "rush")[0], range(20)))
        self.assertIn(200, statuses)
        self.assertLessEqual(set(statuses), {200, 400})
        self.assert_served(self.complete("crowd", prompt_of(1)), [("crowd", 16)])
        self.assertEqual(self.unload("crowd")[0], 200)

    def test_a_path_outside_the_roots_and_a_missing_one_read_the_same(self):
        inside, outside = self.load("ghost", self.root / "nothing-here"), self.load("ghost", self.model)
        self.assertEqual((inside[0], outside[0]), (404, 404))
        self.assertEqual(inside[1]["error"]["message"], outside[1]["error"]["message"])
        for path in ("https://example.com/x", "file:///etc", "../model", "\\\\host\\share"):
            status, body, _ = self.load("ghost", path)
            self.assertEqual(status, 404, (path, body))
            self.assertNotIn(self.folder.name, json.dumps(body))

    def test_a_bad_adapter_is_refused_whole_and_named_without_a_path(self):
        shutil.copytree(self.root / "m0", self.root / "cut")
        weights = self.root / "cut" / "adapter_model.safetensors"
        weights.write_bytes(weights.read_bytes()[:100])
        status, body, _ = self.load("broken", self.root / "cut")
        self.assertIn(status, (400, 422), body)
        self.assertNotIn(self.folder.name, body["error"]["message"])
        self.assertNotIn("broken", self.server.modules())
        self.assertEqual(self.server.post("/v1/completions", {"model": "broken", "prompt": [5]})[0], 404)
        self.assert_served(self.complete("m0", prompt_of(1), attune={"cold": "wait"}), [("m0", 16)])

    def test_a_fifo_for_weights_is_the_adapter_s_fault_and_hangs_nobody(self):
        shutil.copytree(self.root / "m0", self.root / "piped")
        (self.root / "piped" / "adapter_model.safetensors").unlink()
        os.mkfifo(self.root / "piped" / "adapter_model.safetensors")
        status, body, _ = self.load("pipe", self.root / "piped")
        self.assertEqual((status, body["error"]["message"]), (422, "adapter_model.safetensors is not a regular file"))

    def test_an_adapter_is_replaced_under_a_running_stream_without_breaking_it(self):
        write_module(self.model, self.root / "v1", seed=21)
        write_module(self.model, self.root / "v2", seed=22)
        self.assertEqual(self.load("moving", self.root / "v1")[0], 200)
        old = self.complete("moving", prompt_of(6), 400)
        connection, response = self.server.open_stream({
            "model": "moving", "prompt": prompt_of(6), "max_tokens": 400, "temperature": 0, "ignore_eos": True,
            "skip_special_tokens": False})
        events = events_of(response)
        text = next(events)["choices"][0]["text"]
        self.assertEqual(self.load("moving", self.root / "v2", load_inplace=True)[0], 200)
        served = None
        for event in events:
            text += "".join(choice["text"] for choice in event["choices"])
            served = (event.get("attune") or {}).get("served", served)
        connection.close()
        self.assertEqual({m["generation"] for s in served for m in s["modules"]},
                         {m["generation"] for s in old["attune"]["served"] for m in s["modules"]})
        self.assertEqual(tokens_of(text)[:16], tokens_of(old["choices"][0]["text"])[:16])
        new = self.complete("moving", prompt_of(6), 16)
        self.assertNotEqual(new["choices"][0]["text"], old["choices"][0]["text"][:len(new["choices"][0]["text"])])
        self.assertEqual(self.unload("moving")[0], 200)

    def test_pinning_shows_and_unknown_names_are_404(self):
        self.assertIn(self.server.post("/v1/modules/m0/pin", {})[0], (200, 202))
        self.assertTrue(within(10, lambda: self.server.modules()["m0"]["pinned"]))
        self.assertIn(self.server.post("/v1/modules/m0/unpin", {})[0], (200, 202))
        self.assertTrue(within(10, lambda: not self.server.modules()["m0"]["pinned"]))
        for order in ("load", "unload", "pin", "unpin"):
            self.assertEqual(self.server.post(f"/v1/modules/nobody/{order}", {})[0], 404)

    def test_the_audit_verifies_the_base_after_all_that(self):
        status, audit, _ = self.server.post("/v1/audit", {})
        self.assertEqual(status, 200, audit)
        self.assertTrue(audit["ok"])
        self.assertEqual(audit["state"], "verified")
        self.assertRegex(audit["checkpoint"], "^sha256:[0-9a-f]{64}$")
        self.assertEqual(audit["expected"], audit["measured"])
        self.assertEqual(audit["alarms"], 0)
        again = self.server.call("GET", "/v1/audit")[1]
        self.assertEqual(again["measured"], audit["measured"])
        self.assertGreaterEqual(again["runs"], 1)


class QuantisedBase(unittest.TestCase):
    def answer(self, apply):
        with tempfile.TemporaryDirectory(prefix="attune-quantised-") as folder:
            model = make_tiny_model(Path(folder) / "model")
            (Path(folder) / "modules").mkdir()
            make_modules(model, Path(folder) / "modules", 1)
            server = Server(model, modules=[Path(folder) / "modules"], model_id=TINY_ID, dtype="int8",
                            settings=(f"scheduler.apply={apply}",))
            self.addCleanup(server.kill)
            for _ in range(3):
                status, body, _ = server.post("/v1/completions", {
                    "model": "m0", "prompt": prompt_of(1), "max_tokens": 100, "temperature": 0, "ignore_eos": True,
                    "attune": {"cold": "wait"}})
                self.assertEqual(status, 200, body)
                self.assertEqual(body["attune"]["apply"], "batched")
            return body["choices"][0]["text"], server.log_text()

    def test_auto_merges_nothing_into_quantised_weights_and_the_log_says_so(self):
        """Case B24 over HTTP."""
        text, log = self.answer("auto")
        batched, silent = self.answer("batched")
        self.assertEqual(text, batched)
        said = "scheduler.apply is auto: modules act row by row, as nothing is merged into quantised weights"
        self.assertIn(said, log)
        self.assertNotIn(said, silent)


if __name__ == "__main__":
    unittest.main()
