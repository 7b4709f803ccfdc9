"""The `websockets` package on /v1/ws."""
import asyncio
import json
import unittest

import websockets
from support import TINY_ID, TinyServerTest, prompt_of, tokens_of, within

WAIT_S = 60


class Socket:
    """One connection; messages are sorted by request id as they come."""

    def __init__(self, connection):
        self.connection = connection

    async def send(self, **message):
        await self.connection.send(json.dumps(message))

    async def request(self, name, **body):
        await self.send(type="request", id=name, endpoint="completions", body={
            "prompt": prompt_of(1), "temperature": 0, "ignore_eos": True, "skip_special_tokens": False, **body})

    async def next(self):
        return json.loads(await asyncio.wait_for(self.connection.recv(), WAIT_S))

    async def until_done(self, *names):
        """{id: its messages}, once each of `names` has ended."""
        messages, open_names = {name: [] for name in names}, set(names)
        while open_names:
            message = await self.next()
            messages[message["id"]].append(message)
            if message["type"] in ("done", "error"):
                open_names.discard(message["id"])
        return messages


def text_of(messages):
    return "".join(c["text"] for m in messages if m["type"] == "chunk" for c in m["data"]["choices"])


def types_of(messages):
    """The message types in order, runs of chunks told once."""
    types = [m["type"] for m in messages]
    return [t for i, t in enumerate(types) if i == 0 or t != "chunk" or types[i - 1] != "chunk"]


