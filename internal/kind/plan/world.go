// SPDX-License-Identifier: Apache-2.0

// Package plan judges Plans, for their controller and for package view. It is pure: no client, no clock, no logger.
//
//	world.go   what the spec says about turns                                 NewWorld
//	units.go   each node's state and the next step of its turn                World.Units
//	claim.go   the claim of a new turn, and what counts as a new attempt      World.NewClaim
//	phase.go   how far a turn has come, by its Job and pod                    Unit.Phase
package plan

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/rollout"
)

// World is the input for judging the turns of one Plan. NewWorld fills it from the spec. The caller sets Ready, Job, Fleet,
// SharedHostnames, OwnNode and Now, and may set Irreversible.
type World struct {
	Plan *upgradev1.Plan
	// Ready is false while the Plan is not valid and resolved. Running Jobs then finish, unless they wait for the
	// operator to cordon or drain, and nothing new starts.
	Ready bool
	// Job holds the operator's settings for Jobs. Nil means that the caller knows neither the settings nor the Jobs.
	Job   *JobOptions
	Fleet rollout.Fleet
	// SharedHostnames are values of the label kubernetes.io/hostname that several Nodes have.
	SharedHostnames map[string]bool
	// OwnNode is the node that the operator runs on.
	OwnNode string
	Now     time.Time
	// Irreversible says why the Plan can't be rolled back; "" if it can.
	Irreversible string

	// Holder is the Plan's name in claims. Taint is the key of the taint of outdated nodes. Label is the key of the node label with the hash.
	Holder, Taint, Label string
	Selector             labels.Selector
	window               []rollout.CronWindow
	windowError          string
	// template and spec identify what the turns are started for: see Attempt.
	template, spec string
}

// JobOptions are the settings of the Jobs that run on nodes. The comments name system-upgrade-controller's environment variables and defaults.
type JobOptions struct {
	// ActiveDeadlineSeconds is the default deadline; 0 is none. SYSTEM_UPGRADE_JOB_ACTIVE_DEADLINE_SECONDS, 600.
	ActiveDeadlineSeconds int64
	// ActiveDeadlineSecondsMax bounds what Plans ask for; 0 does not. SYSTEM_UPGRADE_JOB_ACTIVE_DEADLINE_SECONDS_MAX, 0.
	ActiveDeadlineSecondsMax int64
	// BackoffLimit is how often a failed pod is replaced. SYSTEM_UPGRADE_JOB_BACKOFF_LIMIT, 2.
	BackoffLimit int32
	// Image is this program's own image, which cordons and drains.
	Image string
	// KubectlImage, when set, cordons and drains in its place. SYSTEM_UPGRADE_JOB_KUBECTL_IMAGE.
	KubectlImage string
	// KubectlImageWindows cordons and drains Windows nodes; without it they wait. SYSTEM_UPGRADE_JOB_KUBECTL_IMAGE_WINDOWS.
	KubectlImageWindows string
	// Privileged is the default of the upgrade container. SYSTEM_UPGRADE_JOB_PRIVILEGED, true.
	Privileged bool
	// ImagePullPolicy of all containers. SYSTEM_UPGRADE_JOB_IMAGE_PULL_POLICY, IfNotPresent.
	ImagePullPolicy corev1.PullPolicy
	// TTLSecondsAfterFinish keeps finished Jobs. SYSTEM_UPGRADE_JOB_TTL_SECONDS_AFTER_FINISH, 900.
	TTLSecondsAfterFinish int32
	// PodReplacementPolicy of Jobs. SYSTEM_UPGRADE_JOB_POD_REPLACEMENT_POLICY, TerminatingOrFailed.
	PodReplacementPolicy batchv1.PodReplacementPolicy
}

// AwaitsOperator reports whether the Job's cordon or drain container runs this program's own image. That container only waits until the
// operator has cordoned or drained the node.
func (o *JobOptions) AwaitsOperator(n *corev1.Node) bool {
	return !IsWindows(n) && o.KubectlImage == ""
}

