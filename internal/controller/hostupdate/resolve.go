// SPDX-License-Identifier: Apache-2.0

package hostupdate

import (
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/drain"
	"moult.dev/moult/internal/kind/hostupdate"
	"moult.dev/moult/internal/rollout"
	"moult.dev/moult/internal/turn"
)

// defaultRebootTimeout of spec.hostUpdate.rebootTimeout.
const defaultRebootTimeout = 15 * time.Minute

// world is what all turns of one NodeRollout are judged by.
type world struct {
	rollout *v1alpha1.NodeRollout
	holder  string
	// ready is false while what the spec says of hosts, drains or health can't be understood: what was begun stays as it is.
	ready    bool
	selector labels.Selector
	host     v1alpha1.HostUpdate
	wish     hostupdate.Wish
	// spec identifies what of the spec makes a new attempt.
	spec string
	// drains is false where nodes are only cordoned, and exclude true where they are kept from load balancers, which get this wait.
	drains, exclude bool
	drain           drain.Options
	wait            time.Duration
	rebootTimeout   time.Duration
	// taint is the key of the taint of outdated nodes, and optOut that of the label of those that are left alone.
	taint, optOut string
	works         *turn.Works
	asked         *backoffs
	// own is the node that the operator runs on.
	own string

	// What is to be seen at the moment. healthy is the fleet with one more budget: spec.health.
	fleet   rollout.Fleet
	healthy rollout.Fleet
	memo    *memo
	now     time.Time

	// What follows from all hosts together. unlabelled counts the selected nodes whose host's interface nothing names.
	revision   string
	releases   []v1alpha1.HostRelease
	versions   []v1alpha1.HostVersion
	unlabelled int
	// latest is the version that came to be known last, since then.
	latest      string
	latestSince time.Time
}

// resolve is what the spec comes to, or why it can't be carried out.
func (c *Controller) resolve(r *v1alpha1.NodeRollout, malformed error) (*world, error) {
	w := &world{
		rollout: r, holder: holder(r), selector: labels.Nothing(), taint: turn.TaintOf(r.Name), optOut: v1alpha1.LabelNodeRollout(r.Name), rebootTimeout: defaultRebootTimeout, works: c.works, asked: c.asked,
		own:      c.options.NodeName,
		revision: r.Status.Revision,
	}
	if malformed != nil {
		return w, malformed
	}
	if err := w.parse(); err != nil {
		return w, err
	}
	w.ready = true
	if s := rollout.New(r.Spec.Strategy, 0, 1); s.Problem() != "" {
		return w, errors.New(s.Problem()) // Nothing new is begun; what was begun does not need it.
	}
	return w, nil
}

func (w *world) parse() (err error) {
	spec := &w.rollout.Spec
	if spec.HostUpdate == nil {
		return errors.New("spec.hostUpdate must be given: {} brings hosts to the newest version that they have to offer")
	}
	w.host = *spec.HostUpdate
	if t := w.host.RebootTimeout; t != nil {
		w.rebootTimeout = t.Duration
	}
	attempted := w.host
	attempted.LabelNodes = false // It changes nothing about a turn.
	w.spec = turn.Digest(attempted, spec.Drain, spec.Health, w.rollout.Annotations[v1alpha1.AnnotationRetry])
	if w.drain, err = drain.OptionsOf(spec.Drain); err != nil {
		return err
	}
	w.drains, w.exclude = spec.Drain == nil || !spec.Drain.Disabled, true
	if e := w.host.ExcludeFromLoadBalancers; e != nil {
		w.exclude = !e.Disabled
		if e.Wait != nil && w.exclude {
			w.wait = e.Wait.Duration
		}
	}
	if spec.Health != nil {
		for i := range spec.Health.Pods {
			if _, err := metav1.LabelSelectorAsSelector(&spec.Health.Pods[i].Selector); err != nil {
				return fmt.Errorf("spec.health.pods[%d].selector is invalid, %w", i, err)
			}
		}
	}
	if w.selector, err = metav1.LabelSelectorAsSelector(&spec.NodeSelector); err != nil {
		w.selector = labels.Nothing()
		return fmt.Errorf("spec.nodeSelector is invalid, %w", err)
	}
	return nil
}

// attempt identifies what a turn on this node is started for. A failed turn is tried again once it differs: after a change of how hosts
// are updated, drained and found healthy, with another version, or when somebody asks for it.
func (w *world) attempt(n *corev1.Node, version string) string {
	return turn.Digest(w.spec, version, n.Annotations[v1alpha1.AnnotationRetry])
}
