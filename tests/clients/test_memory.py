"""Private memory while sixty cold modules are asked at once: bounded by budgets, not by how many were asked."""
import concurrent.futures
import re
import threading
import unittest
from pathlib import Path

from support import ATTENTION, MLP, TinyServerTest, prompt_of, within, write_module

MIB = 1 << 20
RANK = 512
LOADERS = 2
BUDGETS = {"modules.host_bytes": 16 * MIB, "modules.device_bytes": 16 * MIB, "model.kv_bytes": 4 * MIB}
# Sockets, requests and the allocator's arenas of sixty connections; what a loader may stage is counted apart.
SLACK = 24 * MIB


def anonymous_bytes(pid):
    """`Anonymous` of smaps_rollup: what the process has to itself."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return int(re.search(r"^Anonymous:\s+(\d+) kB$", text, re.MULTILINE)[1]) * 1024


class Peak(threading.Thread):
    """The highest reading until stop(). Between two readings nothing is seen, so it can only be too low by little."""

    def __init__(self, pid):
        super().__init__()
        self.pid, self.bytes, self.ended = pid, 0, threading.Event()

    def run(self):
        while not self.ended.wait(0.002):
            self.bytes = max(self.bytes, anonymous_bytes(self.pid))

    def stop(self):
        self.ended.set()
        self.join()
        return self.bytes


class SixtyColdModules(TinyServerTest):
    module_count = 0
    names = [f"wide{i}" for i in range(60)]
    settings = (f"modules.max_rank={RANK}", f"modules.loaders={LOADERS}", *(f"{k}={v}" for k, v in BUDGETS.items()))

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        for i, name in enumerate(cls.names):
            write_module(cls.model, cls.root / name, seed=500 + i, rank=RANK, targets=ATTENTION + MLP)
        cls.server.process.send_signal(1)  # SIGHUP: the folder is looked at again

    def test_memory_stays_within_budgets_and_the_loads_in_flight(self):
        self.assertTrue(self.eventually_listed())
        file_bytes = (self.root / self.names[0] / "adapter_model.safetensors").stat().st_size
        parsed = file_bytes  # float32 on disk and in memory
        bound = sum(BUDGETS.values()) + LOADERS * (parsed + 2 * MIB) + SLACK
        self.assertGreater(len(self.names) * parsed, 4 * bound, "the modules are too small to break the bound")

        before = anonymous_bytes(self.server.process.pid)
        peak = Peak(self.server.process.pid)
        peak.start()
        try:
            with concurrent.futures.ThreadPoolExecutor(len(self.names)) as pool:
                answers = list(pool.map(
                    lambda name: self.complete(name, prompt_of(5), 4, attune={"cold": "wait"}), self.names))
        finally:
            highest = peak.stop()
        for name, body in zip(self.names, answers):
            self.assert_served(body, [(name, 4)])
        self.assertLess(highest - before, bound)
        print(f"grew by {(highest - before) / MIB:.0f} MiB of {bound / MIB:.0f}; all modules together: {len(self.names) * parsed / MIB:.0f}")
        self.assert_idle()

    def eventually_listed(self):
        return within(20, lambda: set(self.names) <= set(self.server.modules()))


if __name__ == "__main__":
    unittest.main()
