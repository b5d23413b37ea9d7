// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/internal/turn"
)

const stable = "https://update.example.com/stable"

// due is when the channel of these tests is asked again.
var due = now.Add(7 * time.Minute)

// said is what the channel has answered last, and why it has not since.
func said(answer string, problem error) *poll {
	return &poll{url: stable, answer: answer, err: problem, due: due}
}

// byChannel makes a Plan follow the channel, and forget what it was resolved to.
func byChannel(p *upgradev1.Plan) {
	p.Spec.Version, p.Spec.Channel = "", stable
	p.Status = upgradev1.PlanStatus{}
}

// resolved makes a Plan one that the channel has led to this version before, for this generation of the Plan.
func resolved(version string, generation int64) func(*upgradev1.Plan) {
	return func(p *upgradev1.Plan) {
		p.Status.LatestVersion, p.Status.LatestHash, p.Status.ObservedGeneration = version, oldHash, generation
		p.Status.Conditions = []upgradev1.Condition{{Type: upgradev1.ConditionLatestResolved, Status: metav1.ConditionTrue, Reason: upgradev1.ReasonChannel}}
	}
}

// newResolver makes a controller that has asked the channel before, if so, and finds these secrets.
func newResolver(t *testing.T, p *upgradev1.Plan, asked *poll, secrets ...client.Object) *Controller {
	t.Helper()
	o := testOptions()
	c := &Controller{
		Engine:   &turn.Engine{Client: fake.NewClientBuilder().WithObjects(secrets...).Build()},
		options:  *o,
		channels: newChannels(t.Context(), clocktesting.NewFakePassiveClock(now), o, func(types.NamespacedName) {}),
	}
	if asked != nil {
		c.channels.polls[client.ObjectKeyFromObject(p)] = asked
	} else if p.Spec.Channel != "" && p.Spec.Version == "" {
		// It is being asked, and does not answer.
		c.channels.polls[client.ObjectKeyFromObject(p)] = &poll{url: p.Spec.Channel, running: true}
	}
	return c
}

// verdict is what a resolution comes to.
type verdict struct {
	Ready               bool
	Version, Hash       string
	Validated, Resolved string // "Status Reason: message"
	Problem             string
	Wake                time.Time
}

func told(p *upgradev1.Plan, kind string) string {
	c := p.Status.Condition(kind)
	if c == nil {
		return ""
	}
	text := string(c.Status)
	if c.Reason != "" {
		text += " " + c.Reason
	}
	if c.Message != "" {
		text += ": " + c.Message
	}
	return text
}

func hashOfText(text string) string { return fmt.Sprintf("%x", sha256.Sum224([]byte(text))) }

