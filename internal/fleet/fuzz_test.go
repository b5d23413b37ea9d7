// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	clocktesting "k8s.io/utils/clock/testing"

	"moult.dev/moult/api/v1alpha1"
)

// FuzzWholeName finds patterns that match a part of an alert's name.
func FuzzWholeName(f *testing.F) {
	f.Add("Watchdog|Info.*", "InfoInhibitor")
	f.Add("(?m)^a$", "a\nb")
	f.Add("a)|(?:b", "xb")
	f.Add(`\Qa`, "a")
	f.Add("(?i:A{1,1000})|", "")
	f.Fuzz(func(t *testing.T, expression, name string) {
		re, err := wholeName(expression)
		if err != nil || re == nil {
			return
		}
		if at := re.FindStringIndex(name); at != nil && (at[0] != 0 || at[1] != len(name)) {
			t.Errorf("%q matches %v of %q", expression, at, name)
		}
		if part, err := regexp.Compile(expression); err != nil || re.MatchString(name) && !part.MatchString(name) {
			t.Errorf("%q matches %q only as a whole, %v", expression, name, err)
		}
	})
}

type answering string

func (a answering) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{
		StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(string(a))), Header: http.Header{"Content-Type": {"application/json"}}, Request: r,
	}, nil
}

// FuzzPrometheus finds answers that open the gate although they are not valid, or close it with a long message.
func FuzzPrometheus(f *testing.F) {
	for _, answer := range []string{
		vector(), vector(sample("A", "firing", "1"), sample("B", "pending", "0")), vector(sample(strings.Repeat("é", 9000), "firing", "NaN")), `{"status":"success"}`,
		`{"status":"success","data":{"resultType":"scalar","result":[1,"1"]}}`, `{"status":"error","error":"` + strings.Repeat("x", 9000) + `"}`, "null", "", "<html>",
		`{"status":"success","warnings":["w"],"data":{"resultType":"vector","result":[]}}`, `{"status":"success","data":{"resultType":"vector","result":null}}`,
	} {
		f.Add(answer)
	}
	clk := clocktesting.NewFakePassiveClock(time.Unix(1_700_000_000, 0))
	f.Fuzz(func(t *testing.T, answer string) {
		p, err := newPoller(newGates(clk, nil, func() {}), &v1alpha1.AlertsGate{})
		if err != nil {
			t.Fatal(err)
		}
		if p.server, err = newPrometheus("http://prometheus", &http.Client{Transport: answering(answer)}); err != nil {
			t.Fatal(err)
		}
		p.query(t.Context())
		closed, _ := p.judge()
		// The library also reads an answer without a status. The form of the result tells whether it is one.
		if (p.failed || len(p.active) > 0) != (closed.Gate != "") || !p.failed && !strings.Contains(answer, `"vector"`) {
			t.Errorf("%v, %q: %+v", p.active, p.failure, closed)
		}
		if utf8.RuneCountInString(closed.Message) > (named+1)*(longest+50) {
			t.Errorf("a message of %d characters", utf8.RuneCountInString(closed.Message))
		}
	})
}

// FuzzCredentials finds Secrets that are accepted for another server, and errors that show a part of one.
func FuzzCredentials(f *testing.F) {
	f.Add("https://prometheus:9090/", "https://Prometheus:9090/base", "t", "", "", "")
	f.Add("https://prometheus@other", "https://prometheus", "", "u", "p", "x")
	f.Add("https://[::1%25eth0]:1", "https://[::1]:1", "a\nb", "", "p", "-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----")
	f.Add("//prometheus", "https:prometheus", " ", "", "", "")
	f.Fuzz(func(t *testing.T, meant, address, token, username, password, ca string) {
		const marker = "\x01"
		mark := func(text string) []byte {
			if text == "" {
				return nil
			}
			return []byte(marker + text)
		}
		c, err := newCredentials(map[string][]byte{
			"url": []byte(meant), "token": mark(token), "username": mark(username), "password": mark(password), "ca.crt": mark(ca),
		}, address)
		if err != nil {
			if strings.Contains(err.Error(), marker) && !strings.Contains(address, marker) {
				t.Error(err)
			}
			return
		}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
		if err != nil {
			t.Fatal(err)
		}
		if to, err := r.URL.Parse(strings.TrimSpace(meant)); err != nil || to.Scheme != "https" || to.Host == "" || r.URL.Scheme != "https" ||
			!strings.EqualFold(to.Host, r.URL.Host) {
			t.Errorf("what is for %q is sent to %q", meant, r.URL)
		}
		if (c.token != "") == (c.username != "") && c.roots == nil {
			t.Errorf("%q and %q are used", c.token, c.username)
		}
	})
}
