"""Cold policy revise as clients see it: the openai package, server-sent events and WebSockets."""
import asyncio
import json
import shutil
import unittest

import openai
import websockets
from support import TINY_ID, TinyServerTest, binding_steps, prompt_of, tokens_of, within

TOKENS = 300


def sse_of(response):
    """(event name or None, JSON) of each server-sent event up to [DONE]."""
    name = None
    for line in response:
        line = line.decode("utf-8").rstrip("\r\n")
        if line == "data: [DONE]":
            return
        if line.startswith("event: "):
            name = line[len("event: "):]
        elif line.startswith("data: "):
            yield name, json.loads(line[len("data: "):])
            name = None


class Revise(TinyServerTest):
    module_count = 2

    def make_cold(self, name):
        self.assertIn(self.server.post(f"/v1/modules/{name}/unload", {})[0], (200, 202))
        self.assertTrue(within(5, lambda: self.server.modules()[name]["tier"] == "cold"))

    def cold_until(self, name, ask, passes=2):
        """Asks the cold module until base and module both made tokens: a load may end before the base's first."""
        for _ in range(60):
            self.make_cold(name)
            answer = ask()
            if len(answer["attune"]["served"]) == passes:
                return answer
        self.fail(f"the base never made a token: {answer['attune']}")

    def warm(self, name, tokens=TOKENS, **more):
        choice = self.complete(name, prompt_of(3), tokens, logprobs=2, attune={"cold": "wait"}, **more)["choices"][0]
        return tokens_of(choice["text"]), binding_steps(choice)

    def test_an_answer_at_once_is_the_module_s_alone_and_both_passes_count(self):
        body = self.cold_until("m0", lambda: self.complete("m0", prompt_of(3), TOKENS, attune={"cold": "revise"}))
        self.assertEqual(self.headers["attune-cold"], "revise")
        self.assertEqual(body["attune"]["cold"], "revise")
        self.assert_served(body, [(None, None), ("m0", TOKENS)])
        self.assertGreater(body["usage"]["completion_tokens"], TOKENS)
        expected, binding = self.warm("m0")
        self.assertGreater(binding, 0)
        got = tokens_of(body["choices"][0]["text"])
        self.assertEqual(len(got), TOKENS)
        self.assertEqual(got[:binding], expected[:binding])
        self.assert_idle()

    def test_an_answer_that_ends_first_waits_for_its_module(self):
        body = self.cold_until("m0", lambda: self.complete("m0", prompt_of(3), 1, attune={"cold": "revise"}))
        self.assert_served(body, [(None, 1), ("m0", 1)])
        self.assertEqual(tokens_of(body["choices"][0]["text"]), self.warm("m0", 1)[0])

    def stream(self, attune, **more):
        connection, response = self.server.open_stream({
            "model": "m1", "prompt": prompt_of(3), "max_tokens": TOKENS, "temperature": 0, "ignore_eos": True,
            "skip_special_tokens": False, "attune": attune, **more})
        events = list(sse_of(response))
        self.headers = response.headers
        connection.close()
        return {"events": events, "attune": [e["attune"] for _, e in events if "attune" in e][0]}

    def test_a_stream_that_asks_is_told_to_forget_and_gets_the_module_s_answer(self):
        for n in (1, 2):
            answer = self.cold_until("m1", lambda: self.stream({"cold": "revise"}, n=n), passes=2 * n)
            self.assertEqual(self.headers["attune-cold"], "revise")
            names = [name for name, _ in answer["events"]]
            self.assertEqual(names.count("revision"), 1)
            at = names.index("revision")
            revision = answer["events"][at][1]
            self.assertEqual([m["name"] for m in revision["modules"]], ["m1"])
            self.assertEqual(revision["indexes"], list(range(n)))
            expected, binding = self.warm("m1")
            for index in range(n):
                texts = ["".join(c["text"] for name, e in part if name is None for c in e["choices"] if c["index"] == index)
                         for part in (answer["events"][:at], answer["events"][at + 1:])]
                self.assertEqual(tokens_of(texts[1])[:binding], expected[:binding])
                self.assertEqual(len(tokens_of(texts[1])), TOKENS)
                base = tokens_of(self.complete(TINY_ID, prompt_of(3), len(tokens_of(texts[0])))["choices"][0]["text"])
                self.assertEqual(tokens_of(texts[0]), base)
            before = sum(s["tokens"] for s in answer["attune"]["served"] if not s["modules"])
            self.assertEqual(revision["base_tokens"], before)

    def test_a_stream_that_did_not_ask_never_sees_one(self):
        for attune in ({}, {"cold": "upgrade"}):
            answer = self.cold_until("m1", lambda: self.stream(attune))
            self.assertEqual(self.headers["attune-cold"], "upgrade")
            self.assertNotIn("revision", [name for name, _ in answer["events"]])

    def test_the_openai_package_reads_both_forms(self):
        with openai.OpenAI(base_url=self.server.url + "/v1", api_key="none", max_retries=0) as client:
            body = {"model": "m0", "prompt": prompt_of(3), "max_tokens": TOKENS, "temperature": 0}
            extra = {"ignore_eos": True, "skip_special_tokens": False, "attune": {"cold": "revise"}}
            expected, binding = self.warm("m0")

            def at_once():
                return client.completions.create(**body, extra_body=extra).model_dump()

            answer = self.cold_until("m0", at_once)
            self.assertEqual(tokens_of(answer["choices"][0]["text"])[:binding], expected[:binding])

            def streamed():
                text, attune, revisions = "", None, 0
                for chunk in client.completions.create(**body, stream=True, extra_body=extra):
                    if chunk.object == "attune.revision":
                        text, revisions = "", revisions + 1
                    text += "".join(choice.text for choice in chunk.choices)
                    attune = (chunk.model_extra or {}).get("attune", attune)
                return {"attune": attune, "text": text, "revisions": revisions}

            answer = self.cold_until("m0", streamed)
            self.assertEqual(answer["revisions"], 1)
            self.assertEqual(tokens_of(answer["text"])[:binding], expected[:binding])

    def test_a_websocket_gets_a_revision_when_its_request_says_so(self):
        async def ask(cold):
            uri = f"ws://{self.server.host}:{self.server.port}/v1/ws"
            async with websockets.connect(uri, subprotocols=["attune.v1"], max_size=None) as connection:
                await connection.send(json.dumps({"type": "request", "id": "r", "endpoint": "completions", "body": {
                    "model": "m1", "prompt": prompt_of(3), "max_tokens": TOKENS, "temperature": 0, "ignore_eos": True,
                    "skip_special_tokens": False, "attune": {"cold": cold}}}))
                messages = []
                while not messages or messages[-1]["type"] not in ("done", "error"):
                    messages.append(json.loads(await asyncio.wait_for(connection.recv(), 60)))
                return {"messages": messages, "attune": messages[-1]["attune"], "usage": messages[-1]["usage"]}

        answer = self.cold_until("m1", lambda: asyncio.run(ask("revise")))
        types = [m["type"] for m in answer["messages"]]
        self.assertEqual((types.count("revision"), types.count("switch")), (1, 0))
        after = answer["messages"][types.index("revision") + 1:]
        text = "".join(c["text"] for m in after if m["type"] == "chunk" for c in m["data"]["choices"])
        expected, binding = self.warm("m1")
        self.assertEqual(tokens_of(text)[:binding], expected[:binding])
        self.assertEqual(sum(s["tokens"] for s in answer["attune"]["served"]), answer["usage"]["completion_tokens"])
        answer = self.cold_until("m1", lambda: asyncio.run(ask("upgrade")))
        self.assertNotIn("revision", [m["type"] for m in answer["messages"]])

    def test_a_load_that_fails_leaves_the_base_s_answer_or_is_told_before_it_began(self):
        shutil.copytree(self.root / "m0", self.root / "rots")
        self.assertEqual(self.server.post("/v1/load_lora_adapter", {
            "lora_name": "rots", "lora_path": str(self.root / "rots")})[0], 200)
        self.make_cold("rots")
        weights = self.root / "rots" / "adapter_model.safetensors"
        weights.write_bytes(weights.read_bytes()[:-4])
        status, body, _ = self.server.post("/v1/completions", {
            "model": "rots", "prompt": prompt_of(3), "max_tokens": 40, "temperature": 0, "ignore_eos": True,
            "skip_special_tokens": False, "attune": {"cold": "revise"}})
        if status == 422:  # the load was faster than the prompt
            self.assertIn("rots", body["error"]["message"])
            return
        self.assertEqual(status, 200, body)
        self.assertEqual(body["attune"]["cold"], "revise")
        self.assert_served(body, [(None, 40)])
        self.assertEqual(body["choices"][0]["text"], self.complete(TINY_ID, prompt_of(3), 40)["choices"][0]["text"])
        self.assert_idle()


class ReviseBySetting(TinyServerTest):
    module_count = 1
    settings = ("cold.policy=revise",)

    def test_answers_at_once_are_revised_and_streams_upgraded(self):
        status, body, headers = self.server.post("/v1/completions", {"model": "m0", "prompt": [5], "max_tokens": 2})
        self.assertEqual((status, headers["attune-cold"]), (200, "revise"), body)
        self.server.post("/v1/modules/m0/unload", {})
        connection, response = self.server.open_stream({"model": "m0", "prompt": prompt_of(3), "max_tokens": 200})
        self.assertEqual(response.headers["attune-cold"], "upgrade")
        self.assertNotIn("revision", [name for name, _ in sse_of(response)])
        connection.close()


if __name__ == "__main__":
    unittest.main()
