#!/usr/bin/env bash
# run.sh BUILD SECONDS JOBS [NAME]: each fuzzer of the build (or the one named) for SECONDS on its seeds. Fails on the
# first crash, leak, time-out or overrun of memory; the input that did it is left in BUILD/artifacts. What was found to
# be new is kept in BUILD/corpus, so that the next run goes on from there.
set -euo pipefail
build=$(realpath "$1") seconds=$2 jobs=$3 only=${4:-}
sources=$(dirname "$(realpath "$0")")
mkdir -p "$build/artifacts" "$build/logs"

fail() {
    echo "run.sh: $*" >&2
    exit 1
}
list=$build/fuzzers.txt  # a line for each fuzzer: its program, then the folders of its seeds
[ -f "$list" ] || fail "$list is not there: configure $build with the preset fuzz first"
chosen=$(grep -E "^fuzz_${only:-[a-z_]+} " "$list") ||
    fail "no fuzzer is called $only, there are: $(sed -E 's/^fuzz_([a-z_]+) .*/\1/' "$list" | tr '\n' ' ')"
while read -r program seeds; do
    [ -x "$build/tests/$program" ] || fail "$program is not built: cmake --build $build --target fuzzers"
    for folder in $seeds; do
        [ -n "$(find "$folder" -type f -print -quit 2>/dev/null)" ] ||
            fail "$program has no seeds in $folder: configuring $build unpacks them from tests/data"
    done
done <<<"$chosen"

run_one() {
    local program=$1 name=${1#fuzz_}
    shift
    local corpus=$build/corpus/$name log=$build/logs/$name.log dictionary=$sources/$name.dict words=()
    mkdir -p "$corpus"
    [ -f "$dictionary" ] && words+=("-dict=$dictionary")
    if ! "$build/tests/$program" "${words[@]}" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=1024 -max_len=16384 \
        -print_final_stats=1 -artifact_prefix="$build/artifacts/$name-" "$corpus" "$@" >"$log" 2>&1; then
        tail -n 40 "$log"
        echo "fuzz $name: FAILED, see $log and $build/artifacts" >&2
        return 255  # xargs starts nothing further
    fi
    echo "fuzz $name: clean, $(sed -n 's/stat::number_of_executed_units: *//p' "$log") runs," \
        "$(find "$corpus" -type f | wc -l) inputs kept"
}
export -f run_one
export build seconds sources
xargs -P "$jobs" -L 1 bash -c 'run_one "$@"' run_one <<<"$chosen"