func TestResolve(t *testing.T) {
	const (
		valid    = "True PlanIsValid"
		refused  = "can't serve as a label value and image tag: at most 63 letters, digits, '-', '_' and '.', with a letter or digit at both ends"
		notFound = "unexpected response: HTTP/1.1 404 Not Found"
	)
	gone := errors.New(notFound)
	secret := func(name, hash string) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: map[string]string{annotationSecretHash: hash}}}
	}
	for name, tc := range map[string]struct {
		plan      *upgradev1.Plan
		asked     *poll
		secrets   []client.Object
		malformed error
		want      verdict
	}{
		"a version": {
			plan: newPlan(),
			want: verdict{Ready: true, Version: latest, Hash: hashOfText(latest), Validated: valid, Resolved: "True Version"},
		},
		"a version, a service account and secrets": {
			plan: newPlan(secrets(upgradev1.SecretSpec{Name: "b"}, upgradev1.SecretSpec{Name: "ignored", IgnoreUpdates: true}, upgradev1.SecretSpec{Name: "a"}), func(p *upgradev1.Plan) {
				p.Spec.ServiceAccountName = "sa"
			}),
			secrets: []client.Object{secret("a", "aaaaaaaaaa"), secret("b", "bbbbbbbbbb"), secret("ignored", "cccccccccc")},
			want:    verdict{Ready: true, Version: latest, Hash: hashOfText(latest + "sabbbbbbbbbbaaaaaaaaaa"), Validated: valid, Resolved: "True Version"},
		},
		"a version that is none": {
			plan: newPlan(func(p *upgradev1.Plan) { p.Spec.Version = "v1/2" }),
			want: verdict{
				Version: latest, Hash: hash, Validated: valid,
				Resolved: `False Error: version "v1/2" ` + refused, Problem: `version "v1/2" ` + refused,
			},
		},
		"neither version nor channel": {
			plan: newPlan(func(p *upgradev1.Plan) { p.Spec.Version = "" }),
			want: verdict{
				Version: latest, Hash: hash, Validated: valid,
				Resolved: "False Error: cannot resolve plan: missing channel and version", Problem: "cannot resolve plan: missing channel and version",
			},
		},
		"a version wins over a channel": {
			plan:  newPlan(func(p *upgradev1.Plan) { p.Spec.Channel = stable }),
			asked: said("v9", nil),
			want:  verdict{Ready: true, Version: latest, Hash: hashOfText(latest), Validated: valid, Resolved: "True Version"},
		},

		// system-upgrade-controller resolves a Plan without an image, and so do its users' tests.
		"a version, and no image": {
			plan: newPlan(imageless),
			want: verdict{Ready: true, Version: latest, Hash: hashOfText(latest), Validated: valid, Resolved: "True Version"},
		},
		"a channel, and no image": {
			plan:  newPlan(imageless, byChannel),
			asked: said("v1.31.2+k3s1", nil),
			want:  verdict{Ready: true, Version: latest, Hash: hashOfText(latest), Validated: valid, Resolved: "True Channel", Wake: due},
		},
		"neither version nor channel nor image": {
			plan: newPlan(imageless, func(p *upgradev1.Plan) { p.Spec.Version, p.Status = "", upgradev1.PlanStatus{} }),
			want: verdict{
				Validated: valid, Resolved: "False Error: cannot resolve plan: missing channel and version",
				Problem: "cannot resolve plan: missing channel and version",
			},
		},

		"a channel that has not answered yet": {
			plan: newPlan(byChannel),
			want: verdict{Validated: valid, Resolved: "Unknown Channel: the channel is being asked"},
		},
		"a channel": {
			plan:  newPlan(byChannel),
			asked: said("v1.31.2+k3s1", nil),
			want:  verdict{Ready: true, Version: latest, Hash: hashOfText(latest), Validated: valid, Resolved: "True Channel", Wake: due},
		},
		"a channel that goes up": {
			plan:  newPlan(byChannel, resolved("v1.31.1-k3s1", 3)),
			asked: said("v1.31.2+k3s1", nil),
			want:  verdict{Ready: true, Version: latest, Hash: hashOfText(latest), Validated: valid, Resolved: "True Channel", Wake: due},
		},
		"a channel that does not answer": {
			plan:  newPlan(byChannel),
			asked: said("", gone),
			want:  verdict{Validated: valid, Resolved: "False Error: " + notFound, Wake: due},
		},
		"a channel that does not answer any more": {
			plan:  newPlan(byChannel, resolved(latest, 3)),
			asked: said("v1.31.2+k3s1", gone),
			want: verdict{
				Ready: true, Version: latest, Hash: hashOfText(latest), Validated: valid,
				Resolved: "True Channel: version " + latest + " stays: " + notFound, Wake: due,
			},
		},
		"a channel that does not answer since the controller runs": {
			plan:  newPlan(byChannel, resolved(latest, 3)),
			asked: said("", gone),
			want: verdict{
				Ready: true, Version: latest, Hash: hashOfText(latest), Validated: valid,
				Resolved: "True Channel: version " + latest + " stays: " + notFound, Wake: due,
			},
		},
		"a channel that is being asked, after a restart": {
			plan: newPlan(byChannel, resolved(latest, 3)),
			want: verdict{Ready: true, Version: latest, Hash: hashOfText(latest), Validated: valid, Resolved: "True Channel"},
		},
		// system-upgrade-controller writes no observedGeneration.
		"a channel that is being asked, as system-upgrade-controller left it": {
			plan: newPlan(byChannel, resolved(latest, 0)),
			want: verdict{Ready: true, Version: latest, Hash: hashOfText(latest), Validated: valid, Resolved: "True Channel"},
		},
		"a channel that says what is no version": {
			plan:  newPlan(byChannel),
			asked: said("v1 2", nil),
			want: verdict{
				Validated: valid, Resolved: `False Error: version "v1 2" ` + refused, Wake: due,
			},
		},
		"a channel that says what is no version any more": {
			plan:  newPlan(byChannel, resolved(latest, 3)),
			asked: said(strings.Repeat("x", 64), nil),
			want: verdict{
				Ready: true, Version: latest, Hash: hashOfText(latest), Validated: valid,
				Resolved: "True Channel: version " + latest + ` stays: version "` + strings.Repeat("x", 64) + `" ` + refused, Wake: due,
			},
		},
		"a channel that goes down": {
			plan:  newPlan(byChannel, resolved(latest, 3)),
			asked: said("v1.31.1+k3s1", nil),
			want: verdict{
				Ready: true, Version: latest, Hash: hashOfText(latest), Validated: valid, Wake: due,
				Resolved: "True Channel: version " + latest + " stays: the channel now says v1.31.1-k3s1, which is lower; set spec.allowDowngrade to follow it",
			},
		},
		"a channel that goes down, as it may": {
			plan:  newPlan(byChannel, resolved(latest, 3), func(p *upgradev1.Plan) { p.Spec.AllowDowngrade = true }),
			asked: said("v1.31.1+k3s1", nil),
			want:  verdict{Ready: true, Version: "v1.31.1-k3s1", Hash: hashOfText("v1.31.1-k3s1"), Validated: valid, Resolved: "True Channel", Wake: due},
		},
		"another channel that leads down": {
			plan:  newPlan(byChannel, resolved(latest, 2)),
			asked: said("v1.31.1+k3s1", nil),
			want: verdict{
				Ready: true, Version: latest, Hash: hashOfText(latest), Validated: valid, Wake: due,
				Resolved: "True Channel: version " + latest + " stays: the channel now says v1.31.1-k3s1, which is lower; set spec.allowDowngrade to follow it",
			},
		},

		"a secret that is not": {
			plan: newPlan(secrets(upgradev1.SecretSpec{Name: "a"})),
			want: verdict{Version: latest, Hash: hash, Validated: `False Error: secrets "a" not found`, Resolved: "Unknown", Problem: `secrets "a" not found`},
		},
		"a node selector that is none": {
			plan: newPlan(func(p *upgradev1.Plan) { p.Spec.NodeSelector = selects("Gt", "1") }),
			want: verdict{
				Version: latest, Hash: hash, Resolved: "Unknown",
				Validated: `False Error: spec.nodeSelector is invalid, "Gt" is not a valid label selector operator`,
				Problem:   `spec.nodeSelector is invalid, "Gt" is not a valid label selector operator`,
			},
		},
		"a Plan that can't be read": {
			plan:      newPlan(),
			malformed: errors.New("the plan can't be read: bad"),
			want: verdict{
				Version: latest, Hash: hash, Validated: "False Error: the plan can't be read: bad", Resolved: "Unknown", Problem: "the plan can't be read: bad",
			},
		},
		"a label that has no valid key": {
			plan: newPlan(func(p *upgradev1.Plan) { p.Spec.PostCompleteLabels = map[string]string{"a/b/c": "x"} }),
			want: verdict{
				Version: latest, Hash: hash, Resolved: "Unknown",
				Validated: `False Error: spec.postCompleteLabels has an invalid key "a/b/c": ` + qualified,
				Problem:   `spec.postCompleteLabels has an invalid key "a/b/c": ` + qualified,
			},
		},
		"a label that has no valid value once it is filled in": {
			plan: newPlan(func(p *upgradev1.Plan) {
				p.Spec.PostCompleteLabels = map[string]string{"good": "$(LATEST_VERSION)", "bad": "$(LATEST_VERSION)_$(LATEST_HASH)"}
			}),
			want: verdict{
				Version: latest, Hash: hash, Resolved: "Unknown",
				Validated: "False Error: spec.postCompleteLabels[bad] is not a valid label value: must be no more than 63 bytes",
				Problem:   "spec.postCompleteLabels[bad] is not a valid label value: must be no more than 63 bytes",
			},
		},
		// Version and hash go together: what is not taken over leaves both.
		"a label that is valid no more with the new version": {
			plan: newPlan(func(p *upgradev1.Plan) {
				p.Spec.PostCompleteLabels = map[string]string{"bad": "$(LATEST_VERSION)_$(LATEST_HASH)"}
				p.Status.LatestVersion, p.Status.LatestHash = "v1.30.0-k3s1", oldHash
			}),
			want: verdict{
				Version: "v1.30.0-k3s1", Hash: oldHash, Resolved: "Unknown",
				Validated: "False Error: spec.postCompleteLabels[bad] is not a valid label value: must be no more than 63 bytes",
				Problem:   "spec.postCompleteLabels[bad] is not a valid label value: must be no more than 63 bytes",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newResolver(t, tc.plan, tc.asked, tc.secrets...)
			w, wake, problem := c.resolve(t.Context(), tc.plan, tc.malformed, now)
			got := verdict{
				Ready: w.Ready, Version: tc.plan.Status.LatestVersion, Hash: tc.plan.Status.LatestHash,
				Validated: told(tc.plan, upgradev1.ConditionValidated), Resolved: told(tc.plan, upgradev1.ConditionLatestResolved), Wake: wake,
			}
			if problem != nil {
				got.Problem = problem.Error()
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if tc.plan.Spec.Version != "" && tc.malformed == nil && len(c.channels.polls) > 0 {
				t.Error("still follows the channel")
			}
		})
	}
}

