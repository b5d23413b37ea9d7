// SPDX-License-Identifier: Apache-2.0

package layout

import (
	"path"
	"strings"
)

// module is the path of the root module.
const module = "moult.dev/moult"

// layer says what the non-test code below one folder may import. Paths are relative to the root; "x/..." is x and all
// below it. A folder always may import what is below itself. The layer of a package is the one with the longest path.
type layer struct {
	path string
	// own lists the packages of this module.
	own []string
	// others lists the packages of other modules. Nil allows any but the clouds' SDKs.
	others []string
	// clouds allows those too.
	clouds bool
	// pure forbids what reads the world: clocks, contexts, loggers, files and the network.
	pure bool
}

// data is what API types are made of: structs without behaviour.
var data = []string{"k8s.io/api/...", "k8s.io/apimachinery/..."}

// layers is the import rules of this repository. A new folder of internal needs an entry here, and its rule in
// .golangci.yml.
var layers = []layer{
	// The API is data. The apply configurations that are generated from it build on client-go's.
	{path: "api", others: data},
	{path: "api/upgrade/v1/applyconfiguration", own: []string{"api/..."}, others: applied},
	{path: "api/datadoghq/v1alpha1/applyconfiguration", own: []string{"api/..."}, others: applied},
	{path: "api/v1alpha1/applyconfiguration", own: []string{"api/..."}, others: applied},
	{path: "config/crd", others: []string{"k8s.io/apiextensions-apiserver/pkg/apis/...", "k8s.io/apimachinery/...", "sigs.k8s.io/yaml"}},

	// Decisions are pure.
	{path: "internal/rollout", pure: true, own: []string{"api/..."}, others: []string{
		"github.com/robfig/cron/v3",
		"k8s.io/api/core/v1",
		"k8s.io/apimachinery/pkg/api/resource",
		"k8s.io/apimachinery/pkg/apis/meta/v1",
		"k8s.io/apimachinery/pkg/fields",
		"k8s.io/apimachinery/pkg/labels",
		"k8s.io/apimachinery/pkg/selection",
		"k8s.io/apimachinery/pkg/types",
		"k8s.io/apimachinery/pkg/util/intstr",
		"k8s.io/apimachinery/pkg/util/sets",
		"k8s.io/utils/ptr",
	}},

	{path: "internal/kind/quantity", pure: true, others: []string{"k8s.io/apimachinery/pkg/api/resource"}},

	{path: "internal/kind/history", pure: true, own: []string{"api/...", "internal/rollout"}, others: []string{"k8s.io/apimachinery/pkg/apis/meta/v1"}},

	{path: "internal/kind/daemonset", pure: true, own: []string{"api/...", "internal/kind/history", "internal/kind/quantity", "internal/rollout"}, others: []string{
		"k8s.io/api/...",
		"k8s.io/apimachinery/...",
		"k8s.io/component-helpers/scheduling/...",
		"k8s.io/utils/ptr",
	}},

	{path: "internal/kind/hostupdate", pure: true, own: []string{"api/...", "internal/kind/nodeturn", "internal/rollout"}, others: []string{
		"k8s.io/api/...",
		"k8s.io/apimachinery/...",
		"k8s.io/utils/ptr",
	}},

	{path: "internal/kind/nodeturn", pure: true, own: []string{"api/...", "internal/rollout"}, others: []string{"k8s.io/api/...", "k8s.io/apimachinery/..."}},

	{path: "internal/kind/plan", pure: true, own: []string{"api/...", "internal/kind/nodeturn", "internal/rollout"}, others: []string{
		"k8s.io/api/...",
		"k8s.io/apimachinery/...",
		"k8s.io/utils/ptr",
	}},

	{path: "internal/kind/budget", pure: true, own: []string{"api/...", "internal/rollout"}, others: []string{"k8s.io/apimachinery/...", "k8s.io/utils/ptr"}},

	{path: "internal/kind/replacement", pure: true, own: []string{"api/...", "internal/cloud", "internal/kind/nodeturn", "internal/rollout"}, others: []string{"k8s.io/api/...", "k8s.io/apimachinery/..."}},

	{path: "internal/notification", pure: true, own: []string{"api/..."}, others: []string{"k8s.io/apimachinery/..."}},

	// What acts on one node, or reports on one rollout.
	{path: "internal/drain", own: []string{"api/..."}},
	{path: "internal/node", own: []string{"api/..."}},
	{path: "internal/events", own: []string{"api/..."}},
	{path: "internal/outbound"},
	{path: "internal/metrics", own: []string{"api/..."}},
	{path: "internal/status", own: []string{"api/...", "internal/events", "internal/metrics", "internal/rollout"}},

	// How a node leaves the control plane.
	{path: "internal/controlplane", own: []string{"api/..."}},

	// What the decisions of all controllers share.
	{path: "internal/fleet", own: []string{"api/...", "internal/drain", "internal/node", "internal/outbound", "internal/rollout"}},

	// What the turns of all rollouts of nodes have alike.
	{path: "internal/turn", own: []string{
		"api/...", "internal/drain", "internal/events", "internal/fleet", "internal/kind/history", "internal/kind/nodeturn", "internal/kind/quantity", "internal/metrics",
		"internal/node", "internal/rollout", "internal/status",
	}},

	// What kube-state-metrics would say of the kinds of ExtendedDaemonSet.
	{path: "internal/ksmetrics", own: []string{"api/..."}},

	// Controllers put these together, and know nothing of each other. Clouds come as an interface.
	{path: "internal/cloud", own: []string{"api/..."}},
	{path: "internal/cloud/aws", own: []string{"api/...", "internal/cloud"}, clouds: true},
	{path: "internal/cloud/azure", own: []string{"api/...", "internal/cloud"}, clouds: true},
	{path: "internal/cloud/gcp", own: []string{"api/...", "internal/cloud"}, clouds: true},
	{path: "internal/controller", own: acting},
	{path: "internal/controller/budget", own: acting},
	{path: "internal/controller/daemonset", own: acting},
	{path: "internal/controller/daemonsetsetting", own: acting},
	{path: "internal/controller/definition", own: append([]string{"config/crd"}, acting...)},
	{path: "internal/controller/hostupdate", own: acting},
	{path: "internal/controller/notify", own: acting},
	{path: "internal/controller/plan", own: acting},
	{path: "internal/controller/replacement", own: acting},

	// The node's half, and the two faces that people see.
	{path: "internal/agent", own: []string{"api/..."}},
	{path: "internal/view", own: []string{"api/...", "internal/cloud", "internal/kind/...", "internal/rollout"}},
	{path: "internal/cli", own: []string{"api/...", "internal/kind/quantity", "internal/view"}},
	{path: "internal/cli/drain", own: []string{"api/...", "internal/drain"}},
	{path: "internal/cli/setimage", own: []string{"api/...", "internal/cli/flags", "internal/cli/text", "internal/cloud"}},
	{path: "internal/cli/moult", own: []string{"api/...", "config/crd", "internal/cli/...", "internal/dashboard", "internal/drain", "internal/notification", "internal/view"}},
	{path: "internal/dashboard", own: []string{"api/...", "internal/cli/text", "internal/view"}},

	// Programs choose what to put together.
	{path: "cmd/moult", own: []string{"api/...", "config/crd", "internal/..."}},
	{path: "cmd/moult-agent", own: []string{"api/...", "internal/agent/..."}},
	{path: "cmd/kubectl-moult", own: []string{"api/...", "config/crd", "internal/cli/...", "internal/dashboard", "internal/view/..."}},

	// Tests and tooling see everything; nothing sees them.
	{path: "hack", own: []string{"hack/..."}},
	{path: "hack/docs", own: []string{"hack/docs/...", "internal/..."}},
	{path: "test", own: []string{"api/...", "config/crd", "hack/...", "internal/...", "test/..."}},
	{path: "test/clouds/azure", own: []string{"test/clouds"}, clouds: true},
}

