"""SmolLM2's own GGUF file against the folder made of it: the same numbers, so the same answers."""
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from support import SMOLLM2, SOURCE, Server

GGUF = SMOLLM2.with_name(SMOLLM2.name + ".gguf")
TOKENS = 32
TOGETHER = 5  # a request's answer must come within the client's time-out on a busy machine, too
PROMPTS = [
    "The capital of France is", "Once upon a time there was", "def fibonacci(n):\n", "The three laws of motion are",
    "Dear Sir or Madam,\n", "1, 2, 3, 4,", "SELECT name FROM", "Water boils at a temperature of", "In 1969,",
    "To make a good soup, first", "The mitochondrion is", "Q: What is 12 times 7?\nA:", "Die Hauptstadt von Deutschland",
    "import numpy as np\n\n", "The defendant shall", "She opened the door and", "The best way to learn a language",
    "<html>\n<head>", "A haiku about autumn:\n", "日本の首都は",
]


class GgufFile(unittest.TestCase):
    def answers(self, model, dtype):
        """Per prompt: the tokens' texts and log-probabilities; then a chat's text, the base's id, the weights' bytes."""
        server = Server(model, dtype=dtype)
        self.addCleanup(server.kill)
        cards = server.call("GET", "/v1/models")[1]["data"]
        rows = []
        for first in range(0, len(PROMPTS), TOGETHER):
            status, body, _ = server.post("/v1/completions", {
                "model": cards[0]["id"], "prompt": PROMPTS[first:first + TOGETHER], "max_tokens": TOKENS,
                "temperature": 0, "logprobs": 1, "ignore_eos": True})
            self.assertEqual(status, 200, body)
            choices = sorted(body["choices"], key=lambda c: c["index"])
            rows += [(c["logprobs"]["tokens"], c["logprobs"]["token_logprobs"]) for c in choices]
        self.assertEqual([len(tokens) for tokens, _ in rows], [TOKENS] * len(PROMPTS))
        status, chat, _ = server.post("/v1/chat/completions", {
            "model": cards[0]["id"], "max_tokens": 24, "temperature": 0,
            "messages": [{"role": "user", "content": "What is the capital of France?"}]})
        self.assertEqual(status, 200, chat)
        lines = server.call("GET", "/metrics")[1].splitlines()
        held = next(float(line.split()[1]) for line in lines if line.startswith("attune_weight_bytes{"))
        self.assertEqual(server.stop(), 0)
        return rows, chat["choices"][0]["message"]["content"], cards[0]["id"], held

    def check_equal(self, folder, dtype):
        ours, chat, name, _ = self.answers(GGUF, dtype)
        theirs, expected, _, _ = self.answers(folder, dtype)
        self.assertEqual(name, GGUF.stem)
        for prompt, a, b in zip(PROMPTS, ours, theirs):
            self.assertEqual(a, b, prompt)
        self.assertEqual(chat, expected)
        self.assertIn("Paris", chat)

    def test_at_bf16_it_answers_like_the_converted_folder(self):
        self.check_equal(SMOLLM2, "bf16")

    def test_by_default_it_is_served_in_the_bits_it_is_stored_in(self):
        ours, _, _, held = self.answers(GGUF, "auto")
        theirs, _, _, whole = self.answers(SMOLLM2, "bf16")
        # Nothing is widened: Q4_1 takes 5 bits a weight here and there, Q8_0 takes 8.5.
        self.assertLess(held, GGUF.stat().st_size * 1.02)
        self.assertLess(held, whole * 0.4)
        # Only activations are rounded more: as long as a text is the same, its tokens are about as likely.
        differences = []
        for a, b in zip(ours, theirs):
            for ours_token, ours_logprob, their_token, their_logprob in zip(*a, *b):
                differences.append(abs(ours_logprob - their_logprob))
                if ours_token != their_token:
                    break
        self.assertGreater(len(differences), 5 * len(PROMPTS))
        self.assertLess(sum(differences) / len(differences), 0.15)
        self.assertGreater(sum(differences), 0)

    def test_at_f32_it_answers_like_a_folder_of_its_unrounded_values(self):
        with tempfile.TemporaryDirectory(prefix="attune-f32-") as folder:
            subprocess.run([sys.executable, SOURCE / "demo" / "convert_smollm2.py", "--f32", "--gguf", GGUF, folder],
                           check=True, stdout=subprocess.DEVNULL)
            self.check_equal(Path(folder), "f32")


if __name__ == "__main__":
    unittest.main()