const qualified = "a valid label key must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"

// A channel that was not asked before: what another one said is left out of account, and what a controller said of the
// same Plan before this one started is not.
func TestResolveChannelAskedAnew(t *testing.T) {
	for name, tc := range map[string]struct {
		generation int64 // of the status; the Plan's is 3
		asked      *poll
		ready      bool
	}{
		"the channel has changed":               {2, &poll{url: "https://update.example.com/latest", answer: latest, due: due}, false},
		"the Plan has changed before a restart": {2, nil, false},
		"a restart":                             {3, nil, true},
		"system-upgrade-controller has written the status before": {0, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlan(byChannel, resolved(latest, tc.generation))
			c := newResolver(t, p, tc.asked)
			if tc.asked == nil {
				clear(c.channels.polls)
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel() // Nobody is asked in earnest.
			c.channels.ctx = ctx
			want := "Unknown Channel: the channel is being asked"
			if tc.ready {
				want = "True Channel"
			}
			if w, _, problem := c.resolve(t.Context(), p, nil, now); w.Ready != tc.ready || problem != nil {
				t.Errorf("got %v, %v", w.Ready, problem)
			}
			if got := told(p, upgradev1.ConditionLatestResolved); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		})
	}
}

func TestResolveAllowDowngradeOfAll(t *testing.T) {
	p := newPlan(byChannel, resolved(latest, 3))
	c := newResolver(t, p, said("v1.31.1+k3s1", nil))
	c.options.AllowDowngrade = true
	if w, _, problem := c.resolve(t.Context(), p, nil, now); !w.Ready || p.Status.LatestVersion != "v1.31.1-k3s1" {
		t.Errorf("got %v, %v, and version %s", w.Ready, problem, p.Status.LatestVersion)
	}
}