var (
	applied = append([]string{"k8s.io/client-go/applyconfigurations/...", "sigs.k8s.io/structured-merge-diff/..."}, data...)
	acting  = []string{
		"api/...", "internal/cloud", "internal/drain", "internal/events", "internal/fleet", "internal/metrics", "internal/node",
		"internal/controlplane", "internal/kind/...", "internal/notification", "internal/outbound", "internal/rollout/...", "internal/status", "internal/turn",
	}
)

// impure is what pure code never imports: of the standard library, and of others however indirectly.
var (
	impureStd = []string{
		"context", "log/...", "math/rand/...", "net/...", "os/...", "runtime/...", "syscall", "testing/...",
	}
	impure = []string{
		"github.com/go-logr/...",
		"github.com/prometheus/...",
		"go.uber.org/zap/...",
		"k8s.io/apiserver/...",
		"k8s.io/client-go/...",
		"k8s.io/component-base/...",
		"k8s.io/klog/...",
		"k8s.io/utils/clock/...",
		"sigs.k8s.io/controller-runtime/...",
	}
	// clocks are the functions of package time that read the clock or wait for it.
	clocks = []string{"After", "AfterFunc", "NewTicker", "NewTimer", "Now", "Since", "Sleep", "Tick", "Until"}
)

// cloudSDKs are the clouds' own modules.
var cloudSDKs = []string{
	"cloud.google.com/...",
	"github.com/Azure/...",
	"github.com/aws/...",
	"google.golang.org/api/...",
}

