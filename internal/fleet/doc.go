// SPDX-License-Identifier: Apache-2.0

// Package fleet is what the decisions of all controllers share: the nodes, the budgets with their gates, and the one place
// where claims are admitted.
//
//	nodes      each Node as the engine wants it, made anew only when it changed       nodes.go
//	budgets    each NodeDisruptionBudget, with the gates that are closed now           fleet.go, gates.go
//	gates      workloads, pods and alerts, each in its file                            workloads.go, pods.go, alerts.go
//	admission  decide and claim under one lock, on nodes that show all earlier claims  fleet.go
//	changes    whoever waits for a budget is told when something may have changed      changes.go
package fleet
