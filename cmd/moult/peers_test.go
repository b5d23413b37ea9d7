// SPDX-License-Identifier: Apache-2.0

package main

import (
	stdcmp "cmp"
	"strings"
	"testing"
)

func TestOfPeers(t *testing.T) {
	for _, tc := range []struct {
		args, want string
		called     string // as what the program is called
	}{
		{args: "controller --check-period=30 -worker-concurrency=6 -cp-concurrency 5 -v=3 --logtostderr", want: "controller --check-period=30 --worker-concurrency=6 --cp-concurrency 5 --v=3 --logtostderr"},
		{args: "--check-period=30 --worker-concurrency=6 --cp-concurrency=5 --v=3", want: "controller --check-period=30 --worker-concurrency=6 --cp-concurrency=5 --v=3"},
		{args: "-worker-concurrency 6", want: "controller --worker-concurrency 6"},
		{args: "--check-period=30 --concurrency=2 --v=3", want: "controller --check-period=30 --concurrency=2 --v=3"},
		{args: "-concurrency 2 -v 3", want: "controller --concurrency 2 --v 3"},
		{args: "-check-period=30 -v=3", called: "./ducklett", want: "controller --check-period=300 --check-period=30 --v=3"},
		{args: "", called: "/ducklett", want: "controller --check-period=300"},
		{args: "controller -debug", want: "controller --debug"},
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
		{args: "-controller -nodeName a", want: "controller --controller --nodeName a"},
		{args: "-nodeName=a -debug --controller", want: "controller --nodeName=a --debug --controller"},
		{args: "-controller -skip-mitigation -debug=false -nodeName a", want: "controller --controller --skip-mitigation --debug=false --nodeName a"},
		{args: "-controller -nodeName a -help", want: "controller --controller --nodeName a --help"},
		{args: "-help", want: "--help"},
		{args: "-h -controller", want: "controller -h --controller"},
	} {
		got := strings.Join(ofPeers(append([]string{stdcmp.Or(tc.called, "/moult")}, strings.Fields(tc.args)...)), " ")
		if got != tc.want {
			t.Errorf("moult %s becomes %q, want %q", tc.args, got, tc.want)
		}
	}
}

// The Bottlerocket update operator's flags set the node's name, and start no agent.
func TestBrupopFlags(t *testing.T) {
	if s, problems, fatal := load(t, []string{"--controller", "--nodeName", "a", "--skip-mitigation"}, nil); s.nodeName != "a" || len(problems)+len(fatal) > 0 {
		t.Errorf("node %q, %v, %v", s.nodeName, problems, fatal)
	}
	if _, _, fatal := load(t, []string{"--agent", "--nodeName=a"}, nil); len(fatal) != 1 || !strings.HasPrefix(fatal[0].Error(), "the agent is a program of its own") {
		t.Errorf("got %v", fatal)
	}
}