// heavy are modules that only build the test cluster, in modules of their own.
var heavy = []string{"go.etcd.io/etcd/server/...", "k8s.io/kubernetes/...", "sigs.k8s.io/kwok/..."}

// match reports whether an import path is one of the patterns. "x/..." is x and all below it.
func match(patterns []string, p string) bool {
	for _, pattern := range patterns {
		if root, below := strings.CutSuffix(pattern, "/..."); p == root || below && strings.HasPrefix(p, root+"/") {
			return true
		}
	}
	return false
}

// layerOf returns the layer of a folder, and false if it has none. A folder directly below internal, or below one that
// holds packages by kind, needs one of its own.
func layerOf(dir string) (layer, bool) {
	for p := dir; p != "."; p = path.Dir(p) {
		for _, l := range layers {
			if l.path == p {
				return l, true
			}
		}
		if match([]string{"internal/cloud", "internal/controller"}, path.Dir(p)) {
			return layer{}, false
		}
	}
	return layer{}, false
}

// allows explains what is wrong with a package of the layer importing p, or returns "".
func (l layer) allows(p string) string {
	if p == "C" {
		return "binaries are static"
	}
	if own, ok := strings.CutPrefix(p, module+"/"); ok {
		if !match([]string{l.path + "/..."}, own) && !match(l.own, own) {
			return "not in its own list"
		}
		if l.path != "cmd/moult" && l.path != "test" && !strings.HasPrefix(l.path, "internal/cloud/") &&
			match([]string{"internal/cloud/aws/...", "internal/cloud/azure/...", "internal/cloud/gcp/..."}, own) {
			return "cmd/moult alone imports the providers"
		}
		return ""
	}
	if standard(p) {
		switch {
		case l.pure && match(impureStd, p):
			return "it is pure"
		case p == "testing" && l.path != "test":
			return "only tests test"
		}
		return ""
	}
	switch {
	case !l.clouds && match(cloudSDKs, p):
		return "a cloud's SDK stays behind internal/cloud"
	case l.others != nil && !match(l.others, p):
		return "not in its others list"
	}
	return ""
}

// standard reports whether an import path is of the standard library: its first element has no dot.
func standard(p string) bool {
	first, _, _ := strings.Cut(p, "/")
	return !strings.Contains(first, ".")
}
