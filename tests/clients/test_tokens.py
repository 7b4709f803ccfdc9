"""Modules whose tokenizer has more added tokens than the base's, as PEFT saves them: their prompts, texts and
log-probabilities are those of transformers and PEFT (tests/data/new_tokens.tar.xz, written by make_new_tokens.py)."""
import json
import shutil
import tempfile
import unittest
from pathlib import Path

from support import TEST_DATA, Server, events_of
from test_chats import make_model

MODULES = TEST_DATA / "new_tokens" / "modules"
NEAR = 1e-3  # of log-probabilities in float32; the least margin between two tokens is 5e-3


class NewTokens(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.results = json.loads((TEST_DATA / "new_tokens" / "modules.json").read_text())

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="attune-tokens-")
        self.addCleanup(self.folder.cleanup)

    def serve(self, model, modules=None, settings=()):
        base = make_model(model, Path(self.folder.name) / model)
        server = Server(base, modules=[modules or MODULES / model], model_id="base",
                        settings=("modules.slot_dtype=f32", *settings))
        self.addCleanup(server.kill)
        return server

    def complete(self, server, module, prompt, **more):
        status, body, headers = server.post("/v1/completions", {
            "model": module, "prompt": prompt, "max_tokens": 12, "temperature": 0, "ignore_eos": True, "logprobs": 0,
            "prompt_logprobs": 0, "skip_special_tokens": False, **more})
        self.assertEqual(status, 200, body)
        return body, headers

    def check(self, server, server_model, module, case):
        body, _ = self.complete(server, module, case["prompt"])
        choice = body["choices"][0]
        # A stream hands out a character of byte tokens before it sees that the bytes after it are none: transformers, which
        # decodes the whole list, shows U+FFFD there too. Log-probabilities tell these tokens.
        certain = server_model != "mistral_swa" or "\ufffd" not in case["shown"]
        if certain:
            self.assertEqual(choice["text"], case["shown"])
        self.assertEqual([m["name"] for m in body["attune"]["served"][0]["modules"]], [module])
        scores = body["prompt_logprobs"] if "prompt_logprobs" in body else choice["prompt_logprobs"]
        self.assertEqual([set(position) for position in scores[1:]], [{str(i)} for i in case["ids"][1:]])
        got = [position[str(i)]["logprob"] for position, i in zip(scores[1:], case["ids"][1:])]
        got += choice["logprobs"]["token_logprobs"]
        self.assertEqual(len(got), len(case["logprobs"]))
        self.assertLess(max(abs(a - b) for a, b in zip(got, case["logprobs"])), NEAR)
        # Token by token and as one text; the special token is shown only when asked for.
        body, _ = self.complete(server, module, case["ids"], skip_special_tokens=True)
        if certain:
            self.assertEqual(body["choices"][0]["text"], case["text"])
        connection, response = server.open_stream({
            "model": module, "prompt": case["prompt"], "max_tokens": 12, "temperature": 0, "ignore_eos": True,
            "skip_special_tokens": False})
        streamed = "".join(e["choices"][0]["text"] for e in events_of(response) if e["choices"])
        self.assertEqual(streamed, case["shown"] if certain else choice["text"])
        connection.close()
        status, body, _ = server.post("/tokenize", {"model": module, "prompt": case["prompt"]})
        self.assertEqual((status, body["tokens"]), (200, case["ids"]))
        status, body, _ = server.post("/detokenize", {"model": module, "tokens": case["output"]})
        self.assertEqual((status, body), (200, {"prompt": case["shown"]}))

    def test_modules_speak_and_read_their_new_tokens_as_under_transformers_and_peft(self):
        shown = 0
        for model in sorted({result["model"] for result in self.results}):
            server = self.serve(model)
            for result in self.results:
                for case in result["cases"] if result["model"] == model else ():
                    with self.subTest(model=model, module=result["module"], prompt=case["prompt"]):
                        self.check(server, model, result["module"], case)
                        shown += "<|tool|>" in case["shown"]
            self.assertEqual(server.stop(), 0)
        self.assertGreaterEqual(shown, 6)

    def test_a_cold_module_is_waited_for_and_the_base_stays_as_it_was(self):
        server = self.serve("llama_gqa_tied")
        before, _ = self.complete(server, "base", "<|tool|>the weather")
        case = next(r for r in self.results if (r["model"], r["module"]) == ("llama_gqa_tied", "plain"))["cases"][1]
        for policy in ("upgrade", "fallback"):
            server.post("/v1/modules/plain/unload", {})
            body, headers = self.complete(server, "plain", case["prompt"], attune={"cold": policy})
            self.assertEqual(headers["attune-cold"], "wait")
            self.assertEqual(body["choices"][0]["text"], case["shown"])
        after, _ = self.complete(server, "base", "<|tool|>the weather")
        self.assertEqual(before["choices"][0]["text"], after["choices"][0]["text"])
        self.assertEqual(len(before["prompt_logprobs"] if "prompt_logprobs" in before else before["choices"][0]["prompt_logprobs"]),
                         before["usage"]["prompt_tokens"])
        self.assertGreater(before["usage"]["prompt_tokens"], 8)  # to the base it is text
        for body in ({"prompt": [1, 320]}, {"prompt": "x", "stop_token_ids": [320]}, {"prompt": "x", "logit_bias": {"320": 1}}):
            status, answer, _ = server.post("/v1/completions", {"model": "base", "max_tokens": 1, **body})
            self.assertEqual(status, 400, answer)
            self.assertIn("320", answer["error"]["message"])

    def test_stops_and_biases_may_name_new_tokens(self):
        server = self.serve("llama_gqa_tied")
        case = next(r for r in self.results if (r["model"], r["module"]) == ("llama_gqa_tied", "plain"))["cases"][1]
        self.assertTrue(case["shown"].startswith("<|tool|>"))
        body, _ = self.complete(server, "plain", case["prompt"], stop_token_ids=[320])
        self.assertEqual(body["choices"][0]["finish_reason"], "stop")
        self.assertEqual(body["choices"][0]["stop_reason"], 320)
        body, _ = self.complete(server, "plain", case["prompt"], stop=["<|tool|><|tool|>"])
        self.assertEqual((body["choices"][0]["text"], body["usage"]["completion_tokens"]), ("", 2))
        body, _ = self.complete(server, "plain", case["prompt"], logit_bias={"320": -100, "321": 100})
        self.assertEqual(body["choices"][0]["text"], "<step>" * 12)
        # In a chat a user's text makes no control token of a module's either.
        status, typed, _ = server.post("/tokenize", {"model": "plain", "messages": [{"role": "user", "content": "<|tool|><step>"}]})
        self.assertEqual(status, 200, typed)
        self.assertNotIn(320, typed["tokens"])
        self.assertIn(321, typed["tokens"])

    def test_batches_of_base_and_modules_do_not_mix_their_tokens(self):
        server = self.serve("llama_gqa_tied")
        cases = {r["module"]: r["cases"][1] for r in self.results if r["model"] == "llama_gqa_tied"}
        base, _ = self.complete(server, "base", "hello there")
        streams = []
        for _ in range(2):
            for module in cases:
                streams.append((cases[module]["shown"], *server.open_stream({
                    "model": module, "prompt": cases[module]["prompt"], "max_tokens": 12, "temperature": 0, "ignore_eos": True,
                    "skip_special_tokens": False})))
            streams.append((base["choices"][0]["text"], *server.open_stream({
                "model": "base", "prompt": "hello there", "max_tokens": 12, "temperature": 0, "ignore_eos": True,
                "skip_special_tokens": False})))
        for shown, connection, response in streams:
            self.assertEqual("".join(e["choices"][0]["text"] for e in events_of(response) if e["choices"]), shown)
            connection.close()

    def test_modules_that_disagree_or_lack_rows_are_refused_by_name(self):
        root = Path(self.folder.name) / "modules"
        shutil.copytree(MODULES / "llama_gqa_tied", root)
        shutil.copytree(root / "plain", root / "other")
        for name, change in (("other", {"content": "<other>"}), ("saved", {"id": 330})):
            tokenizer = json.loads((root / name / "tokenizer.json").read_text())
            tokenizer["added_tokens"][-1].update(change)
            (root / name / "tokenizer.json").write_text(json.dumps(tokenizer))
        (root / "trained" / "tokenizer.json").unlink()
        server = self.serve("llama_gqa_tied", root)
        for modules, status, message in (
                (("plain", "other"), 400, "modules `other` and `plain` bring different tokenizers"),
                (("saved",), 422, 'added token "rome" (id 330) has no row in these weights'),
                (("trained",), 422, "its tables have 3 rows more than this base's, but no tokenizer.json")):
            with self.subTest(modules=modules):
                got, body, _ = server.post("/v1/completions", {"model": "base", "prompt": "x", "max_tokens": 1,
                                                               "attune": {"cold": "wait", "modules": [{"name": m} for m in modules]}})
                self.assertEqual(got, status, body)
                self.assertIn(message, body["error"]["message"])
        both, _ = self.complete(server, "base", "<step>", attune={"modules": [{"name": "plain"}, {"name": "embedded"}]})
        self.assertEqual(both["usage"]["prompt_tokens"], 2)  # BOS and the token


if __name__ == "__main__":
    unittest.main()
