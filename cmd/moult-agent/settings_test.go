// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/agent/host"
)

func TestTranslate(t *testing.T) {
	for line, want := range map[string]string{
		"-agent -nodeName n1":        "run --agent --nodeName n1",
		"-agent -debug -nodeName=n1": "run --agent --debug --nodeName=n1",
		"--agent --nodeName=n1":      "run --agent --nodeName=n1",
		"-h -agent":                  "run -h --agent",
		"-controller -nodeName n1":   "run --controller --nodeName n1",
		"run --node-name n1":         "run --node-name n1",
		"run --node-name -agent":     "run --node-name -agent",
		"--help":                     "--help",
		"":                           "",
	} {
		if got := strings.Join(translate(strings.Fields(line)), " "); got != want {
			t.Errorf("%q becomes %q, want %q", line, got, want)
		}
	}
}

// none is an environment without variables.
func none(string) (string, bool) { return "", false }

func TestCommandLines(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "") // This is no Pod.
	for line, want := range map[string]string{
		"run":                                   "--node-name must be given, or $NODE_NAME, and not be empty",
		"run --node-name n1":                    "finding the API server (is $KUBECONFIG set?), unable to load in-cluster configuration",
		"-agent -nodeName n1":                   "finding the API server (is $KUBECONFIG set?), unable to load in-cluster configuration",
		"run --node-name n1 --kubeconfig none":  "finding the API server (is $KUBECONFIG set?), stat none",
		"run --node-name n1 --check-interval=0": "--check-interval must be 1s or more, not 0s",
		"run --node-name n1 --reboot-grace=1ms": "--reboot-grace must be 1s or more, not 1ms",
		"run --node-name n1 --reboot-signal=65": `--reboot-signal must be 1 to 64, not 65`,
		"run --node-name n1 --reboot-method=x":  `--reboot-method must be command or signal, not "x"`,
		"run --node-name n1 more":               `unknown command "more"`,
		"walk":                                  `unknown command "walk"`,
		"-controller -nodeName n1":              "this is the agent",
		"-agent":                                "--node-name must be given, or $NODE_NAME, and not be empty",
		"run --node-id=":                        "--node-name must be given, or $NODE_NAME, and not be empty",
		"-agent -nodeName=":                     "--node-name must be given, or $NODE_NAME, and not be empty",
		"-agent -nodeName n1 more":              `unknown command "more"`,
		"-agent -nodename n1":                   "unknown flag: --nodename",
		"-agent=true -nodeName=n1 -debug=0 -skip-mitigation": "finding the API server (is $KUBECONFIG set?), unable to load in-cluster configuration",
	} {
		if err := execute(t.Context(), strings.Fields(line), none, &bytes.Buffer{}, &bytes.Buffer{}); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q ends with %v, want %s", line, err, want)
		}
	}
	for line, want := range map[string]string{
		"--version":       "moult-agent version dev",
		"--help":          "moult-agent -agent -nodeName NAME",
		"run --help":      "[$NODE_NAME, $MY_NODE_NAME, $KURED_NODE_ID]",
		"-help":           "moult-agent -agent -nodeName NAME",
		"-agent -help":    "[$NODE_NAME, $MY_NODE_NAME, $KURED_NODE_ID]",
		"completion bash": "bash completion",
		"":                "Available Commands",
	} {
		var out bytes.Buffer
		if err := execute(t.Context(), strings.Fields(line), none, &out, &out); err != nil || !strings.Contains(out.String(), want) {
			t.Errorf("%q ends with %v and says\n%s", line, err, out.String())
		}
	}
}

