"""What SIGTERM and SIGHUP do."""
import signal
import tempfile
import time
import unittest
from pathlib import Path

from support import TINY_ID, Server, events_of, make_modules, make_tiny_model, prompt_of, within, write_module


class Shutdown(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="attune-clients-")
        self.addCleanup(self.folder.cleanup)
        root = Path(self.folder.name)
        self.model = make_tiny_model(root / "model")
        self.root = make_modules(self.model, root / "modules", 1)
        self.server = Server(self.model, modules=[self.root], model_id=TINY_ID)
        self.addCleanup(self.server.kill)

    def long_stream(self, tokens=480):
        return self.server.open_stream({"model": TINY_ID, "prompt": prompt_of(1), "max_tokens": tokens, "temperature": 0,
                                        "ignore_eos": True, "stream_options": {"include_usage": True}})

    def test_sigterm_lets_a_stream_finish_and_ends_with_0(self):
        connection, response = self.long_stream()
        events = events_of(response)
        next(events)
        self.server.process.send_signal(signal.SIGTERM)
        usage = None
        for event in events:
            usage = event.get("usage") or usage
        connection.close()
        self.assertIsNotNone(usage, "the stream was cut off before its last chunks were sent")
        self.assertEqual(usage["completion_tokens"], 480)
        self.assertEqual(self.server.process.wait(30), 0)

    def test_an_idle_server_ends_at_once(self):
        started = time.monotonic()
        self.assertEqual(self.server.stop(), 0)
        self.assertLess(time.monotonic() - started, 10)

    def test_no_new_connection_is_served_while_draining(self):
        connection, response = self.long_stream()
        next(events_of(response))
        self.server.process.send_signal(signal.SIGTERM)

        def refused():
            try:
                return self.server.call("GET", "/ready")[0] == 503
            except OSError:
                return True
        self.assertTrue(within(10, refused))
        connection.close()
        self.assertEqual(self.server.process.wait(30), 0)

    def test_a_second_sigterm_stops_at_once(self):
        streams = [self.long_stream() for _ in range(8)]
        self.server.process.send_signal(signal.SIGTERM)
        self.server.process.send_signal(signal.SIGTERM)
        self.server.process.wait(20)
        for connection, _ in streams:
            connection.close()

    def test_sighup_finds_new_modules_under_a_root(self):
        write_module(self.model, self.root / "added", seed=5)
        self.assertNotIn("added", self.server.modules())
        self.server.process.send_signal(signal.SIGHUP)
        self.assertTrue(within(10, lambda: "added" in self.server.modules()))
        self.assertEqual(self.server.stop(), 0)


if __name__ == "__main__":
    unittest.main()
