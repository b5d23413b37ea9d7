// SPDX-License-Identifier: Apache-2.0

// Package docs writes the reference pages of the documentation from what the code says.
//
//	api.go      a page for each kind, from its CustomResourceDefinition
//	command.go  a page for each program, from its commands and their help
//	reasons.go  the reasons, from their comments in api
//	keys.go     labels, annotations and taints, from their comments in api
//	metrics.go  the metrics, from the tables that tests keep in internal/metrics and internal/ksmetrics
//	values.go   the chart's values, from values.yaml
//	peers.go    the names of other operators, from the tables that test/layout checks
//	screen.go   a picture of a terminal, from recorded output
package docs
