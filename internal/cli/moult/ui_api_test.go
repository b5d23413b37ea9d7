// SPDX-License-Identifier: Apache-2.0

package moult

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/clock"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
)

// The page that ui names shows a Plan that is created later, only by its own name, and until it is interrupted.
func showPages(b *bench) {
	ctx, interrupt := context.WithCancel(b.t.Context())
	defer interrupt()
	out, written := io.Pipe()
	ui := NewCommand(clock.RealClock{}, genericiooptions.IOStreams{Out: written, ErrOut: io.Discard}, b)
	ui.SetArgs([]string{"ui", "--port=0", "--browser=false"})
	ended := make(chan error, 1)
	go func() { ended <- ui.ExecuteContext(ctx) }()
	var address string
	if _, err := fmt.Fscanf(out, "The page is at %s until Ctrl-C.", &address); err != nil {
		b.t.Fatal(err)
	}
	go func() { _, _ = io.Copy(io.Discard, out) }()
	get := func(host string) (int, string) {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
		if err != nil {
			b.t.Fatal(err)
		}
		r.Host = host
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			return 0, err.Error()
		}
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		return answer.StatusCode, fmt.Sprint(string(body), err)
	}
	shows := func(text string) {
		b.t.Helper()
		last := ""
		if err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, 5*time.Minute, true, func(context.Context) (bool, error) {
			_, last = get("")
			return strings.Contains(last, text), nil
		}); err != nil {
			b.t.Fatalf("%v: %s", err, last)
		}
	}
	shows("<h1>Fleet</h1>")
	plan := &upgradev1.Plan{ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: "shown"}}
	plan.Spec = upgradev1.PlanSpec{Concurrency: 1, Version: "v1", NodeSelector: &metav1.LabelSelector{}, Upgrade: &upgradev1.ContainerSpec{Image: "i"}}
	b.create(plan)
	shows("Plan " + b.namespace + "/shown</a>")
	if code, body := get("example.com"); code != http.StatusMisdirectedRequest {
		b.t.Errorf("by another name: %d, %s", code, body)
	}
	interrupt()
	if err := <-ended; err != nil {
		b.t.Error(err)
	}
}