class WebSockets(TinyServerTest):
    module_count = 3

    def run_with_socket(self, body):
        async def run():
            uri = f"ws://{self.server.host}:{self.server.port}/v1/ws"
            async with websockets.connect(uri, subprotocols=["attune.v1"], max_size=None) as connection:
                self.assertEqual(connection.subprotocol, "attune.v1")
                return await body(Socket(connection))
        return asyncio.run(run())

    def test_a_request_is_accepted_streamed_and_done(self):
        async def body(socket):
            await socket.request("r1", model=TINY_ID, max_tokens=12)
            return (await socket.until_done("r1"))["r1"]
        messages = self.run_with_socket(body)
        self.assertEqual(types_of(messages), ["accepted", "chunk", "done"])
        self.assertEqual(text_of(messages), self.complete(TINY_ID, prompt_of(1), 12)["choices"][0]["text"])
        self.assertEqual(messages[-1]["usage"]["completion_tokens"], 12)
        self.assertEqual(messages[-1]["attune"]["served"], [{"modules": [], "tokens": 12}])

    def test_done_says_how_much_of_the_prompt_was_cached(self):
        async def body(socket):
            cached = []
            for name in ("first", "again"):
                await socket.request(name, model=TINY_ID, prompt=prompt_of(9, 50), max_tokens=2)
                done = (await socket.until_done(name))[name][-1]
                cached.append(done["usage"]["prompt_tokens_details"]["cached_tokens"])
            return cached
        self.assertEqual(self.run_with_socket(body), [0, 48])

    def test_several_requests_run_at_once_on_one_connection(self):
        names = [TINY_ID, "m0", "m1", "m2"]

        async def body(socket):
            for i, name in enumerate(names * 2):
                await socket.request(f"r{i}", model=name, max_tokens=200, attune={"cold": "wait"})
            order, messages, open_names = [], {f"r{i}": [] for i in range(8)}, 8
            while open_names:
                message = await socket.next()
                messages[message["id"]].append(message)
                open_names -= message["type"] in ("done", "error")
                order.append(message["id"])
            return messages, order
        messages, order = self.run_with_socket(body)
        for i in range(8):
            self.assertEqual(messages[f"r{i}"][-1]["type"], "done", messages[f"r{i}"][-1])
            self.assertEqual(messages[f"r{i}"][-1]["usage"]["completion_tokens"], 200)
        self.assertEqual(text_of(messages["r1"])[:64], text_of(messages["r5"])[:64])
        changes = sum(a != b for a, b in zip(order, order[1:]))
        self.assertGreater(changes, 16, "the answers come one after the other")

    def test_cancel_ends_a_request_with_done_and_frees_it(self):
        async def body(socket):
            await socket.request("gone", model=TINY_ID, max_tokens=490)
            await socket.request("stays", model=TINY_ID, max_tokens=40)
            while (await socket.next())["type"] != "chunk":
                pass
            await socket.send(type="cancel", id="gone")
            await socket.send(type="cancel", id="never-heard-of")
            messages = {"gone": [], "stays": []}
            while not all(m and m[-1]["type"] == "done" for m in messages.values()):
                message = await socket.next()
                if message["id"] in messages:
                    messages[message["id"]].append(message)
            return messages
        messages = self.run_with_socket(body)
        self.assertLess(messages["gone"][-1]["usage"]["completion_tokens"], 490)
        self.assertEqual(messages["stays"][-1]["usage"]["completion_tokens"], 40)
        self.assert_idle()

    def test_upgrade_tells_of_the_switch(self):
        async def body(socket):
            for i in range(10):
                self.server.post("/v1/modules/m1/unload", {})
                await socket.request(f"u{i}", model="m1", max_tokens=400, attune={"cold": "upgrade"})
                messages = (await socket.until_done(f"u{i}"))[f"u{i}"]
                if len(messages[-1]["attune"]["served"]) == 2:
                    break
            return messages
        messages = self.run_with_socket(body)
        switches = [m for m in messages if m["type"] == "switch"]
        self.assertEqual(len(switches), 1, messages[-1])
        served = messages[-1]["attune"]["served"]
        self.assertIn(served[0]["tokens"], switches[0].values())
        self.assertEqual([m["name"] for m in switches[0]["modules"]], ["m1"])
        before = tokens_of(text_of(messages[:messages.index(switches[0])]))
        self.assertEqual(len(before), served[0]["tokens"])

    def test_a_closed_connection_leaves_nothing_running(self):
        async def body(socket):
            for i in range(6):
                await socket.request(f"r{i}", model=("m0", TINY_ID)[i % 2], max_tokens=490)
            while (await socket.next())["type"] != "chunk":
                pass
            socket.connection.transport.abort()
        self.run_with_socket(body)
        self.assertTrue(within(1.0, lambda: self.server.metric("vllm:num_requests_running") == 0))
        self.assert_idle()

    def test_errors_carry_the_id_and_leave_the_connection_open(self):
        async def body(socket):
            await socket.request("bad", model="nobody", max_tokens=4)
            unknown = (await socket.until_done("bad"))["bad"][-1]
            await socket.request("bad", model=TINY_ID, max_tokens=0)
            refused = (await socket.until_done("bad"))["bad"][-1]
            await socket.connection.send("{not json")
            unreadable = await socket.next()
            await socket.request("long", model=TINY_ID, max_tokens=300)
            await socket.request("long", model=TINY_ID, max_tokens=4)
            twice = None
            while twice is None:
                message = await socket.next()
                twice = message if message["type"] == "error" else None
            await socket.send(type="cancel", id="long")
            return unknown, refused, unreadable, twice
        unknown, refused, unreadable, twice = self.run_with_socket(body)
        self.assertEqual(unknown["error"]["code"], 404)
        self.assertEqual(refused["error"]["code"], 400)
        self.assertEqual((unreadable["type"], unreadable["error"]["code"]), ("error", 400))
        self.assertEqual(twice["error"]["code"], 400)

    def test_a_binary_frame_closes_with_1003_and_a_large_one_with_1009(self):
        async def closed_by(frame):
            uri = f"ws://{self.server.host}:{self.server.port}/v1/ws"
            async with websockets.connect(uri, subprotocols=["attune.v1"]) as connection:
                try:
                    await connection.send(frame)
                    await asyncio.wait_for(connection.recv(), WAIT_S)
                except websockets.ConnectionClosed:
                    pass
                return connection.close_code
        self.assertEqual(asyncio.run(closed_by(b"\x00\x01")), 1003)
        self.assertEqual(asyncio.run(closed_by(" " * (17 << 20))), 1009)

    def test_a_foreign_origin_is_refused(self):
        async def connect():
            uri = f"ws://{self.server.host}:{self.server.port}/v1/ws"
            async with websockets.connect(uri, subprotocols=["attune.v1"], origin="https://evil.example"):
                pass
        with self.assertRaises(websockets.InvalidStatus) as caught:
            asyncio.run(connect())
        self.assertEqual(caught.exception.response.status_code, 403)


if __name__ == "__main__":
    unittest.main()
