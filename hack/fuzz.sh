#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Runs each fuzz test for FUZZTIME, one after the other. Packages are arguments; none are all that have one. A text that breaks an invariant is
# written to testdata/fuzz of the package: commit it with what mends it, and `go test` tries it from then on.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

packages=("$@")
((${#packages[@]})) || mapfile -t packages < <(grep -rlE '^func Fuzz' --include='*_test.go' api cmd internal | xargs -n1 dirname | sort -u | sed 's,^,./,')
failed=()
for package in "${packages[@]}"; do
	tests=$(go test -vet=off -list '^Fuzz' "$package") || { echo "$tests" >&2; failed+=("$package"); continue; }
	for name in $(grep '^Fuzz' <<<"$tests"); do
		echo "== $package $name"
		go test -vet=off -run '^$' -fuzz "^$name\$" -fuzztime "${FUZZTIME:-10s}" "$package" || failed+=("$package $name")
	done
done
if ((${#failed[@]})); then
	printf 'FAILED: %s\n' "${failed[@]}" >&2
	exit 1
fi
