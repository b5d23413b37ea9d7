// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"moult.dev/moult/internal/agent"
	"moult.dev/moult/internal/agent/host"
)

// settings are the settings of moult-agent run.
type settings struct {
	agent agent.Options
	// sentinel has the root and the boot id of the other hosts, too.
	sentinel     host.SentinelOptions
	kubeconfig   string
	probeAddress string
	socket       string
	rebootMethod string

	// controller is a flag of the Bottlerocket update operator, where one program is operator and agent.
	controller bool
}

// Where the root of a host is mounted, for hosts that are reached through it.
const (
	rootBottlerocket = "/.bottlerocket/rootfs"
	rootDogswatch    = "/.thar/rootfs"
)

// defaultSignal is SIGRTMIN+5, which makes systemd reboot. No signal has a higher number than lastSignal.
const defaultSignal, lastSignal = 39, 64

// The ways to reboot a host with a sentinel.
const (
	byCommand = "command"
	bySignal  = "signal"
)

// environment lists the environment variables that set a flag. The first one with a value counts.
var environment = map[string][]string{
	"node-name":               {"NODE_NAME", "MY_NODE_NAME", "KURED_NODE_ID"},
	"kubeconfig":              {"KUBECONFIG"},
	"reboot-sentinel-file":    {"KURED_REBOOT_SENTINEL"},
	"reboot-sentinel-command": {"KURED_REBOOT_SENTINEL_COMMAND"},
	"reboot-command":          {"KURED_REBOOT_COMMAND"},
	"reboot-signal":           {"KURED_REBOOT_SIGNAL"},
	"reboot-method":           {"KURED_REBOOT_METHOD"},
}

// peerNames are flags of kured and of the Bottlerocket update operator that have another name here.
var peerNames = map[string]string{"reboot-sentinel": "reboot-sentinel-file", "nodeName": "node-name", "node-id": "node-name"}

// translate turns a command line of the Bottlerocket update operator or of Dogswatch, where flags have one dash, into one of run. It does not
// change other command lines.
func translate(args []string) []string {
	if slices.Equal(args, []string{"-help"}) {
		return []string{"--help"}
	}
	isTheirs := func(arg string) bool {
		name, _, _ := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		return strings.HasPrefix(arg, "-") && slices.Contains([]string{"agent", "controller", "nodeName"}, name)
	}
	if !slices.ContainsFunc(args, isTheirs) || !strings.HasPrefix(args[0], "-") {
		return args
	}
	translated := []string{"run"}
	for _, arg := range args {
		if len(arg) > len("-h") && strings.HasPrefix(arg, "-") {
			arg = "--" + strings.TrimLeft(arg, "-")
		}
		translated = append(translated, arg)
	}
	return translated
}

func (s *settings) bind(flags *pflag.FlagSet) {
	s.sentinel.RebootCommand = host.DefaultRebootCommand
	flags.StringVar(&s.agent.NodeName, "node-name", "", "name of the Node of this host")
	flags.StringVar(&s.kubeconfig, "kubeconfig", "", "file that says how the API server is reached (default: as a Pod, by its service account)")
	flags.StringVar((*string)(&s.agent.ReadAsNode), "read-as-node", string(agent.ReadAsNodeAuto),
		"read the Node as the node itself, which sees no other: auto (where Kubernetes can, 1.36 and newer), always or never")
	flags.DurationVar(&s.agent.CheckInterval, "check-interval", agent.DefaultCheckInterval,
		"time between two checks for updates, and up to a fifth of it more at random")
	flags.DurationVar(&s.agent.RebootGrace, "reboot-grace", agent.DefaultRebootGrace, "how long the host may fail to report its version after a boot")
	flags.StringVar(&s.probeAddress, "health-probe-bind-address", "", "address of /healthz, such as :8081 (default: none)")
	flags.StringVar(&s.sentinel.Root, "host-root", "", "root of the host, for updog (default "+rootBottlerocket+", or "+rootDogswatch+
		" for Dogswatch's label) and for the sentinel (default: the namespaces of process 1, which needs hostPID)")
	flags.StringVar(&s.socket, "api-socket", host.UpdateAPISocket, "socket of the Update API")
	flags.StringVar(&s.sentinel.BootIDFile, "boot-id-file", host.DefaultBootIDFile, "file with the id of the present boot")
	flags.StringVar(&s.sentinel.File, "reboot-sentinel-file", host.DefaultSentinelFile, "file on the host that is there when a reboot is needed")
	flags.Var((*command)(&s.sentinel.Command), "reboot-sentinel-command",
		`command on the host that ends with 0 when a reboot is needed, in place of the file; words, or a JSON list such as ["sh","-c","..."]`)
	flags.Var((*command)(&s.sentinel.RebootCommand), "reboot-command", `command on the host that reboots it; words, or a JSON list such as ["sh","-c","..."]`)
	flags.IntVar(&s.sentinel.RebootSignal, "reboot-signal", 0,
		"number of a signal to process 1 of the host that reboots it, such as 39 (SIGRTMIN+5), in place of the command")
	flags.StringVar(&s.rebootMethod, "reboot-method", "", "command or signal (default: signal if there is one, else command)")
	flags.BoolVar(&s.controller, "controller", false, "")
	for _, name := range []string{"agent", "debug", "skip-mitigation"} {
		flags.Bool(name, false, "") // They have no effect here.
	}
	flags.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		return pflag.NormalizedName(cmp.Or(peerNames[name], name))
	})
	flags.VisitAll(func(f *pflag.Flag) {
		f.Hidden = f.Usage == ""
		if names := environment[f.Name]; len(names) > 0 {
			f.Usage += " [$" + strings.Join(names, ", $") + "]"
		}
	})
}

