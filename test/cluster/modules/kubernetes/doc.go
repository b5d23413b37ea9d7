// SPDX-License-Identifier: Apache-2.0

// Package kubernetes pins the Kubernetes that the test cluster runs.
//
// The five commands named by the tool lines of go.mod are built from here by
// package cluster. They live in a module of their own so that nothing else in
// the project is compiled against k8s.io/kubernetes, whose staging modules have
// to be replaced one by one by the published ones of the same release.
package kubernetes
