// SPDX-License-Identifier: Apache-2.0

// Package kwok pins the kwok that plays the kubelet of simulated nodes.
// Package cluster builds it and gives it the stages of stages.yaml.
package kwok
