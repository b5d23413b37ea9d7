// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"moult.dev/moult/hack/build"
	"moult.dev/moult/test/operator"
)

// program is a controller that runs as a process outside of the cluster. $DIR in its settings is the directory of the cluster.
type program struct {
	path      string
	env, args []string
}

// peer is another controller that does the same work as Moult.
type peer struct {
	// name is that of its program, and in the user agent of its requests.
	name string
	// kind is what it is measured with. The flag has the path of its source, where crds are.
	kind, flag, crds string
	program
}

var peers = []peer{
	{name: "system-upgrade-controller", kind: "plan", flag: "suc", crds: "pkg/crds/yaml/generated/*.yaml", program: program{
		args: []string{"--name=system-upgrade-controller", "--namespace=" + namespace},
	}},
	{name: "eds-controller", kind: "daemonset", flag: "eds", crds: "config/crd/bases/v1/*.yaml", program: program{
		args: []string{"--metrics-addr=127.0.0.1:0", "--enable-leader-election=false"},
		env:  []string{"EDS_NODEAFFINITYMATCH_SUPPORT=1"}, // It cannot parse the version of every API server.
	}},
	{name: "kruise-manager", kind: "daemonset", flag: "kruise", crds: "config/crd/bases/*.yaml", program: program{
		args: []string{
			"--metrics-addr=127.0.0.1:0", "--health-probe-addr=127.0.0.1:0", "--enable-leader-election=false", "--enable-pprof=false",
			"--feature-gates=KruiseDaemon=false,PodWebhook=false", "--protection-log-path=$DIR/log",
		},
		env: []string{"WEBHOOK_HOST=localhost", "WEBHOOK_CERT_DIR=$DIR/pki/kruise"},
	}},
}

// peerKinds are what peers are measured with whose source is given.
func (o *options) peerKinds() []string {
	kinds := sets.Set[string]{}
	for _, p := range peers {
		if *o.sources[p.flag] != "" {
			kinds.Insert(p.kind)
		}
	}
	return sets.List(kinds)
}

// buildPeers builds the peers of a kind whose source is given.
func buildPeers(ctx context.Context, o options) (built []*peer, err error) {
	for _, p := range peers {
		source := *o.sources[p.flag]
		if source == "" || p.kind != o.kind {
			continue
		}
		if p.path, err = filepath.Abs(filepath.Join("bin", p.name)); err != nil {
			return nil, err
		}
		// A go.work of the checkout says which modules in it belong together.
		b := build.Program{Name: p.name, Dir: source, Package: ".", Output: p.path, Large: true, Env: []string{"GOWORK="}}
		if err := b.Build(ctx, os.Stderr); err != nil {
			return nil, err
		}
		p.crds = filepath.Join(source, p.crds)
		built = append(built, &p)
	}
	return built, nil
}

// install applies the CRDs of a peer.
func (b *bench) install(ctx context.Context, p *peer) error {
	files, err := filepath.Glob(p.crds)
	if err != nil || len(files) == 0 {
		return errors.Join(err, fmt.Errorf("there are no CRDs in %s", p.crds))
	}
	for _, file := range files {
		crd := &unstructured.Unstructured{}
		text, err := os.ReadFile(file)
		if err == nil {
			err = yaml.Unmarshal(text, &crd.Object)
		}
		if err == nil {
			err = b.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(crd), client.FieldOwner("scale"), client.ForceOwnership)
		}
		if err != nil {
			return fmt.Errorf("applying %s, %w", file, err)
		}
	}
	return nil
}

// moult is the operator. Jobs stay until they are counted.
func (b *bench) moult() program {
	return program{path: b.program, env: b.env, args: append([]string{
		"controller", "--metrics-bind-address=0", "--health-probe-bind-address=0", "--job-ttl-seconds-after-finish=86400",
	}, b.args...)}
}

func (b *bench) start(p program) (*operator.Process, error) {
	expand := func(settings []string) (all []string) {
		for _, s := range settings {
			all = append(all, strings.ReplaceAll(s, "$DIR", b.cluster.Dir()))
		}
		return all
	}
	return operator.Run(p.path, b.log(p), expand(p.env), append(expand(p.args), "--kubeconfig="+b.cluster.Kubeconfig())...)
}

// log is the file that a program writes its log to.
func (b *bench) log(p program) string {
	return filepath.Join(b.cluster.Dir(), "log", filepath.Base(p.path)+".log")
}

// comparePeers measures Moult and each peer whose source is given, and prints one table of all.
func comparePeers(ctx context.Context, o options, out io.Writer) error {
	var problems []error
	w := newSheet(out)
	w.line(0, "kind", "stage", "", "seconds", "× bare", "requests/unit", "CPU ms/unit", "peak RSS in MiB")
	for _, o.kind = range o.peerKinds() {
		reports, err := run(ctx, o, out)
		problems = append(problems, err)
		for _, r := range reports {
			r.printBeside(w)
		}
	}
	fmt.Fprintln(out)
	return errors.Join(append(problems, w.Flush())...)
}

// printBeside writes a line for the bare loop, and for each subject in each stage that is compared with it.
func (r *report) printBeside(w sheet) {
	if r.BareSeconds > 0 {
		w.line(2, r.Kind, stageRollout, "bare loop", r.BareSeconds, 1.0, "", "", "")
	}
	for _, result := range r.Subjects {
		name := result.Name
		if result.ours {
			name = "Moult"
		}
		for _, p := range result.Stages {
			if u, n := &p.Programs[0], float64(p.Units); p.compared {
				w.line(2, r.Kind, p.Name, name, p.Seconds, p.TimesBare, float64(u.All)/n, u.CPUSeconds*1000/n, result.PeakRSS)
			}
		}
	}
}
