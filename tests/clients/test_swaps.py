"""load_inplace over HTTP, strict and relaxed, along the reference's swap sequences."""
import json
import shutil
import unittest

from support import TEST_DATA, TinyServerTest, binding_steps, tokens_of

MODEL = "llama_gqa_tied"
SEQUENCES = [s for s in json.loads((TEST_DATA / "golden" / "hotswap.json").read_text()) if s["model"] == MODEL]
MODES = [s for s in json.loads((TEST_DATA / "golden_states" / "hotswap_modes.json").read_text()) if s["model"] == MODEL]


class Swaps(TinyServerTest):
    module_count = 0
    mode = "relaxed"
    settings = ("modules.slot_dtype=f32",)

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        shutil.copytree(TEST_DATA / "golden" / "adapters" / MODEL, cls.root / "all")

    def load(self, adapter, inplace):
        return self.server.post("/v1/load_lora_adapter", {
            "lora_name": "m", "lora_path": str(self.root / "all" / adapter), "load_inplace": inplace})

    def assert_holds(self, case):
        facts = json.loads((TEST_DATA / "golden" / "golden" / MODEL / f"{case}.json").read_text())
        for prompt in facts["prompts"][1:3]:
            body = self.complete("m", prompt["input_ids"], 32, logprobs=2, attune={"cold": "wait"})
            steps = min(prompt["safe_steps"], binding_steps(body["choices"][0]))
            self.assertEqual(tokens_of(body["choices"][0]["text"])[:steps], prompt["continuation"][:steps])

    def test_every_step_of_the_reference_s_sequences(self):
        refused = 0
        for sequence, modes in zip(SEQUENCES, MODES):
            for i, (step, both) in enumerate(zip(sequence["steps"], modes["steps"])):
                expected = both[self.mode]
                with self.subTest(sequence=sequence["sequence"], step=step):
                    status, body, _ = self.load(step.get("load") or step["swap_in"], inplace=i > 0)
                    self.assertEqual(status == 200, expected["accepted"], body)
                    if not expected["accepted"]:
                        self.assertTrue(400 <= status < 500, status)
                        self.assertTrue(body["error"]["message"].startswith(step["message_start"]), body)
                        refused += 1
                    self.assert_holds(expected["expect_case"])
            self.assertEqual(self.server.post("/v1/unload_lora_adapter", {"lora_name": "m"})[0], 200)
        self.assertEqual(refused, 4 if self.mode == "strict" else 0)
        self.assert_idle()


class StrictSwaps(Swaps):
    mode = "strict"
    settings = ("modules.slot_dtype=f32", "modules.swap=strict")

    def test_a_name_that_nobody_has_takes_no_swap(self):
        status, body, _ = self.load("lora_r4", inplace=True)
        self.assertTrue(400 <= status < 500, body)
        self.assertIn("unexpected keys found: base_model.", body["error"]["message"])


if __name__ == "__main__":
    unittest.main()
