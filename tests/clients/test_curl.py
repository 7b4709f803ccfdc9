"""curl: the bytes on the wire, as a client without any library sees them."""
import json
import subprocess
import tempfile
import unittest
from pathlib import Path

from support import TINY_ID, TinyServerTest, prompt_of


class Curl(TinyServerTest):
    module_count = 1

    def curl(self, path, body=None, *options):
        """(status, {lower-case header: value}, body bytes)."""
        command = ["curl", "-sS", "-N", "--max-time", "60", "-i", f"{self.server.url}{path}", *options]
        if body is not None:
            text = body if isinstance(body, str) else json.dumps(body)
            command += ["-H", "Content-Type: application/json", "--data-binary", text]
        answer = subprocess.run(command, capture_output=True, check=True, timeout=90).stdout
        head, _, rest = answer.partition(b"\r\n\r\n")
        while head.startswith(b"HTTP/1.1 100"):
            head, _, rest = rest.partition(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        return int(lines[0].split()[1]), dict((k.lower(), v) for k, v in (line.split(": ", 1) for line in lines[1:])), rest

    def request(self, **more):
        return {"model": TINY_ID, "prompt": prompt_of(1), "max_tokens": 6, "temperature": 0, "ignore_eos": True,
                "skip_special_tokens": False, **more}

    def test_a_stream_is_data_lines_blank_lines_and_done(self):
        status, headers, body = self.curl("/v1/completions", self.request(stream=True))
        self.assertEqual(status, 200)
        self.assertTrue(headers["content-type"].startswith("text/event-stream"))
        self.assertEqual(headers["attune-cold"], "warm")
        events = body.decode().split("\n\n")
        self.assertEqual(events.pop(), "")
        self.assertEqual(events.pop(), "data: [DONE]")
        chunks = [json.loads(event.removeprefix("data: ")) for event in events]
        self.assertTrue(all(event.startswith("data: ") and "\n" not in event for event in events))
        self.assertEqual({c["object"] for c in chunks}, {"text_completion"})
        self.assertTrue(all(c["choices"] and "usage" not in c for c in chunks))
        self.assertEqual(chunks[-1]["choices"][0]["finish_reason"], "length")
        self.assertEqual(chunks[-1]["attune"]["served"], [{"modules": [], "tokens": 6}])
        self.assertTrue(all("attune" not in c for c in chunks[:-1]))

    def test_usage_comes_in_a_chunk_of_its_own_only_when_asked_for(self):
        body = self.curl("/v1/completions", self.request(stream=True, stream_options={"include_usage": True}))[2].decode()
        events = [json.loads(e.removeprefix("data: ")) for e in body.split("\n\n")[:-2]]
        self.assertEqual(events[-1]["choices"], [])
        self.assertEqual(events[-1]["usage"]["completion_tokens"], 6)
        self.assertTrue(all(e["choices"] for e in events[:-1]))

    def test_an_unstreamed_answer_has_its_length_and_the_house_s_headers(self):
        status, headers, body = self.curl("/v1/completions", self.request())
        self.assertEqual(status, 200)
        self.assertEqual(int(headers["content-length"]), len(body))
        self.assertEqual((headers["attune-served"], headers["attune-cold"]), ("base", "warm"))
        self.assertTrue(headers["x-request-id"])

    def test_the_stream_of_a_cold_module_says_so_in_its_head(self):
        self.server.post("/v1/modules/m0/unload", {})
        _, headers, _ = self.curl("/v1/completions", self.request(model="m0", stream=True, attune={"cold": "wait"}))
        self.assertEqual(headers["attune-cold"], "wait")

    def test_errors_before_a_stream_are_plain_json(self):
        for body, status in ((self.request(stream=True, n=0), 400), (self.request(stream=True, model="nobody"), 404),
                             (self.request(stream=True, prompt=[99999]), 400), ('{"model":', 400), ("[1]", 400),
                             (self.request(prompt=[]), 400), (self.request(prompt=""), 400)):
            with self.subTest(body=body):
                got, headers, text = self.curl("/v1/completions", body)
                self.assertEqual(got, status)
                self.assertTrue(headers["content-type"].startswith("application/json"))
                error = json.loads(text)["error"]
                self.assertEqual(error["code"], status)
                self.assertEqual(set(error), {"message", "type", "param", "code"})

    def test_one_connection_serves_request_after_request(self):
        with tempfile.TemporaryDirectory() as folder:
            body = Path(folder) / "body.json"
            body.write_text(json.dumps(self.request(stream=True)))
            one = ["-H", "Content-Type: application/json", "--data-binary", f"@{body}",
                   f"{self.server.url}/v1/completions", "-o", "/dev/null", "-w", "%{http_code} %{num_connects}\n"]
            command = ["curl", "-sS", "--max-time", "60"] + one + ["--next", "-sS"] + one + ["--next", "-sS"] + one
            told = subprocess.run(command, capture_output=True, text=True, check=True, timeout=90).stdout.split("\n")[:3]
        self.assertEqual(told, ["200 1", "200 0", "200 0"])

    def test_wrong_methods_types_and_paths_have_their_own_status(self):
        status, headers, _ = self.curl("/v1/completions")
        self.assertEqual((status, headers["allow"]), (405, "POST"))
        self.assertEqual(self.curl("/v1/nothing")[0], 404)
        self.assertEqual(self.curl("/v1/completions", None, "-H", "Content-Type: text/csv", "-d", "{}")[0], 415)

    def test_foreign_origins_and_hosts_are_refused_and_health_answers_all(self):
        self.assertEqual(self.curl("/v1/completions", self.request(), "-H", "Origin: https://evil.example")[0], 403)
        self.assertEqual(self.curl("/v1/completions", self.request(), "-H", "Host: evil.example")[0], 403)
        self.assertEqual(self.curl("/health", None, "-H", "Host: evil.example")[0], 200)
        self.assertEqual(self.curl("/ready")[0], 200)

    def test_a_large_body_and_a_large_head_are_refused(self):
        with tempfile.NamedTemporaryFile() as big:
            big.write(b" " * (17 << 20))
            big.flush()
            self.assertEqual(self.curl("/v1/completions", None, "-H", "Content-Type: application/json", "-H", "Expect:",
                                       "--data-binary", f"@{big.name}")[0], 413)
        self.assertEqual(self.curl("/health", None, "-H", "X-Big: " + "x" * 60000)[0], 431)

    def test_metrics_are_prometheus_text(self):
        status, headers, body = self.curl("/metrics")
        self.assertEqual(status, 200)
        self.assertTrue(headers["content-type"].startswith("text/plain"))
        for name in ("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc",
                     "vllm:lora_requests_info", "vllm:generation_tokens_total", "vllm:time_to_first_token_seconds_count"):
            self.assertIn(name, body.decode())

    def test_logit_bias_decides_the_token(self):
        _, _, body = self.curl("/v1/completions", self.request(logit_bias={"77": 100}))
        self.assertEqual(json.loads(body)["choices"][0]["text"], " w77" * 6)


if __name__ == "__main__":
    unittest.main()
