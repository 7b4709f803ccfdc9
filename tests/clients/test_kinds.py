"""BOFT, OFT and LoKr adapters as PEFT saves them: the server's log-probabilities are those of transformers and PEFT
(tests/data/dense_kinds.tar.xz, written by make_dense_kinds.py)."""
import json
import shutil
import tempfile
import unittest
from pathlib import Path

from support import TEST_DATA, TINY_SPECIALS, Server, make_words, tokens_of

DATA = TEST_DATA / "dense_kinds"
NEAR = 1e-3  # of log-probabilities in float32; the least margin between two tokens is 2e-3


class DenseKinds(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="attune-kinds-")
        self.addCleanup(self.folder.cleanup)
        self.results = json.loads((DATA / "modules.json").read_text())

    def check(self, server, module, case):
        status, body, _ = server.post("/v1/completions", {
            "model": module, "prompt": case["prompt"], "max_tokens": len(case["output"]), "temperature": 0,
            "ignore_eos": True, "logprobs": 0, "prompt_logprobs": 0, "skip_special_tokens": False, "attune": {"cold": "wait"}})
        self.assertEqual(status, 200, body)
        choice = body["choices"][0]
        self.assertEqual([m["name"] for m in body["attune"]["served"][0]["modules"]], [module])
        self.assertEqual(tokens_of(choice["text"]), case["output"])
        scores = body["prompt_logprobs"] if "prompt_logprobs" in body else choice["prompt_logprobs"]
        got = [position[str(i)]["logprob"] for position, i in zip(scores[1:], case["prompt"][1:])]
        got += choice["logprobs"]["token_logprobs"]
        self.assertEqual(len(got), len(case["logprobs"]))
        self.assertLess(max(abs(a - b) for a, b in zip(got, case["logprobs"])), NEAR)

    def check_model(self, model):
        results = [r for r in self.results if r["model"] == model]
        self.assertTrue(results)
        base = shutil.copytree(TEST_DATA / "golden" / "models" / model, Path(self.folder.name) / model)
        make_words(base, TINY_SPECIALS)
        server = Server(base, modules=[DATA / "modules" / model], model_id="base",
                        settings=("modules.slot_dtype=f32",))
        self.addCleanup(server.kill)
        for result in results:
            for case in result["cases"]:
                with self.subTest(module=result["module"], prompt=len(case["prompt"])):
                    self.check(server, result["module"], case)

    def test_each_config_answers_as_with_peft(self):
        self.check_model("llama_gqa_tied")

    def test_each_config_answers_as_with_peft_over_a_base_with_biases(self):
        self.check_model("qwen2_bias")


if __name__ == "__main__":
    unittest.main()
