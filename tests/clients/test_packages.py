"""The reference packages over HTTP: states, adapters, compositions, requirements, and packages that must be refused."""
import json
import shutil
import tempfile
import unittest
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file
from support import TEST_DATA, Server, make_words, tokens_of

STATES = TEST_DATA / "golden_states"
INDEX = json.loads((STATES / "index.json").read_text())
TOLERANCE = 1e-4


class PackagesTest(unittest.TestCase):
    """One golden model with its packages as a module root."""

    model = "llama_gqa_tied"
    more_roots = ()

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="attune-packages-")
        cls.addClassCleanup(folder.cleanup)
        base = Path(folder.name) / cls.model
        shutil.copytree(TEST_DATA / "golden" / "models" / cls.model, base)
        make_words(base)
        cls.server = Server(base, modules=[STATES / "packages" / cls.model, *cls.more_roots], model_id="base",
                            settings=("modules.slot_dtype=f32", "cold.policy=wait", "modules.device_bytes=64MiB"))
        cls.addClassCleanup(cls.server.kill)

    @classmethod
    def tearDownClass(cls):
        assert cls.server.stop() == 0, cls.server.log_text()[-4000:]

    def ask(self, prompt, model="base", **attune):
        status, body, _ = self.server.post("/v1/completions", {
            "model": model, "prompt": prompt, "max_tokens": INDEX["steps"], "temperature": 0, "ignore_eos": True,
            "skip_special_tokens": False, "prompt_logprobs": 5, "attune": attune})
        return status, body

    def assert_holds(self, case, **request):
        """Tokens and prompt log-probabilities are those of the reference."""
        golden = STATES / "golden" / self.model / case
        facts = json.loads(golden.with_suffix(".json").read_text())
        logits = load_file(golden.with_suffix(".safetensors"))
        for number, prompt in enumerate(facts["prompts"]):
            status, body = self.ask(prompt["input_ids"], **request)
            self.assertEqual(status, 200, body)
            choice, steps = body["choices"][0], prompt["safe_steps"]
            self.assertEqual(tokens_of(choice["text"])[:steps], prompt["continuation"][:steps])
            rows = logits[f"logits_{number}"].astype(np.float64)
            expected = rows - np.log(np.exp(rows).sum(axis=1, keepdims=True))
            for position, scores in enumerate(choice["prompt_logprobs"]):
                for token, score in (scores or {}).items():
                    self.assertAlmostEqual(score["logprob"], expected[position - 1][int(token)], delta=TOLERANCE)
        return body

    def check_every_case(self):
        seen = 0
        for case in INDEX["cases"]:
            if case["model"] != self.model:
                continue
            for request in [case["request"], *case.get("also", [])]:
                with self.subTest(case=case["case"], request=request):
                    body = self.assert_holds(case["case"], **request)
                    applied = [m for m in case["applied"] if m["weight"] != 0]
                    served = body["attune"]["served"][0]["modules"]
                    if request is case["request"]:  # the others reach the same by other names
                        self.assertEqual([(m["name"], m["weight"]) for m in served],
                                         [(m["name"], m["weight"]) for m in applied])
                    seen += 1
        return seen


class Llama(PackagesTest):
    def test_every_case_gives_the_reference_s_answers(self):
        self.assertEqual(self.check_every_case(), 48)

    def test_a_composition_by_its_name_is_its_members(self):
        body = self.assert_holds("sequence_weights", model="duo")
        self.assertEqual([(m["name"], m["weight"]) for m in body["attune"]["served"][0]["modules"]],
                         [("tone", 0.5), ("topic", 1.0)])
        self.assert_holds("parallel_weights", model="duo_parallel")

    def test_compositions_that_combine_otherwise_need_a_request_that_says_how(self):
        status, body = self.ask([5], modules=[{"name": "duo"}, {"name": "duo_parallel"}])
        self.assertEqual(status, 400, body)
        self.assertIn("combine", body["error"]["message"])
        status, body = self.ask([5], modules=[{"name": "duo"}, {"name": "duo_parallel"}], combine="parallel")
        self.assertEqual(status, 400, body)
        self.assertIn("twice", body["error"]["message"])  # `topic`, with two weights

    def test_a_composition_is_listed_loaded_and_pinned_as_its_members(self):
        def listed():
            return self.server.modules()

        duo = listed()["duo"]
        self.assertEqual(duo["kind"], "composition")
        self.assertEqual(duo["members"], [{"name": "tone", "weight": 0.5}, {"name": "topic", "weight": 1.0}])
        self.assertEqual(duo["combine"], "sequence")
        status, body, _ = self.server.post("/v1/modules/duo/pin", {})
        self.assertEqual(status, 200, body)
        self.assertTrue(body["pinned"])
        status, body, _ = self.server.post("/v1/modules/duo/load", {})
        self.assertEqual((status, body["tier"]), (200, "resident"), body)
        for name in ("tone", "topic", "duo"):
            self.assertTrue(listed()[name]["pinned"], name)
            self.assertEqual(listed()[name]["tier"], "resident")
        self.assertEqual(self.server.post("/v1/modules/tone/unload", {})[0], 409)
        self.assertEqual(self.server.post("/v1/modules/duo/unpin", {})[0], 200)
        self.assertEqual(self.server.post("/v1/modules/tone/unload", {})[0], 200)
        self.assertFalse(listed()["tone"]["pinned"])
        self.assertEqual(listed()["duo"]["tier"], "cold")

    def test_overlaps_of_composed_modules_stand_in_the_route(self):
        _, body = self.ask([5], modules=[{"name": "lora_r7"}, {"name": "lora_r13"}])
        overlaps = body["attune"]["route"]["overlaps"]
        self.assertTrue(all(o["modules"] == ["lora_r13", "lora_r7"] for o in overlaps), overlaps)
        self.assertIn("q_proj", [p for o in overlaps for p in o["projections"]])
        _, body = self.ask([5], modules=[{"name": "tone"}, {"name": "topic"}])
        self.assertEqual({p for o in body["attune"]["route"].get("overlaps", []) for p in o["projections"]}, {"state"})
        _, body = self.ask([5], modules=[{"name": "lora_r7"}])
        self.assertNotIn("overlaps", body["attune"]["route"])


class Qwen3(PackagesTest):
    model = "qwen3_qknorm"

    def test_every_case_gives_the_reference_s_answers(self):
        self.assertEqual(self.check_every_case(), 48)


class Mistral(PackagesTest):
    model = "mistral_swa"

    def test_every_case_gives_the_reference_s_answers(self):
        self.assertGreaterEqual(self.check_every_case(), 10)


class BadPackages(PackagesTest):
    more_roots = (STATES / "bad",)

    def test_each_is_refused_by_what_is_wrong_with_it_and_hurts_nobody(self):
        bad = json.loads((STATES / "bad_packages.json").read_text())
        refused = 0
        for package in bad["packages"]:
            name = package["package"]
            with self.subTest(package=name):
                for request in ({"model": name}, {"modules": [{"name": name, "weight": 1.0}]}):
                    status, body = self.ask([5, 6, 7], **request)
                    self.assertTrue(400 <= status < 500, (status, body))
                    for part in package["error_names"]:
                        self.assertIn(part, body["error"]["message"])
                    self.assertNotIn(str(STATES), json.dumps(body))
                refused += 1
        self.assertEqual(refused, 18)
        self.assert_holds("tanh", modules=[{"name": bad["good_twin"], "weight": 1.0}])
        self.assert_holds("weight_zero")


if __name__ == "__main__":
    unittest.main()