// A failure to read a secret is told as it is, not as if the secret were missing.
func TestResolveSecretUnreadable(t *testing.T) {
	p := newPlan(secrets(upgradev1.SecretSpec{Name: "a"}))
	c := newResolver(t, p, nil)
	c.Client = fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return errors.New("the cache is not started")
		},
	}).Build()
	if w, _, problem := c.resolve(t.Context(), p, nil, now); w.Ready || problem == nil || problem.Error() != "the cache is not started" {
		t.Errorf("got %v, %v", w.Ready, problem)
	}
}

func TestPostCompleteLabels(t *testing.T) {
	p := newPlan(func(p *upgradev1.Plan) {
		p.Spec.PostCompleteLabels = map[string]string{
			"version": "$(LATEST_VERSION)", "example.com/hash": "h-$(LATEST_HASH)", "literal": "a$$b", "other": "$(OTHER)", "empty": "", "bad key": "x", "z": "-",
		}
	})
	got, err := postCompleteLabels(p)
	want := map[string]string{"version": latest, "example.com/hash": "h-" + hash, "empty": ""}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if err == nil || !strings.HasPrefix(err.Error(), "spec.postCompleteLabels[z] is not a valid label value: ") {
		t.Errorf("got %v", err)
	}
}

func TestMunge(t *testing.T) {
	for version, want := range map[string]string{
		"v1.31.2+k3s1": "v1.31.2-k3s1",
		"v1.31.2-k3s1": "v1.31.2-k3s1",
		"a+b+c":        "a-b-c",
		"+":            "-",
		"":             "",
	} {
		if got := munge(version); got != want {
			t.Errorf("%s: got %s, want %s", version, got, want)
		}
	}
}

