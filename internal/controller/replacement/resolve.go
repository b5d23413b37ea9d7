// SPDX-License-Identifier: Apache-2.0

package replacement

import (
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/drain"
	"moult.dev/moult/internal/kind/nodeturn"
	machine "moult.dev/moult/internal/kind/replacement"
	"moult.dev/moult/internal/node"
	"moult.dev/moult/internal/rollout"
)

// Defaults of spec.replacement.
const (
	defaultTimeout     = 15 * time.Minute
	defaultCheckPeriod = 5 * time.Minute
)

// settings are what the spec of one NodeRollout says.
type settings struct {
	rollout *v1alpha1.NodeRollout
	// ready is false while the spec can't be carried out: turns stay as they are.
	ready       bool
	selector    labels.Selector
	replacement v1alpha1.Replacement
	rules       machine.Rules
	// spec is a hash of the fields whose change makes a new attempt.
	spec string
	// excluding takes a cordoned node out of external load balancers, if the spec asks for that.
	excluding   []node.Also
	drain       drain.Options
	checkPeriod time.Duration
	// optOut is the key of the label of opted-out nodes.
	optOut string
}

// resolve parses the spec, or says why it can't be carried out.
func resolve(r *v1alpha1.NodeRollout, malformed error) (*settings, error) {
	s := &settings{rollout: r, selector: labels.Nothing(), optOut: v1alpha1.LabelNodeRollout(r.Name), checkPeriod: defaultCheckPeriod}
	if malformed != nil {
		return s, malformed
	}
	if err := s.parse(); err != nil {
		return s, err
	}
	s.ready = true
	if strategy := rollout.New(r.Spec.Strategy, 0, 1); strategy.Problem() != "" {
		return s, errors.New(strategy.Problem()) // No turn begins, and turns under way go on.
	}
	return s, nil
}

func (s *settings) parse() (err error) {
	spec := &s.rollout.Spec
	s.replacement = *spec.Replacement
	r := &s.replacement
	r.Rollback = r.Rollback || spec.Strategy != nil && spec.Strategy.Rollback
	s.rules = machine.Rules{
		OnFull: r.OnFull, Timeout: defaultTimeout, MatchOSImage: r.ImageMatch == v1alpha1.ImageMatchOSImage, ControlPlane: r.ControlPlane != nil,
		Drains: spec.Drain == nil || !spec.Drain.Disabled, DetectOnly: r.DetectOnly, Ending: s.rollout.DeletionTimestamp != nil, ScaleSets: r.ScaleSets, Strategy: spec.Strategy,
	}
	if s.rules.Surge, err = rollout.ParseAmount(ptr.Deref(r.Surge, intstr.FromInt32(1))); err != nil {
		return fmt.Errorf("spec.replacement.surge: %w", err)
	}
	s.rules.KeepFailed, s.checkPeriod = duration(r.KeepFailedFor, 0), duration(r.CheckPeriod, defaultCheckPeriod)
	if ready := r.ReplacementReady; ready != nil {
		s.rules.StartupTaints, s.rules.Timeout = ready.StartupTaints, duration(ready.Timeout, defaultTimeout)
	}
	if e := ptr.Deref(r.ExcludeFromLoadBalancers, v1alpha1.LoadBalancerExclusion{}); !e.Disabled {
		s.excluding, s.rules.Wait = []node.Also{node.Excluding}, duration(e.Wait, 0)
	}
	if s.drain, err = drain.OptionsOf(spec.Drain); err != nil {
		return err
	}
	asked := *r
	asked.DetectOnly, asked.CheckPeriod, asked.KeepFailedFor, asked.Surge, asked.Rollback = false, nil, nil, nil, false
	s.spec = nodeturn.Digest(asked, spec.Drain, spec.Health, s.rollout.Annotations[v1alpha1.AnnotationRetry])
	s.selector, err = nodeturn.NodeSelector(spec)
	return err
}

func duration(d *metav1.Duration, otherwise time.Duration) time.Duration {
	return ptr.Deref(d, metav1.Duration{Duration: otherwise}).Duration
}

// attempt is a hash of what a turn in this set depends on. A failed turn is tried again when it changes: with the settings for replacement, drain and
// health, with the model, or when a person asks for a retry.
func (s *settings) attempt(set *machine.Set, n *machine.Node) string {
	model, retry := set.Model, ""
	if s.rules.MatchOSImage {
		model = set.ImageName
	}
	if n != nil {
		retry = n.Annotations[v1alpha1.AnnotationRetry]
	}
	return nodeturn.Digest(s.spec, model, retry)
}
