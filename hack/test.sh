#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Runs every test, and at its end says which were slowest and what failed. Arguments go to each `go test`: `-run` chooses among the tests
# of each stage. `-skip` is not among them, because it is what tells the stages apart.
#
#   unit            packages without servers; Go keeps their results until they change
#   alerts          the chart's alert rules and dashboards, with Prometheus as a library, in a module of its own
#   API             TestAPI… of all packages, linked at once and run one after the other, against one shared API server
#   end to end ...  the packages of test/, one after the other: each starts the cluster that it needs
#
# With ALL=1 it builds with the tag "all": whole tests and full counts that a change need not pass. Each fuzz test runs for 2 s then.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

logs=$(realpath -m "${BIN:-bin}/test")
rm -rf "$logs" && mkdir -p "$logs"
tags=grpcnotrace${ALL:+,all}
timeout=${TEST_TIMEOUT:-60m}

# stage NAME FORMAT [go test flags and packages]: run tests, and keep what they say in NAME.json.
stage() {
	local name=$1 format=$2
	shift 2
	"${BIN:-bin}/gotestsum" --format "$format" --format-hide-empty-pkg --hide-summary=all --jsonfile "$logs/$name.json" -- \
		-vet=off -tags "$tags" -timeout "$timeout" "$@"
}

mapfile -t unit < <(go list -tags "$tags" -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}' ./api/... ./cmd/... ./config/... ./hack/... ./internal/... ./test/layout/...)
# A package may have such tests only with the tag "all". Without ALL=1 none of its tests run here.
mapfile -t api < <(grep -rlE '^func TestAPI' --include='*_test.go' . | xargs -n1 dirname | sort -u)
mapfile -t cluster < <(go list -tags "$tags" -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}' ./test/... | grep -vE '/test/(layout|admission)$')

if [[ " $*" == *' -skip'* || " $*" == *' --skip'* ]]; then
	echo 'hack/test.sh sets -skip itself: choose tests by -run' >&2
	exit 2
fi
no_api='^([^T]|T[^e]|Te[^s]|Tes[^t]|Test([^A]|A([^P]|P([^I]|$)|$)|$))' # whatever does not begin with TestAPI

failed=()
started=$SECONDS
took() { echo "== $1: $((SECONDS - started)) s since the start"; }

# flock on the log folder lets one test binary run at a time, while the next ones are linked. The API stage mostly waits and the unit stage computes, so they go together. What the API stage prints follows.
go build -o "${BIN:-bin}/cluster" ./test/cluster/cmd/cluster
"${BIN:-bin}/cluster" run -- bash -c "$(declare -f stage); tags=$tags timeout=$timeout logs=$logs; stage api testname -exec 'flock $logs' -count 1 -skip '$no_api' \"\$@\"" api "$@" "${api[@]}" \
	>"$logs/api.log" 2>&1 &
api_pid=$!
stage unit pkgname -skip '^TestAPI' "$@" "${unit[@]}" || failed+=(unit)
(BIN=$(realpath "${BIN:-bin}") && cd hack/release && stage release pkgname "$@" ./...) || failed+=(release)
# Go does not see changes of the chart's files, and would keep old results.
(BIN=$(realpath "${BIN:-bin}") && cd test/alerts && stage alerts pkgname -count 1 "$@" ./...) || failed+=(alerts)
(BIN=$(realpath "${BIN:-bin}") && cd test/gitops && stage gitops pkgname "$@" ./...) || failed+=(gitops)
export MOULT_DIST=$logs/dist # what test/install installs
make --no-print-directory release VERSION=v0.0.0 PLATFORMS="linux/$(go env GOARCH)" DIST="$MOULT_DIST" || failed+=(release)
took unit
wait $api_pid || failed+=(API)
cat "$logs/api.log"
if [[ -n ${ALL:-} ]]; then
	FUZZTIME=2s hack/fuzz.sh || failed+=(fuzz)
fi
took API
stage cluster testname -p 1 -parallel 8 -count 1 -skip '^TestAPI' "$@" "${cluster[@]}" || failed+=("end to end")
took 'end to end'

echo
echo "== The slowest 20 tests"
cat "$logs"/*.json | "${BIN:-bin}/gotestsum" tool slowest --threshold 0s --num 20
echo
skipped=$(cat "$logs"/*.json | { grep '"Action":"skip"' || true; } | { grep '"Test":' || true; })
if [[ -n $skipped && ${MOULT_REQUIRE_MACHINES:-} == 1 ]]; then
	echo "== These tests were skipped, and none may be here"
	echo "$skipped"
	failed+=("a skipped test")
fi
# Once more what failed, and the count of all.
echo "== All tests"
"${BIN:-bin}/gotestsum" --format none --raw-command -- cat "$logs"/*.json || failed+=("a test")
if ((${#failed[@]})); then
	printf 'FAILED: %s\n' "${failed[*]}" >&2
	exit 1
fi
