# Every target does its own set-up on a bare Debian 12 (root or sudo) and nothing twice.
BUILD ?= build
JOBS ?= $(shell nproc)
PRESET ?= release

.PHONY: build demo test bench bench-peers asan tsan storm fuzz format check-format clean

build:
	@tools/setup.sh apt
	@tools/setup.sh torch
	cmake -S . -B $(BUILD) --preset $(PRESET) -DCMAKE_PREFIX_PATH="$$(tools/setup.sh prefix)" -DATTUNE_PYTHON="$(CURDIR)/.venv/bin/python" >$(BUILD).configure.log 2>&1 || { cat $(BUILD).configure.log; exit 1; }
	@mv $(BUILD).configure.log $(BUILD)/configure.log
	cmake --build $(BUILD) -j $(JOBS)

# Ends with a running server; CHECK=1 verifies every step, stops it and exits 0 or 1.
demo: build
	@tools/setup.sh model
	python3 demo/run_demo.py --attune $(BUILD)/attune --model models/smollm2 $(if $(filter 1,$(CHECK)),--check)

test: build
	@tools/setup.sh model
	@tools/setup.sh clients
	ctest --test-dir $(BUILD) --output-on-failure -j $(JOBS)

# SAVE=1 keeps the text lines in bench/results/ as well.
bench: build
	@tools/setup.sh model
	@tools/setup.sh clients
	@tools/setup.sh bench
	.venv/bin/python bench/text/tokenizer_ratio.py --bench $(BUILD)/text_bench --model models/smollm2 $(if $(filter 1,$(SAVE)),--save)
	.venv/bin/python bench/text/jinja_ratio.py --bench $(BUILD)/template_bench $(if $(filter 1,$(SAVE)),--save)
	.venv/bin/python bench/run_micro.py --build $(BUILD)
	.venv/bin/python bench/quality/perplexity.py --attune $(BUILD)/attune $(if $(filter 1,$(SAVE)),--save)
	.venv/bin/python bench/run_steps.py --build $(BUILD) --model models/smollm2
	.venv/bin/python bench/run_load.py --attune $(BUILD)/attune --model models/smollm2
	for one in cold prefix life background many; do .venv/bin/python bench/load/$${one}_bench.py --attune $(BUILD)/attune --model models/smollm2; done
	.venv/bin/python bench/run_schemes.py --attune $(BUILD)/attune --model models/smollm2

# The same load on attune, llama.cpp and vLLM, one after the other; compiles llama.cpp first (half an hour on two cores).
bench-peers: build
	@tools/setup.sh model
	@tools/setup.sh clients
	@tools/setup.sh peers
	.venv/bin/python bench/run_peers.py --attune $(BUILD)/attune --model models/smollm2

# The unit tests under AddressSanitizer and UBSan, whose reports end a test too; the inbox and the kernels' threads under
# ThreadSanitizer.
asan:
	$(MAKE) build BUILD=build-asan PRESET=asan
	ASAN_OPTIONS=detect_leaks=1:detect_odr_violation=0 LSAN_OPTIONS=suppressions=$(CURDIR)/tools/lsan.supp \
	    UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 ctest --test-dir build-asan --output-on-failure -L unit -j $(JOBS)

tsan:
	$(MAKE) build BUILD=build-tsan PRESET=tsan
	ctest --test-dir build-tsan --output-on-failure

# The whole server under ThreadSanitizer while eight clients ask for forty modules in slots for eight, STORM_S seconds.
# (setarch: the sanitizer wants its shadow where randomised addresses may lie.)
STORM_S ?= 60
storm:
	@tools/setup.sh apt
	@tools/setup.sh torch
	@tools/setup.sh clients
	@tools/setup.sh caf
	cmake -S . -B build-storm --preset storm -DCMAKE_PREFIX_PATH="$(CURDIR)/.caf/install;$$(tools/setup.sh prefix)" >/dev/null
	cmake --build build-storm -j $(JOBS) --target attune
	ATTUNE_SERVER=$(CURDIR)/build-storm/attune ATTUNE_TEST_DATA=$(CURDIR)/build-storm/test_data ATTUNE_SMOLLM2=models/smollm2 \
	    ATTUNE_SOURCE=$(CURDIR) ATTUNE_STORM_S=$(STORM_S) setarch -R .venv/bin/python tests/clients/test_storm.py --verbose

# libFuzzer on everything that reads bytes from outside: SECONDS each (the build needs clang and no torch). FUZZ=request
# runs one of them, longer for instance.
SECONDS ?= 60
fuzz:
	@tools/setup.sh apt
	@tools/setup.sh fuzz
	cmake -S . -B build-fuzz --preset fuzz >/dev/null
	cmake --build build-fuzz -j $(JOBS) --target fuzzers
	tests/fuzz/run.sh build-fuzz $(SECONDS) $(JOBS) $(FUZZ)

format:
	git ls-files '*.cpp' '*.hpp' | xargs clang-format -i

check-format:
	tools/check_format.sh

clean:
	rm -rf build build-asan build-tsan build-storm build-fuzz
