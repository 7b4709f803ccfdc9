#!/usr/bin/env bash
# Fails and shows the difference when a C++ file is not as clang-format (.clang-format, Debian 12's version 14) writes it.
set -euo pipefail
cd "$(dirname "$0")/.."
git ls-files '*.cpp' '*.hpp' | xargs -r clang-format --dry-run --Werror
