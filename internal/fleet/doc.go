// SPDX-License-Identifier: Apache-2.0

// Package fleet has what the decisions of all controllers share: the nodes, the budgets with their gates, and the admission
// of claims.
//
//	nodes      each Node in the engine's form                                       nodes.go
//	budgets    each NodeDisruptionBudget, with the gates that are closed now         fleet.go
//	gates      read once for each generation of a budget, one gate a file            gates.go, gate_*.go
//	watches    of Nodes, budgets, and what gates need; these start at their first use watch.go
//	evictions  which records of them count                                          nodes.go
//	           how many pods a drain would evict from each node, for orders by it   gate_pods.go
//	admission  decide and claim under one lock, on nodes that show all earlier claims fleet.go
//	replaced   nodes on which daemon pods are being replaced                         replaced.go
//	changes    wake rollouts that wait for a budget when something may have changed  fleet.go, waiters.go
//	memory     when a status was written                                             reports.go
//	caches     hold only the fields that decisions need                              cache.go
package fleet
