"""Many streams at once, over modules and the base."""
import concurrent.futures
import unittest

from support import TINY_ID, TinyServerTest, binding_steps, events_of, prompt_of, tokens_of, within

STREAMS = 32
TOKENS = 48


class Streams(TinyServerTest):
    module_count = 8

    def asked(self, number):
        """The model and prompt of stream `number`: the base and the eight modules in turn."""
        names = [TINY_ID] + [f"m{i}" for i in range(self.module_count)]
        return names[number % len(names)], prompt_of(number, 5 + number)

    def body(self, number, tokens):
        model, prompt = self.asked(number)
        return {"model": model, "prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True,
                "skip_special_tokens": False, "attune": {"cold": "wait"}, "stream_options": {"include_usage": True}}

    def streamed(self, number):
        """(tokens, usage, served) of one stream, read to its end."""
        connection, response = self.server.open_stream(self.body(number, TOKENS))
        text, usage, attune = "", None, None
        for event in events_of(response):
            usage, attune = event.get("usage") or usage, event.get("attune") or attune
            text += "".join(choice["text"] for choice in event["choices"])
        connection.close()
        return tokens_of(text), usage, attune["served"]

    def alone(self, number):
        """(tokens, how many of them bind) of the same request with no other one about."""
        model, prompt = self.asked(number)
        body = self.complete(model, prompt, TOKENS, logprobs=2, attune={"cold": "wait"})
        choice = body["choices"][0]
        return tokens_of(choice["text"]), binding_steps(choice)

    def test_32_streams_over_8_modules_and_the_base_say_what_each_says_alone(self):
        alone = [self.alone(number) for number in range(STREAMS)]
        with concurrent.futures.ThreadPoolExecutor(STREAMS) as pool:
            together = list(pool.map(self.streamed, range(STREAMS)))
        compared = 0
        for number, ((expected, binding), (tokens, usage, served)) in enumerate(zip(alone, together)):
            with self.subTest(stream=number, model=self.asked(number)[0]):
                self.assertEqual(tokens[:binding], expected[:binding])
                self.assertEqual(len(tokens), TOKENS)
                self.assertEqual(usage["completion_tokens"], TOKENS)
                model = self.asked(number)[0]
                self.assertEqual([[m["name"] for m in s["modules"]] for s in served], [[] if model == TINY_ID else [model]])
                compared += binding
        self.assertGreater(compared, STREAMS * TOKENS * 3 // 4, "too few tokens bind for this to mean something")
        self.assert_idle()

    def test_the_modules_differ_from_the_base_and_from_each_other(self):
        prompt = prompt_of(3)
        texts = {name: self.complete(name, prompt, 24, attune={"cold": "wait"})["choices"][0]["text"]
                 for name in [TINY_ID] + [f"m{i}" for i in range(self.module_count)]}
        self.assertEqual(len(set(texts.values())), len(texts))

    def test_killing_half_of_the_clients_mid_stream_frees_all_they_held(self):
        long = 440
        streams = [self.server.open_stream(self.body(number, long)) for number in range(STREAMS)]
        readers = [events_of(response) for _, response in streams]
        for reader in readers:  # every stream is past its first token
            next(reader)
        for number in range(0, STREAMS, 2):
            streams[number][0].close()
            streams[number][1].close()
        self.assertTrue(within(1.0, lambda: self.server.metric("vllm:num_requests_running") <= STREAMS // 2),
                        "the work of vanished clients goes on")
        for number in range(1, STREAMS, 2):
            usage = None
            for event in readers[number]:
                usage = event.get("usage") or usage
            self.assertEqual(usage["completion_tokens"], long)
            streams[number][0].close()
        self.assert_idle()

    def test_clients_that_leave_before_they_read_anything_leave_nothing_behind(self):
        # More than run at once: some wait in the queue, some read their prompts, some generate.
        sockets = [self.server.send_only({**self.body(number % 9, 400), "stream": number % 2 == 0}) for number in range(90)]
        self.assertTrue(within(5.0, lambda: self.server.metric("vllm:num_requests_running") > 0), "nothing ever ran")
        for socket in sockets:
            socket.close()
        self.assert_idle()
        self.assertEqual(len(tokens_of(self.complete(TINY_ID, prompt_of(1), 8)["choices"][0]["text"])), 8)


if __name__ == "__main__":
    unittest.main()
