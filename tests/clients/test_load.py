"""The load client against the tiny model: what it counts is what the server did."""
import json
import os
import subprocess
import unittest

from support import TINY_ID, TINY_VOCAB, TinyServerTest


class Load(TinyServerTest):
    module_count = 3

    def run_load(self, *options):
        """(exit status, the JSON line)."""
        command = [os.environ["ATTUNE_LOAD"], "--url", self.server.url, "--vocab", str(TINY_VOCAB), "--prompt-tokens", "20",
                   "--max-tokens", "10", *options]
        told = subprocess.run(command, capture_output=True, text=True, timeout=120)
        return told.returncode, json.loads(told.stdout)

    def test_a_closed_loop_counts_every_token_once(self):
        status, line = self.run_load("--streams", "4", "--requests", "12")
        self.assertEqual((status, line["failed"], line["requests"]), (0, 0, 12))
        self.assertEqual((line["prompt_tokens"], line["completion_tokens"], line["base_tokens"]), (240, 120, 120))
        self.assertEqual(line["asked"], {TINY_ID: 12})
        self.assertEqual(line["cold"], {"warm": 12})
        for kind in ("ttft_ms", "itl_ms", "tpot_ms", "e2e_ms"):
            self.assertLessEqual(line[kind]["p50"], line[kind]["p90"])
            self.assertLessEqual(line[kind]["p90"], line[kind]["p99"])
            self.assertLessEqual(line[kind]["p99"], line[kind]["max"])
        self.assertGreater(line["ttft_ms"]["p50"], 0)
        self.assertLessEqual(line["ttft_ms"]["max"], line["e2e_ms"]["max"])
        # "seconds" is unrounded, so that this holds however short the run was.
        self.assertAlmostEqual(line["output_tokens_per_s"], 120 / line["seconds"], places=2)

    def test_modules_are_asked_in_turn_and_make_their_tokens(self):
        status, line = self.run_load("--streams", "3", "--requests", "9", "--modules", "m0,m1,m2", "--cold", "wait")
        self.assertEqual((status, line["failed"]), (0, 0))
        self.assertEqual(line["asked"], {"m0": 3, "m1": 3, "m2": 3})
        self.assertEqual((line["completion_tokens"], line["base_tokens"]), (90, 0))

    def test_zipf_asks_the_first_module_most_and_the_seed_decides(self):
        options = ("--streams", "4", "--requests", "40", "--modules", "m0,m1,m2", "--zipf", "2", "--cold", "wait", "--seed", "5")
        first, again = self.run_load(*options)[1], self.run_load(*options)[1]
        self.assertEqual(first["asked"], again["asked"])
        self.assertEqual(sum(first["asked"].values()), 40)
        self.assertGreater(first["asked"]["m0"], 20)

    def test_poisson_arrivals_take_the_time_that_the_rate_says(self):
        status, line = self.run_load("--rate", "40", "--requests", "40", "--seed", "3")
        self.assertEqual((status, line["failed"], line["completion_tokens"]), (0, 0, 400))
        self.assertGreater(line["seconds"], 0.4)

    def test_goodput_counts_only_what_met_the_promise(self):
        self.assertEqual(self.run_load("--streams", "1", "--requests", "3", "--slo-ttft-ms", "0")[1]["goodput_per_s"], 0)
        line = self.run_load("--streams", "1", "--requests", "3", "--slo-ttft-ms", "60000", "--slo-itl-ms", "60000")[1]
        self.assertEqual(line["goodput_per_s"], line["requests_per_s"])

    def test_refused_requests_are_told_and_fail_the_run(self):
        status, line = self.run_load("--streams", "1", "--requests", "2", "--model", "nobody")
        self.assertEqual((status, line["failed"], line["completion_tokens"]), (1, 2, 0))
        self.assertIn("404", line["first_error"])


if __name__ == "__main__":
    unittest.main()
