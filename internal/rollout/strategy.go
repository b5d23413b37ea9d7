// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"moult.dev/moult/api/v1alpha1"
)

// New makes a strategy from the API object, for a rollout with this many units that did not opt out. concurrency is the
// default of maxConcurrent. Invalid fields are reported in Error or WindowError.
func New(api *v1alpha1.Strategy, concurrency, total int) Strategy {
	s := Strategy{MaxConcurrent: concurrency}
	if api == nil {
		return s
	}
	fail := func(field, problem string) { s.Error = cmp.Or(s.Error, "spec.strategy."+field+": "+problem) }
	amount := func(field string, from *intstr.IntOrString) Amount {
		a, err := ParseAmount(*from)
		if err != nil {
			fail(field, err.Error())
		}
		return a
	}
	if api.MaxConcurrent != nil {
		s.MaxConcurrent = amount("maxConcurrent", api.MaxConcurrent).AtLeastOne(total)
	}
	if api.MaxFailures != nil {
		s.MaxFailures = new(amount("maxFailures", api.MaxFailures).Down(total))
	}
	s.Paused, s.Order = api.Paused, api.Order
	for i := range api.Waves {
		from := &api.Waves[i]
		field := fmt.Sprintf("waves[%d].", i)
		w := Wave{Name: cmp.Or(from.Name, "wave-"+strconv.Itoa(i+1)), Manual: from.Approval == v1alpha1.ApprovalManual}
		if slices.ContainsFunc(s.Waves, func(other Wave) bool { return other.Name == w.Name }) {
			fail(field+"name", "there is another wave "+strconv.Quote(w.Name))
		}
		if from.Size != nil {
			w.Size = max(1, amount(field+"size", from.Size).Up(total))
		}
		var err error
		if w.Selector, err = NewSelector(from.NodeSelector); err != nil {
			w.Selector = labels.Nothing()
			fail(field+"nodeSelector", err.Error())
		}
		if from.Soak != nil {
			w.Soak = from.Soak.Duration
		}
		s.Waves = append(s.Waves, w)
	}
	var err error
	if s.Windows, err = NewCronWindows(api.Windows); err != nil {
		s.WindowError = "spec.strategy." + err.Error()
	}
	return s
}

// Problem returns what is invalid in a strategy, or "".
func (s *Strategy) Problem() string { return cmp.Or(s.Error, s.WindowError) }

// NewHealth returns a NodeRollout's requirements for changed nodes, without those for pods.
func NewHealth(from *v1alpha1.NodeHealth) Health {
	if from == nil {
		return Health{}
	}
	return Health{MinReady: seconds(from.MinReadySeconds), NodesGate: from.NodesGate}
}

// NewBudget makes a budget from the API object; the caller adds the closed gates. An invalid budget has an Error. With an
// invalid selector it selects every node.
func NewBudget(from *v1alpha1.NodeDisruptionBudget) Budget {
	b := Budget{Name: from.Name, Selector: labels.Everything(), Paused: from.Spec.Paused, TopologyKey: from.Spec.TopologyKey, MaxDomains: 1}
	fail := func(err error) { b.Error = cmp.Or(b.Error, "spec."+err.Error()) }
	if selector, err := NewSelector(from.Spec.Selector); err != nil {
		fail(fmt.Errorf("selector: %w", err))
	} else if selector != nil {
		b.Selector = selector
	}
	if from.Spec.MaxUnavailable != nil {
		amount, err := ParseAmount(*from.Spec.MaxUnavailable)
		if err != nil {
			fail(fmt.Errorf("maxUnavailable: %w", err))
		}
		b.MaxUnavailable = &amount
	}
	if from.Spec.MaxDomains != nil {
		b.MaxDomains = int(*from.Spec.MaxDomains)
	}
	b.DaemonPods = slices.Contains(from.Spec.Counts, v1alpha1.CountDaemonPods)
	b.NoNodes = b.DaemonPods && !slices.Contains(from.Spec.Counts, v1alpha1.CountNodes)
	var err error
	if b.Windows, err = NewCronWindows(from.Spec.Windows); err != nil {
		fail(err)
	}
	b.Health.MinReady = seconds(from.Spec.MinReadySeconds)
	b.Workloads = from.Spec.Gates != nil && from.Spec.Gates.Workloads != nil
	if g := from.Spec.Gates; g != nil && g.Nodes != nil {
		b.Health.NodesGate = *g.Nodes
	}
	return b
}
