"""Many clients at once on modules that come and go: every answer is the one its `served` record promises."""
import concurrent.futures
import os
import random
import time
import unittest

from support import TINY_ID, TinyServerTest, events_of, prompt_of, tokens_of

CLIENTS = 8
REQUESTS = 100  # of each client, and more until so many seconds are over
SECONDS = float(os.environ.get("ATTUNE_STORM_S", "0"))
PROMPTS = 3
TOKENS = 8


class Storm(TinyServerTest):
    """40 modules; slots for 8 and host memory for about 12."""

    module_count = 40
    settings = ("modules.device_bytes=1MiB", "modules.host_bytes=2MiB", "trigger.idle_s=1", "modules.idle_unload=always",
                "scheduler.queue=64")

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.names = [f"m{i}" for i in range(cls.module_count)]

    def body(self, name, number, cold):
        return {"model": name, "prompt": prompt_of(number), "max_tokens": TOKENS, "temperature": 0, "ignore_eos": True,
                "skip_special_tokens": False, "attune": {"cold": cold}}

    def alone(self, name, number):
        status, body, _ = self.server.post("/v1/completions", self.body(name, number, "wait"))
        self.assertEqual(status, 200, body)
        return tokens_of(body["choices"][0]["text"])

    def check(self, name, number, tokens, record):
        """The tokens up to the switch are the base's; an answer of one kind of weights is theirs to the end."""
        served = [([m["name"] for m in entry["modules"]], entry["tokens"]) for entry in record["served"]]
        self.assertEqual(sum(count for _, count in served), len(tokens), served)
        for modules, _ in served:
            self.assertIn(modules, ([], [name]) if name != TINY_ID else ([],))
        base = next((count for modules, count in served if not modules), 0)
        self.assertEqual(tokens[:base], self.expected[TINY_ID, number][:base])
        if len(served) == 1 and base == 0:
            self.assertEqual(tokens, self.expected[name, number])

    def streamed(self, body):
        connection, response = self.server.open_stream(body)
        text, record = "", None
        for event in events_of(response):
            for choice in event["choices"]:
                text += choice["text"]
            record = event.get("attune") or record
        connection.close()
        return text, record

    def one_client(self, seed):
        chance = random.Random(seed)
        done = {"answers": 0, "cancelled": 0, "orders": 0}
        end = time.monotonic() + SECONDS
        turn = 0
        while turn < REQUESTS or time.monotonic() < end:
            turn += 1
            name = chance.choice([*self.names, TINY_ID])
            number = chance.randrange(PROMPTS)
            body = self.body(name, number, chance.choice(["wait", "fallback", "upgrade"]))
            kind = chance.random()
            if kind < 0.1:
                self.server.send_only({**body, "max_tokens": 100}).close()
                done["cancelled"] += 1
            elif kind < 0.2 and name != TINY_ID:
                order = chance.choice(["load", "unload", "pin", "unpin", "unpin"])
                status, answer, _ = self.server.post(f"/v1/modules/{name}/{order}", {})
                # Pinned modules stay (409), and where pins hold the memory there is no room (503).
                self.assertIn(status, (200, 202, 409, 503), answer)
                done["orders"] += 1
                if order == "pin":
                    self.server.post(f"/v1/modules/{name}/unpin", {})
            elif kind < 0.6:
                text, record = self.streamed(body)
                self.check(name, number, tokens_of(text), record)
                done["answers"] += 1
            else:
                status, answer, _ = self.server.post("/v1/completions", body)
                self.assertEqual(status, 200, answer)
                self.check(name, number, tokens_of(answer["choices"][0]["text"]), answer["attune"])
                done["answers"] += 1
        return done

    def test_eight_clients_forty_modules_eight_slots(self):
        type(self).expected = {(name, number): self.alone(name, number)
                               for name in [*self.names, TINY_ID] for number in range(PROMPTS)}
        told_apart = {tuple(self.expected[name, 0]) for name in self.names}
        self.assertGreater(len(told_apart), 30, "modules must differ, or mixing them up would go unseen")
        with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
            done = list(pool.map(self.one_client, range(CLIENTS)))
        for kind in ("answers", "cancelled", "orders"):
            self.assertGreater(sum(d[kind] for d in done), 0, kind)
        self.assert_idle(5)
        self.assertGreater(self.server.metric("attune_module_reloads_total"), 0)
        status, audit, _ = self.server.post("/v1/audit", {})
        self.assertEqual((status, audit["ok"], audit["alarms"]), (200, True, 0), audit)


if __name__ == "__main__":
    unittest.main()
