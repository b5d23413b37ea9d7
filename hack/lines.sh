#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Prints the lines of product code of each package, and of all: without blank lines, comments, tests and generated files.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

git ls-files -z 'api/*.go' 'cmd/*.go' 'internal/*.go' | grep -zv '_test\.go$' | while IFS= read -r -d '' file; do
	[[ ! -e $file ]] || printf '%s\0' "$file"
done | xargs -0 awk '
	FNR == 1 { generated = own = 0; dir = FILENAME; sub("/[^/]*$", "", dir) }
	FNR <= 20 && /^\/\/ Code generated .* DO NOT EDIT\.$/ { generated = 1; lines[dir] -= own; own = 0 }
	!generated && !/^[[:space:]]*(\/\/.*)?$/ { lines[dir]++; own++ }
	END { for (dir in lines) if (lines[dir]) { print lines[dir], dir; all += lines[dir] }; print all, "in all" }' | sort -n
