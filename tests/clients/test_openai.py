"""The `openai` package, sync and async, against SmolLM2 with the demo's modules."""
import asyncio
import unittest

import openai
from support import SMOLLM2, SOURCE, Server, within

BASE = "smollm2"
MODULES = {"code", "legal", "sentiment"}
CAPITAL = [{"role": "user", "content": "What is the capital of France?"}]


class OpenAI(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server(SMOLLM2, modules=[SOURCE / "demo" / "modules"], model_id=BASE, dtype="bf16",
                            settings=[f"routing.file={SOURCE / 'demo' / 'routes.toml'}"])
        cls.addClassCleanup(cls.server.kill)
        cls.client = openai.OpenAI(base_url=f"{cls.server.url}/v1", api_key="none", max_retries=0, timeout=120)
        cls.addClassCleanup(cls.client.close)

    @classmethod
    def tearDownClass(cls):
        assert cls.server.stop() == 0, cls.server.log_text()[-4000:]

    def async_client(self):
        return openai.AsyncOpenAI(base_url=f"{self.server.url}/v1", api_key="none", max_retries=0, timeout=120)

    def test_models_lists_the_base_first_and_the_modules(self):
        cards = self.client.models.list().data
        self.assertEqual(cards[0].id, BASE)
        self.assertEqual({card.id for card in cards[1:]}, MODULES)
        self.assertEqual({card.parent for card in cards[1:]}, {BASE})
        self.assertEqual(self.client.models.retrieve("code").id, "code")

    def test_a_chat_answers_with_text_and_usage(self):
        answer = self.client.chat.completions.create(model=BASE, messages=CAPITAL, max_tokens=24, temperature=0)
        self.assertEqual(answer.object, "chat.completion")
        self.assertEqual(answer.choices[0].message.role, "assistant")
        self.assertIn("Paris", answer.choices[0].message.content)
        self.assertIn(answer.choices[0].finish_reason, ("stop", "length"))
        self.assertEqual(answer.usage.total_tokens, answer.usage.prompt_tokens + answer.usage.completion_tokens)
        self.assertEqual(answer.attune["served"], [{"modules": [], "tokens": answer.usage.completion_tokens}])

    def test_a_streamed_chat_says_what_the_unstreamed_one_says(self):
        whole = self.client.chat.completions.create(model=BASE, messages=CAPITAL, max_tokens=24, temperature=0)
        stream = self.client.chat.completions.create(model=BASE, messages=CAPITAL, max_tokens=24, temperature=0,
                                                     stream=True, stream_options={"include_usage": True})
        chunks = list(stream)
        self.assertEqual(chunks[0].choices[0].delta.role, "assistant")
        self.assertEqual("".join(c.choices[0].delta.content or "" for c in chunks if c.choices),
                         whole.choices[0].message.content)
        self.assertEqual([c.choices[0].finish_reason for c in chunks if c.choices][-1], whole.choices[0].finish_reason)
        self.assertEqual(chunks[-1].choices, [])
        self.assertEqual(chunks[-1].usage.completion_tokens, whole.usage.completion_tokens)
        self.assertEqual({c.id for c in chunks}, {chunks[0].id})

    def test_without_include_usage_no_chunk_lacks_choices(self):
        stream = self.client.chat.completions.create(model=BASE, messages=CAPITAL, max_tokens=4, stream=True)
        self.assertTrue(all(chunk.choices for chunk in stream))

    def test_a_completion_takes_text_token_ids_and_several_prompts(self):
        ids = self.server.post("/tokenize", {"model": BASE, "prompt": "Once upon a time"})[1]["tokens"]
        by_text = self.client.completions.create(model=BASE, prompt="Once upon a time", max_tokens=12, temperature=0)
        by_ids = self.client.completions.create(model=BASE, prompt=ids, max_tokens=12, temperature=0)
        self.assertEqual(by_text.choices[0].text, by_ids.choices[0].text)
        self.assertEqual(by_text.usage.prompt_tokens, len(ids))
        both = self.client.completions.create(model=BASE, prompt=["Once upon a time", "1, 2, 3,"], max_tokens=6,
                                              temperature=0)
        self.assertEqual([choice.index for choice in both.choices], [0, 1])
        self.assertTrue(by_text.choices[0].text.startswith(both.choices[0].text))

    def test_a_completion_streams(self):
        chunks = list(self.client.completions.create(model=BASE, prompt="Once upon a time", max_tokens=12, temperature=0,
                                                     stream=True))
        whole = self.client.completions.create(model=BASE, prompt="Once upon a time", max_tokens=12, temperature=0)
        self.assertEqual("".join(c.choices[0].text for c in chunks), whole.choices[0].text)
        self.assertGreater(len(chunks), 3)

    def test_n_2_gives_two_choices_and_a_seed_gives_them_again(self):
        ask = lambda: self.client.chat.completions.create(model=BASE, messages=CAPITAL, max_tokens=16, n=2, seed=7,
                                                          temperature=1.0)
        first, second = ask(), ask()
        self.assertEqual([choice.index for choice in first.choices], [0, 1])
        self.assertEqual([c.message.content for c in first.choices], [c.message.content for c in second.choices])
        self.assertNotEqual(first.choices[0].message.content, first.choices[1].message.content)
        self.assertEqual(sum(s["tokens"] for s in first.attune["served"]), first.usage.completion_tokens)

    def test_logprobs_of_a_chat_name_the_chosen_token_and_the_best_ones(self):
        answer = self.client.chat.completions.create(model=BASE, messages=CAPITAL, max_tokens=6, temperature=0,
                                                     logprobs=True, top_logprobs=3)
        content = answer.choices[0].logprobs.content
        self.assertEqual(len(content), answer.usage.completion_tokens)
        for token in content:
            self.assertEqual(len(token.top_logprobs), 3)
            self.assertEqual(token.token, token.top_logprobs[0].token)  # greedy
            self.assertLessEqual(token.logprob, 0)
            self.assertEqual(bytes(token.bytes).decode("utf-8", "replace"), token.token)

    def test_logprobs_of_a_completion_have_four_lists_of_one_length(self):
        answer = self.client.completions.create(model=BASE, prompt="Once upon a time", max_tokens=5, temperature=0,
                                                logprobs=2)
        logprobs = answer.choices[0].logprobs
        lengths = {len(x) for x in (logprobs.tokens, logprobs.token_logprobs, logprobs.top_logprobs, logprobs.text_offset)}
        self.assertEqual(lengths, {5})
        self.assertEqual("".join(logprobs.tokens), answer.choices[0].text)

    def test_stop_strings_never_show(self):
        answer = self.client.completions.create(model=BASE, prompt="1, 2, 3, 4,", max_tokens=24, temperature=0, stop=["8"])
        self.assertNotIn("8", answer.choices[0].text)
        self.assertEqual(answer.choices[0].finish_reason, "stop")
        self.assertEqual(answer.choices[0].stop_reason, "8")

    def test_extra_body_carries_attune_both_ways(self):
        answer = self.client.chat.completions.create(
            model=BASE, messages=[{"role": "user", "content": "I enjoyed every minute of it."}], max_tokens=4, temperature=0,
            extra_body={"attune": {"modules": [{"name": "sentiment", "weight": 1.0}], "cold": "wait"}})
        self.assertEqual(answer.choices[0].message.content, "positive")
        self.assertEqual(answer.attune["route"], {"rule": "explicit", "modules": ["sentiment"]})
        self.assertEqual([m["name"] for m in answer.attune["served"][0]["modules"]], ["sentiment"])
        self.assertRegex(answer.attune["served"][0]["modules"][0]["generation"], "^[0-9a-f]{64}$")

    def test_auto_routes_by_keyword_and_falls_to_the_default(self):
        for content, route in (
                ("Draft a clause about patents.",
                 {"rule": "keyword", "modules": ["legal"], "name": "rule 2", "matched": "clause"}),
                ("请补全这个函数", {"rule": "keyword", "modules": ["code"], "name": "rule 1", "matched": "函数"}),
                ("We waited two hours.", {"rule": "default", "modules": ["sentiment"]})):
            with self.subTest(content=content):
                answer = self.client.chat.completions.create(
                    model="auto", messages=[{"role": "user", "content": content}], max_tokens=4, temperature=0,
                    extra_body={"attune": {"cold": "wait"}})
                self.assertEqual(answer.attune["route"], route)

    def test_headers_tell_plain_clients_what_served_them(self):
        raw = self.client.chat.completions.with_raw_response.create(
            model="legal", messages=CAPITAL, max_tokens=4, extra_body={"attune": {"cold": "wait"}},
            extra_headers={"x-request-id": "mine-1"})
        self.assertEqual(raw.headers["attune-served"], "module")
        self.assertIn(raw.headers["attune-cold"], ("warm", "wait"))
        self.assertEqual(raw.headers["x-request-id"], "mine-1")
        self.assertTrue(raw.parse().choices[0].message.content)

    def test_errors_are_the_package_s_own_exceptions(self):
        with self.assertRaises(openai.NotFoundError) as caught:
            self.client.chat.completions.create(model="nobody", messages=CAPITAL)
        self.assertEqual(caught.exception.body["param"], "model")
        self.assertEqual(caught.exception.body["message"], "The model `nobody` does not exist.")
        bad = ({"temperature": -1}, {"max_tokens": 0}, {"n": 0}, {"n": 10**6}, {"top_p": 2}, {"messages": []},
               {"logit_bias": {"99999999": 1}}, {"stream_options": {"include_usage": True}}, {"max_tokens": 10**6},
               {"extra_body": {"attune": {"cold": "never"}}})
        for fields in bad:
            with self.subTest(fields=fields), self.assertRaises(openai.BadRequestError):
                self.client.chat.completions.create(**{"model": BASE, "messages": CAPITAL, **fields})
        with self.assertRaises(openai.BadRequestError):
            self.client.completions.create(model=BASE, prompt="")

    def test_a_client_that_stops_reading_its_stream_frees_it(self):
        stream = self.client.chat.completions.create(model=BASE, messages=CAPITAL, max_tokens=2000, stream=True,
                                                     extra_body={"ignore_eos": True})
        for _, _chunk in zip(range(3), stream):
            pass
        stream.close()
        self.assertTrue(within(2, lambda: self.server.metric("vllm:num_requests_running") == 0))

    def test_async_clients_run_side_by_side(self):
        async def run():
            async with self.async_client() as client:
                return await asyncio.gather(*(client.chat.completions.create(
                    model=model, messages=CAPITAL, max_tokens=12, temperature=0, extra_body={"attune": {"cold": "wait"}})
                    for model in (BASE, "code", "legal", "sentiment", BASE)))
        answers = asyncio.run(run())
        self.assertEqual(answers[0].choices[0].message.content, answers[4].choices[0].message.content)
        served = [[m["name"] for s in a.attune["served"] for m in s["modules"]] for a in answers]
        self.assertEqual(served, [[], ["code"], ["legal"], ["sentiment"], []])

    def test_an_async_stream_can_be_read_and_left(self):
        async def run():
            async with self.async_client() as client:
                text = ""
                stream = await client.chat.completions.create(model=BASE, messages=CAPITAL, max_tokens=12, temperature=0,
                                                              stream=True)
                async for chunk in stream:
                    text += chunk.choices[0].delta.content or ""
                left = await client.completions.create(model=BASE, prompt="Once", max_tokens=2000, stream=True)
                async for _ in left:
                    break
                await left.close()
                with self.assertRaises(openai.NotFoundError):
                    await client.completions.create(model="nobody", prompt="x")
                return text
        self.assertIn("Paris", asyncio.run(run()))


if __name__ == "__main__":
    unittest.main()