// load sets the flags that are not given from the environment.
func (s *settings) load(flags *pflag.FlagSet, lookup func(string) (string, bool)) error {
	var problems []error
	flags.VisitAll(func(f *pflag.Flag) {
		for _, name := range environment[f.Name] {
			value, ok := lookup(name)
			if f.Changed || !ok || value == "" {
				continue
			}
			if err := flags.Set(f.Name, value); err != nil {
				problems = append(problems, fmt.Errorf("$%s: %w", name, err))
			}
			return
		}
	})
	return errors.Join(problems...)
}

// complete checks settings, and sets the signal that reboots by the method.
func (s *settings) complete() error {
	var problems []error
	require := func(met bool, problem string, values ...any) {
		if !met {
			problems = append(problems, fmt.Errorf(problem, values...))
		}
	}
	require(!s.controller, "this is the agent; the operator is another program: moult -controller -nodeName NAME, or moult controller")
	require(strings.TrimSpace(s.agent.NodeName) != "", "--node-name must be given, or $NODE_NAME, and not be empty")
	require(len(s.sentinel.Command) > 0 || !strings.HasPrefix(s.sentinel.File, "/sentinel/"), "--reboot-sentinel-file is a path on the host: "+
		"kured's manifests mount the host's /var/run at /sentinel, so write /var/run%s", strings.TrimPrefix(s.sentinel.File, "/sentinel"))
	require(s.agent.CheckInterval >= time.Second, "--check-interval must be 1s or more, not %s", s.agent.CheckInterval)
	require(s.agent.RebootGrace >= time.Second, "--reboot-grace must be 1s or more, not %s", s.agent.RebootGrace)
	require(s.sentinel.RebootSignal >= 0 && s.sentinel.RebootSignal <= lastSignal, "--reboot-signal must be 1 to %d, not %d", lastSignal, s.sentinel.RebootSignal)
	switch s.rebootMethod {
	case "":
	case byCommand:
		s.sentinel.RebootSignal = 0
	case bySignal:
		s.sentinel.RebootSignal = cmp.Or(s.sentinel.RebootSignal, defaultSignal)
	default:
		require(false, "--reboot-method must be %s or %s, not %q", byCommand, bySignal, s.rebootMethod)
	}
	return errors.Join(problems...)
}

// restConfig finds the API server.
func (s *settings) restConfig() (*rest.Config, error) {
	find := rest.InClusterConfig
	if s.kubeconfig != "" {
		find = func() (*rest.Config, error) { return clientcmd.BuildConfigFromFlags("", s.kubeconfig) }
	}
	config, err := find()
	if err != nil {
		return nil, fmt.Errorf("finding the API server (is $KUBECONFIG set?), %w", err)
	}
	config.UserAgent = "moult-agent/" + version
	return config, nil
}

// command is a flag value: a program and its arguments, as words between spaces or as a JSON list.
type command []string

var _ pflag.Value = (*command)(nil)

// Set reads the command. It refuses quotes, because no shell runs the command and would remove them.
func (c *command) Set(text string) error {
	const write = `write a JSON list of the program and its arguments, such as ["sh","-c","needs-restarting -r; case $? in 0) exit 1;; 1) exit 0;; esac; exit 127"]`
	text = strings.TrimSpace(text)
	var list []string
	switch {
	case strings.HasPrefix(text, "["):
		if err := json.Unmarshal([]byte(text), &list); err != nil || len(list) == 0 || list[0] == "" {
			return errors.New("this is no list of a program and its arguments: " + write)
		}
	case strings.ContainsAny(text, `'"\`):
		return errors.New("quotes and backslashes are not understood here: " + write)
	default:
		list = strings.Fields(text)
	}
	*c = list
	return nil
}

// String shows the command in the help.
func (c *command) String() string { return strings.Join(*c, " ") }

// Type names the value in the help.
func (c *command) Type() string { return "command" }