func TestIsDowngrade(t *testing.T) {
	// Each pair goes up. The way back is a downgrade, and the way up is none.
	for _, pair := range [][2]string{
		{"v1.30.1-k3s1", "v1.31.0-k3s1"},
		{"v1.30.1-k3s1", "v1.30.2-k3s1"},
		{"v1.30.9-k3s1", "v1.30.10-k3s1"},
		{"v1.30.1-k3s1", "v1.30.1-k3s2"},
		{"v1.30.1-k3s1", "v1.30.1-k3s10"},
		{"v1.30.1-k3s9", "v1.30.1-k3s10"},
		{"v1.30.1-rc1-k3s1", "v1.30.1-rc2-k3s1"},
		{"v1.30.1-rc9-k3s2", "v1.30.1-rc10-k3s1"},
		{"v1.30.1-rke2r1", "v1.30.1-rke2r2"},
		{"v1.9", "v1.10"},
		{"v1.9-rke2r3", "v1.10-rke2r1"},
		{"1.30.1", "v1.31.0"},
		{"v1.30", "v1.30.1"},
		{"v1.30.1-20260101", "v1.30.1-20260102"},
		{"v1.30.1-009", "v1.30.1-10"},
		{"v1.30.1-k3s1", "v2.0.0"},
		{"v1.30.1-99999999999999999999998", "v1.30.1-99999999999999999999999"},
	} {
		if isDowngrade(pair[0], pair[1]) {
			t.Errorf("%s to %s is taken for a downgrade", pair[0], pair[1])
		}
		if !isDowngrade(pair[1], pair[0]) {
			t.Errorf("%s to %s is not taken for a downgrade", pair[1], pair[0])
		}
	}
	// What can't be told apart is no downgrade, either way.
	for _, pair := range [][2]string{
		{"v1.30.1-k3s1", "v1.30.1-k3s1"},
		{"v1.30.1-k3s1", "v1.30.1-k3s01"},
		{"v1.30.1-rc1-k3s1", "v1.30.1-k3s1"},
		{"v1.30.1-k3s1", "v1.30.1-rke2r2"},
		{"v1.30.1", "v1.30.1-k3s1"},
		{"v1.30.1", "1.30.1"},
		{"v1.30", "v1.30.0"},
		{"latest", "v1.30.1"},
		{"bionic", "focal"},
		{"", "v1.30.1"},
		{"v1", "v2"},
		{"2026-01-02", "2026-01-01"},
	} {
		if isDowngrade(pair[0], pair[1]) || isDowngrade(pair[1], pair[0]) {
			t.Errorf("%s and %s: one is taken for a downgrade of the other", pair[0], pair[1])
		}
	}
}

func TestCheckVersion(t *testing.T) {
	for _, good := range []string{"v1.31.2-k3s1", "bionic", "1", "A_b.c", strings.Repeat("x", 63)} {
		if err := checkVersion(good); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	for _, bad := range []string{"", "-k3s1", "v1.", "v1+k3s1", "a/b", "a b", "a:b", "é", strings.Repeat("x", 64)} {
		want := `version "` + bad + `" can't serve as a label value and image tag: at most 63 letters, digits, '-', '_' and '.', with a letter or digit at both ends`
		if err := checkVersion(bad); err == nil || err.Error() != want {
			t.Errorf("%q: got %v", bad, err)
		}
	}
}
