#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Prints the lines of product code of each package, and of all: without blank lines, comments, tests and generated files.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

git ls-files 'api/*.go' 'cmd/*.go' 'internal/*.go' | grep -v '_test\.go$' | while read -r file; do
	head -n 20 "$file" | grep -q '^// Code generated .* DO NOT EDIT\.$' && continue
	printf '%s %s\n' "$(grep -cvE '^[[:space:]]*(//.*)?$' "$file" || true)" "$(dirname "$file")"
done | awk '{ lines[$2] += $1; all += $1 } END { for (dir in lines) print lines[dir], dir; print all, "in all" }' | sort -n
