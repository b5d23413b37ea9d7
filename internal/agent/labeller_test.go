// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"moult.dev/moult/api/v1alpha1"
)

const newImage, oldImage = "Bottlerocket OS 1.20.3 (aws-k8s-1.30)", "Bottlerocket OS 0.3.2 (aws-k8s-1.15)"

func TestProbe(t *testing.T) {
	refused := errors.New("connection refused")
	const old = "it has updog and no Update API that can be used"
	for name, tc := range map[string]struct {
		image, version string
		err            error
		updog          bool
		updogErr       error
		want, why      string
	}{
		"the API answers":               {newImage, "1.20.3", nil, true, nil, "2.0.0", "its Update API answers"},
		"the oldest complete API":       {oldImage, "0.4.1", nil, true, nil, "2.0.0", "its Update API answers"},
		"an older API":                  {oldImage, "0.4.0", nil, true, nil, "1.0.0", old},
		"an older API, and no updog":    {oldImage, "0.4.0", nil, false, nil, "", "it has neither an Update API nor updog"},
		"no socket":                     {oldImage, "", fmt.Errorf("dialing, %w", fs.ErrNotExist), true, nil, "1.0.0", old},
		"neither":                       {newImage, "", fs.ErrNotExist, false, nil, "", "it has neither an Update API nor updog"},
		"the API may not be asked":      {newImage, "", fs.ErrPermission, true, nil, "2.0.0", "it has an Update API"},
		"an old one may not be asked":   {oldImage, "", fs.ErrPermission, true, nil, "1.0.0", old},
		"the API does not answer":       {newImage, "", refused, true, nil, "", "the Update API does not answer: connection refused"},
		"updog can't be looked for":     {newImage, "", fs.ErrNotExist, false, fs.ErrPermission, "", "updog can't be looked for: permission denied"},
		"a version that can't be read":  {newImage, "newest", nil, true, nil, "1.0.0", old},
		"no version, and not permitted": {"Bottlerocket OS", "", fs.ErrPermission, false, nil, "", "it has neither an Update API nor updog"},
	} {
		t.Run(name, func(t *testing.T) {
			l := &Labeller{options: LabellerOptions{
				API:   func(context.Context) (string, error) { return tc.version, tc.err },
				Updog: func() (bool, error) { return tc.updog, tc.updogErr },
			}}
			if value, why := l.probe(t.Context(), tc.image); value != tc.want || !strings.Contains(why, tc.why) {
				t.Errorf("%q because %q, want %q because %q", value, why, tc.want, tc.why)
			}
		})
	}
}

func TestAtLeast(t *testing.T) {
	for version, want := range map[string]bool{
		"0.4.1": true, "v0.4.1": true, "0.4.2": true, "0.10.0": true, "1.0.0": true, "1.20.3-beta": true, "0.5.0+build": true,
		"0.4.0": false, "0.3.9": false, "": false, "1": false, "1.2": false, "1.x.0": false, "1.2.3.4": false,
	} {
		if got := atLeast(version, oldestAPI); got != want {
			t.Errorf("%q: %t, want %t", version, got, want)
		}
	}
}

// label has a labeller look after a Node until it has found something out.
func labelled(t *testing.T, config *rest.Config, image string, labels map[string]string) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	node, err := client.CoreV1().Nodes().Create(t.Context(), &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "l-", Labels: labels},
		Status:     corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{OSImage: image}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if node.Status.NodeInfo.OSImage != image {
		node.Status.NodeInfo.OSImage = image
		if node, err = client.CoreV1().Nodes().UpdateStatus(t.Context(), node, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	asked := 0
	looked := make(chan struct{})
	log := &lines{}
	for _, end := range []string{"labelled the Node", "has a label already", "not a Bottlerocket host"} {
		log.after(end, 1, func() { close(looked) })
	}
	l, err := NewLabeller(LabellerOptions{
		NodeName: node.Name, Config: config, ReadAsNode: ReadAsNodeNever, LookInterval: time.Hour, Random: func() float64 { return 0 },
		Log: slog.New(slog.NewTextHandler(log, nil)),
		API: func(context.Context) (string, error) {
			// The first time the host is not up yet.
			if asked++; asked == 1 {
				return "", errors.New("connection refused")
			}
			return "1.20.3", nil
		},
		Updog: func() (bool, error) { return true, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- l.Run(ctx) }()
	await(t, looked, "the labeller")
	events := func() []corev1.Event {
		list, err := client.CoreV1().Events(metav1.NamespaceDefault).List(t.Context(), metav1.ListOptions{
			FieldSelector: "involvedObject.name=" + node.Name + ",reason=" + labelledReason,
		})
		if err != nil {
			t.Fatal(err)
		}
		return list.Items
	}
	want, wantEvents, wantAsked := map[string]string{}, 0, 0
	maps.Copy(want, labels)
	if strings.HasPrefix(image, bottlerocket) && len(labels) == 0 {
		want["bottlerocket.aws/updater-interface-version"] = v1alpha1.InterfaceUpdateAPI
		wantEvents, wantAsked = 1, 2
		late := time.After(time.Minute)
		for len(events()) == 0 {
			select {
			case <-time.After(20 * time.Millisecond):
			case <-late:
				t.Fatal("there is no Event")
			}
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Errorf("it ends with %v", err)
	}
	after, err := client.CoreV1().Nodes().Get(t.Context(), node.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, after.Labels, cmp.Transformer("none", func(m map[string]string) map[string]string {
		if m == nil {
			return map[string]string{}
		}
		return m
	})); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	if asked != wantAsked {
		t.Errorf("the host was asked %d times, want %d", asked, wantAsked)
	}
	message := "Labelled bottlerocket.aws/updater-interface-version=2.0.0: the host is " + newImage + ", and its Update API answers"
	if got := events(); len(got) != wantEvents {
		t.Errorf("%d Events, want %d", len(got), wantEvents)
	} else if wantEvents == 1 && got[0].Message != message {
		t.Errorf("the Event says %q", got[0].Message)
	}
	if err := client.CoreV1().Nodes().Delete(t.Context(), node.Name, metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
}
