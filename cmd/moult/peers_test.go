// SPDX-License-Identifier: Apache-2.0

package main

import (
	stdcmp "cmp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestOfPeers(t *testing.T) {
	for _, tc := range []struct {
		args, want, err string
		called          string // as what the program is called
	}{
		{args: "controller --check-period=30 -worker-concurrency=6 -cp-concurrency 5 -v=3 --logtostderr", want: "controller --check-period=30 --worker-concurrency=6 --cp-concurrency 5 --v=3 --logtostderr"},
		{args: "--check-period=30 --worker-concurrency=6 --cp-concurrency=5 --v=3", want: "controller --check-period=30 --worker-concurrency=6 --cp-concurrency=5 --v=3"},
		{args: "-worker-concurrency 6", want: "controller --worker-concurrency 6"},
		{args: "controller -debug", want: "controller -debug"},
		{args: "set-image -imageid x --scale-set a -scale-set=b", want: "set-image --imageid x --scale-set a --scale-set=b"},
		{args: "update-azure-image-tags -imageid=x", want: "update-azure-image-tags --imageid=x"},
		{args: "-imageid x", called: "/update-azure-image-tags", want: "set-image --imageid x"},
		{args: "-imageid x -- -imageid", called: "update-azure-image-tags.exe", want: "set-image --imageid x -- -imageid"},
		{args: "", called: "update-azure-image-tags", want: "set-image"},
		{args: ""},
		{args: "controller --node-name a", want: "controller --node-name a"},
		{args: "drain -l zone=a", want: "drain -l zone=a"},
		{args: "--help", want: "--help"},
		{args: "-h", want: "-h"},
		{args: "-controller -nodeName a", want: "controller --node-name=a"},
		{args: "-nodeName=a -debug --controller", want: "controller --node-name=a --debug"},
		{args: "-controller -debug=false -nodeName a", want: "controller --node-name=a"},
		{args: "-controller -skip-mitigation -nodeName a", want: "controller --node-name=a"},
		{args: "-controller -nodeName a -help", want: "controller --help"},
		{args: "-h -controller", want: "controller --help"},
		{args: "-controller", err: "-nodeName must be given: the node that the operator runs on"},
		{args: "-controller -nodeName=", err: "-nodeName must be given: the node that the operator runs on"},
		{args: "-nodeName a", err: "-controller must be given: moult -controller -nodeName NODE is moult controller --node-name NODE"},
		{args: "-agent -nodeName a", err: "the agent is a program of its own: moult-agent -agent -nodeName NODE, or moult-agent run --node-name NODE"},
		{args: "-agent -controller -nodeName a", err: "either -controller or -agent must be given, not both"},
		{args: "-controller -nodeName a -skip", err: "reading the Bottlerocket update operator's flags, flag provided but not defined: -skip"},
		{args: "-controller -nodeName a b", err: `reading the Bottlerocket update operator's flags, "b" is none`},
	} {
		got, err := ofPeers(append([]string{stdcmp.Or(tc.called, "/moult")}, strings.Fields(tc.args)...))
		text := ""
		if err != nil {
			text = err.Error()
		}
		if diff := cmp.Diff([2]string{tc.want, tc.err}, [2]string{strings.Join(got, " "), text}); diff != "" {
			t.Errorf("moult %s (-want +got):\n%s", tc.args, diff)
		}
	}
}
