#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Shows a rollout in the cluster of KUBECONFIG, any that one may administer: on simulated nodes alone, by an operator that runs here and looks at no
# namespace but moult-try. It leaves the CustomResourceDefinitions there, and nothing else.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bin=$(realpath "${BIN:-bin}")
kubectl=$bin/kubectl
log=$(mktemp -d)

end() {
	local code=$?
	trap - EXIT INT TERM
	echo 'Removing the simulated nodes and the namespace moult-try'
	"$kubectl" delete --ignore-not-found --timeout=60s namespace moult-try || true
	"$kubectl" delete --ignore-not-found -f examples/try/nodes.yaml || true
	kill $(jobs -p) 2>/dev/null || true
	wait 2>/dev/null || true
	((code == 0)) || echo "The logs are in $log" >&2
	exit $code
}
trap end EXIT
trap 'exit 130' INT TERM

echo "In the cluster of the context $("$kubectl" config current-context):"
"$kubectl" apply --server-side -k config/crd
"$kubectl" wait --for=condition=established --timeout=60s -f config/crd/upgrade.cattle.io_plans.yaml
sed 's/${POD_MILLISECONDS}/3000/' test/cluster/stages.yaml >"$log/stages.yaml"
"$bin/kwok" --config="$log/stages.yaml" --manage-all-nodes=false --manage-nodes-with-label-selector=moult.dev/try=simulated \
	--kubeconfig="${KUBECONFIG:-$HOME/.kube/config}" --v=WARN >"$log/kwok.log" 2>&1 &
"$bin/moult" controller --kubeconfig="${KUBECONFIG:-$HOME/.kube/config}" --namespace=moult-try --name=moult-try --controllers=plan --install-crds=false \
	--image=example.com/moult --metrics-bind-address=0 --health-probe-bind-address=0 >"$log/moult.log" 2>&1 &
"$kubectl" apply -k examples/try
"$bin/kubectl-moult" status -n moult-try --until-complete
"$kubectl" get nodes -l moult.dev/try=simulated -L plan.upgrade.cattle.io/try