// TTL is how many seconds the Plan's finished Jobs are kept. It is at least a minute longer than postCompleteDelay and soak, so the operator
// sees how the Job ended, and mostly also which version it brought.
func (o *JobOptions) TTL(p *upgradev1.Plan) int32 {
	delay := ptr.Deref(p.Spec.PostCompleteDelay, metav1.Duration{}).Duration
	if s := p.Spec.Strategy; s != nil {
		delay = max(delay, ptr.Deref(s.Soak, metav1.Duration{}).Duration)
	}
	return max(o.TTLSecondsAfterFinish, int32(min((delay+time.Minute).Seconds(), math.MaxInt32)))
}

// IsWindows reports whether the node runs Windows.
func IsWindows(n *corev1.Node) bool { return n.Labels[corev1.LabelOSStable] == "windows" }

// HolderOf is the name of a Plan in claims.
func HolderOf(namespace, name string) string { return "Plan/" + namespace + "/" + name }

// SelectorError is a node selector that can't be read. system-upgrade-controller has an Event of its own for it.
type SelectorError struct{ error }

// NewWorld reads a Plan's spec. The error says what is invalid in it. Its methods read the version and the hash from the Plan's status.
func NewWorld(p *upgradev1.Plan) (*World, error) {
	w := &World{
		Plan: p, Holder: HolderOf(p.Namespace, p.Name), Taint: v1alpha1.TaintOutdated("plan", p.Name), Label: upgradev1.LabelPlanHash(p.Name), Selector: labels.Nothing(),
	}
	return w, w.parse()
}

func (w *World) parse() (err error) {
	p := w.Plan
	selector, errSelector := metav1.LabelSelectorAsSelector(p.Spec.NodeSelector)
	if errSelector == nil {
		w.Selector = selector
	}
	if spec := p.Spec.Window; spec != nil {
		if w.window, err = rollout.NewWindow(spec.Days, spec.StartTime, spec.EndTime, spec.TimeZone); err != nil {
			w.windowError = "spec.window is invalid, " + err.Error()
			return errors.New(w.windowError)
		}
	}
	if d := p.Spec.PostCompleteDelay; d != nil && d.Duration < 0 {
		return errors.New("spec.postCompleteDelay is negative")
	}
	if s := rollout.New(p.Spec.Strategy, 0, 1); s.Problem() != "" {
		return errors.New(s.Problem())
	}
	if problems := validation.IsValidLabelValue(p.Name); len(problems) > 0 {
		return fmt.Errorf("metadata.name must serve as a label value on Jobs and nodes: %s", strings.Join(problems, "; "))
	}
	if p.Spec.Upgrade == nil {
		return errors.New("spec.upgrade is missing")
	}
	if errSelector != nil {
		return SelectorError{fmt.Errorf("spec.nodeSelector is invalid, %w", errSelector)}
	}
	return nil
}

// Strategy returns the strategy of the Plan for this many nodes. wave is the last wave in the status.
func (w *World) Strategy(total int, wave *v1alpha1.WaveStatus) rollout.Strategy {
	p := w.Plan
	s := rollout.New(p.Spec.Strategy, int(min(p.Spec.Concurrency, math.MaxInt32)), total)
	s.UID, s.Revision, s.Shared, s.Drains = p.UID, p.Status.LatestHash, shared(p), p.Spec.Drain != nil
	s.Window, s.WindowError, s.OwnNode = w.window, cmp.Or(s.WindowError, w.windowError), w.OwnNode
	s.Template, s.Wave, s.Approved = w.templateDigest(), wave, rollout.Approvals(p.Annotations, p.Status.Approval)
	return s
}

// cordons reports whether the Plan's turns make their node unschedulable.
func cordons(p *upgradev1.Plan) bool { return p.Spec.Cordon || p.Spec.Drain != nil }

// shared reports whether the node may be in turns of other Plans at the same time.
func shared(p *upgradev1.Plan) bool { return !cordons(p) && !p.Spec.Exclusive }