func TestSettings(t *testing.T) {
	environment := func(pairs ...string) func(string) (string, bool) {
		return func(name string) (string, bool) {
			for _, pair := range pairs {
				if key, value, _ := strings.Cut(pair, "="); key == name {
					return value, true
				}
			}
			return "", false
		}
	}
	type chosen struct {
		Node, File      string
		Command, Reboot command
		Signal          int
	}
	usual := func(node string, signal int) chosen {
		return chosen{node, host.DefaultSentinelFile, nil, host.DefaultRebootCommand, signal}
	}
	for name, tc := range map[string]struct {
		environment func(string) (string, bool)
		args        string
		want        chosen
		err         string
	}{
		"defaults": {environment("NODE_NAME=n1"), "", usual("n1", 0), ""},
		"brupop's": {environment("MY_NODE_NAME=n1"), "", usual("n1", 0), ""},
		"kured's": {
			environment("KURED_NODE_ID=n1", "KURED_REBOOT_SENTINEL=/s", "KURED_REBOOT_SENTINEL_COMMAND=needs -r", "KURED_REBOOT_COMMAND=/sbin/reboot"), "",
			chosen{"n1", "/s", command{"needs", "-r"}, command{"/sbin/reboot"}, 0}, "",
		},
		"kured's signal":          {environment("NODE_NAME=n1", "KURED_REBOOT_METHOD=signal"), "", usual("n1", 39), ""},
		"kured's own signal":      {environment("NODE_NAME=n1", "KURED_REBOOT_METHOD=signal", "KURED_REBOOT_SIGNAL=40"), "", usual("n1", 40), ""},
		"a signal that is unused": {environment("NODE_NAME=n1", "KURED_REBOOT_METHOD=command", "KURED_REBOOT_SIGNAL=39"), "", usual("n1", 0), ""},
		"a flag wins": {
			environment("NODE_NAME=n1", "KURED_REBOOT_SENTINEL=/s"), "--node-name=n2 --reboot-sentinel-file=/f",
			chosen{"n2", "/f", nil, host.DefaultRebootCommand, 0}, "",
		},
		"a flag of kured": {
			environment("NODE_NAME=n1"), "--reboot-sentinel=/f --reboot-signal=2", chosen{"n1", "/f", nil, host.DefaultRebootCommand, 2}, "",
		},
		"the first variable wins": {environment("MY_NODE_NAME=n2", "NODE_NAME=n1"), "", usual("n1", 0), ""},
		"an empty one is none":    {environment("NODE_NAME=", "MY_NODE_NAME=n2"), "", usual("n2", 0), ""},
		"a list": {
			environment("NODE_NAME=n1", `KURED_REBOOT_SENTINEL_COMMAND=["sh", "-c", "! needs -r"]`), `--reboot-command=["/sbin/reboot","-f"]`,
			chosen{"n1", host.DefaultSentinelFile, command{"sh", "-c", "! needs -r"}, command{"/sbin/reboot", "-f"}, 0}, "",
		},
		"an empty command is none": {environment("NODE_NAME=n1"), "--reboot-sentinel-command=", chosen{"n1", host.DefaultSentinelFile, command{}, host.DefaultRebootCommand, 0}, ""},
		"a bad method":             {environment("NODE_NAME=n1", "KURED_REBOOT_METHOD=magic"), "", chosen{}, `--reboot-method must be command or signal, not "magic"`},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := newRunCommand(tc.environment)
			s := &settings{}
			cmd.ResetFlags()
			s.bind(cmd.Flags())
			if err := cmd.ParseFlags(strings.Fields(tc.args)); err != nil {
				t.Fatal(err)
			}
			err := s.load(cmd.Flags(), tc.environment)
			if err == nil {
				err = s.complete()
			}
			if tc.err != "" {
				if err == nil || err.Error() != tc.err {
					t.Errorf("error %v, want %s", err, tc.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, chosen{s.agent.NodeName, s.sentinel.File, s.sentinel.Command, s.sentinel.RebootCommand, s.sentinel.RebootSignal}); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestHost has values of the three labels, for Bottlerocket, Dogswatch and other hosts.
func TestHost(t *testing.T) {
	const updog, api, sentinel = "*host.Updog", "*host.UpdateAPI", "*host.Sentinel"
	for value, want := range map[string][3]string{
		"1.0.0": {updog, updog, updog}, "2.0.0": {api, api, api}, "sentinel": {sentinel, sentinel, sentinel},
		"3.0.0": {"", updog, ""}, "": {"", updog, ""}, "0.1.0-zeta": {"", updog, ""},
	} {
		for i, p := range v1alpha1.HostProtocols {
			h, err := (&settings{}).host(p, value)
			got := ""
			if h != nil {
				got = fmt.Sprintf("%T", h)
			}
			if got != want[i] || (got == "") != (err != nil) {
				t.Errorf("%s=%s is %s, error %v; want %s", p.InterfaceLabel, value, got, err, want[i])
			}
		}
	}
	_, err := (&settings{}).host(v1alpha1.HostProtocols[0], "9.9.9")
	want := `label bottlerocket.aws/updater-interface-version has the value "9.9.9", which names no interface that this agent knows: ` +
		`these are 1.0.0, 2.0.0, sentinel`
	if err == nil || err.Error() != want {
		t.Errorf("error %v", err)
	}
}

// The agent finds the API server by $KUBECONFIG, as those of the Bottlerocket update operator and of Dogswatch did.
func TestKubeconfigVariable(t *testing.T) {
	s := &settings{}
	flags := pflag.NewFlagSet("run", pflag.ContinueOnError)
	s.bind(flags)
	if err := s.load(flags, func(name string) (string, bool) { return "/etc/" + name, name == "KUBECONFIG" }); err != nil || s.kubeconfig != "/etc/KUBECONFIG" {
		t.Errorf("kubeconfig is %q, %v", s.kubeconfig, err)
	}
}

// The root of a host is where the shipped DaemonSets mount it, as those of the Bottlerocket update operator and of Dogswatch did.
func TestHostRoots(t *testing.T) {
	for i, of := range []struct{ root, manifest string }{{"/.bottlerocket/rootfs", "updog.yaml"}, {"/.thar/rootfs", "thar.yaml"}} {
		h, err := (&settings{}).host(v1alpha1.HostProtocols[i], v1alpha1.InterfaceUpdog)
		if err != nil || !strings.Contains(fmt.Sprintf("%+v", h), "root:"+of.root) {
			t.Errorf("the host is %+v, %v, want one at %s", h, err, of.root)
		}
		manifest, err := os.ReadFile("../../config/hostupdate/agents/" + of.manifest)
		if err != nil || !strings.Contains(string(manifest), "mountPath: "+of.root+"\n") {
			t.Errorf("%s does not mount the host at %s: %v", of.manifest, of.root, err)
		}
	}
}

func TestCommandRefused(t *testing.T) {
	const list = `write a JSON list of the program and its arguments, such as ["sh","-c","needs-restarting -r; case $? in 0) exit 1;; 1) exit 0;; esac; exit 127"]`
	for text, want := range map[string]string{
		`sh -c "! needs -r"`: "quotes and backslashes are not understood here: " + list,
		`a\ b`:               "quotes and backslashes are not understood here: " + list,
		"[ -f /needed ]":     "this is no list of a program and its arguments: " + list,
		"[]":                 "this is no list of a program and its arguments: " + list,
		`[""]`:               "this is no list of a program and its arguments: " + list,
	} {
		var c command
		if err := c.Set(text); err == nil || err.Error() != want {
			t.Errorf("%s: error %v, want %s", text, err, want)
		}
	}
}
