#!/bin/bash
# expect.sh STATUS REGEX COMMAND...: runs the command without input and checks its exit status and what it prints
# (standard output and error together).
status=$1 pattern=$2
shift 2
output=$("$@" 2>&1 </dev/null)
found=$?
if [ "$found" -ne "$status" ]; then
    printf 'exit status %s, expected %s; output:\n%s\n' "$found" "$status" "$output"
    exit 1
fi
if ! grep -Eq -- "$pattern" <<<"$output"; then
    printf 'nothing matches %s in:\n%s\n' "$pattern" "$output"
    exit 1
fi
