// SPDX-License-Identifier: Apache-2.0

// Package fleet has what the decisions of all controllers share: the nodes, the budgets with their gates, and the admission
// of claims.
//
//	nodes      each Node in the engine's form, rebuilt only after a change            nodes.go
//	budgets    each NodeDisruptionBudget, with the gates that are closed now             fleet.go
//	gates      which are closed: of workloads, pods and alerts, each in its file         gates.go, workloads*.go, pods.go, alerts*.go
//	           read once from the budget, and watched from when one first needs them     gates_rules.go, gates_watch.go
//	evictions  how many pods a drain would evict from each node, for orders by it       gates_pods.go
//	admission  decide and claim under one lock, on nodes that show all earlier claims    fleet.go
//	changes    wake rollouts that wait for a budget when something may have changed      changes.go, waiters.go
//	memory     what a controller keeps of its rollouts: when each is looked at next,     pace.go,
//	           when its status is written, how far it has come through its waves         reports.go, waves.go
package fleet
