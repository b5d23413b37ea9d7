// SPDX-License-Identifier: Apache-2.0

// Package outbound sends the requests that users' objects cause: to channels of Plans, and to Prometheus. Who may write such an object must not
// reach through the operator what only the operator can reach.
package outbound

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"time"
)

const (
	// maxAnswer limits an answer, in bytes.
	maxAnswer = 2 << 20
	// maxMoves limits how often a request follows a redirect.
	maxMoves   = 5
	dialWithin = 10 * time.Second
)

// NewTransport returns a transport whose answers have at most 2 MiB. Unless local is true, it connects to no address of the machine itself, of its
// link, or of a cloud's metadata service.
func NewTransport(local bool) *Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	d := &net.Dialer{Timeout: dialWithin}
	if !local {
		d.Control = refuseLocal
	}
	t.DialContext = d.DialContext
	return &Transport{t}
}

// Transport is made by NewTransport.
type Transport struct{ http *http.Transport }

// Trusting returns a transport that trusts the certificates of these authorities alone.
func (t *Transport) Trusting(roots *x509.CertPool) *Transport {
	trusting := t.http.Clone()
	trusting.TLSClientConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	return &Transport{trusting}
}

// metadata are addresses of clouds' metadata services that are not link-local: of AWS, Google, Scaleway, Azure and Alibaba.
var metadata = []netip.Prefix{
	netip.MustParsePrefix("fd00:ec2::/32"), netip.MustParsePrefix("fd20:ce::/32"), netip.MustParsePrefix("fd00:42::42/128"),
	netip.MustParsePrefix("168.63.129.16/32"), netip.MustParsePrefix("100.100.100.200/32"),
}

// nat64 are addresses that lead to the IPv4 address at their end.
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

// ErrLocal is why no connection is made to an address.
var ErrLocal = errors.New("local, or a cloud's metadata service: it needs the operator's flag --allow-local-addresses")

// refuseLocal is called with the address that a name was resolved to.
func refuseLocal(_, address string, _ syscall.RawConn) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("reading the address, %w", err)
	}
	a := to.Addr().Unmap().WithZone("")
	if b := a.As16(); nat64.Contains(a) {
		a = netip.AddrFrom4([4]byte(b[12:]))
	}
	if a.IsGlobalUnicast() && !slices.ContainsFunc(metadata, func(p netip.Prefix) bool { return p.Contains(a) }) {
		return nil
	}
	return fmt.Errorf("address %s is %w", a, ErrLocal)
}

// RoundTrip implements http.RoundTripper.
func (t *Transport) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := t.http.RoundTrip(request)
	if err == nil {
		response.Body = &boundedBody{ReadCloser: response.Body, left: maxAnswer}
	}
	return response, err
}

type boundedBody struct {
	io.ReadCloser
	left int
}

// Read fails after maxAnswer bytes.
func (b *boundedBody) Read(into []byte) (int, error) {
	n, err := b.ReadCloser.Read(into)
	if b.left -= n; b.left < 0 {
		return 0, fmt.Errorf("the answer is larger than %d MiB", maxAnswer>>20)
	}
	return n, err
}

// SameHost is an http.Client's CheckRedirect: it follows redirects within one host, a few times.
func SameHost(next *http.Request, before []*http.Request) error {
	switch from := before[0].URL; {
	case len(before) >= maxMoves:
		return fmt.Errorf("it has moved %d times", len(before))
	case !strings.EqualFold(next.URL.Hostname(), from.Hostname()), next.URL.Scheme != from.Scheme && next.URL.Scheme != "https":
		return fmt.Errorf("it has moved to another host, %s, which is not followed", Redacted(next.URL))
	}
	return nil
}

// NoRedirect is an http.Client's CheckRedirect: it follows none, so that credentials reach the address that they are meant for alone.
func NoRedirect(next *http.Request, _ []*http.Request) error {
	return fmt.Errorf("it has moved to %s, which is not followed with credentials", Redacted(next.URL))
}

// Redacted is a URL without credentials, query and fragment: these may be secret.
func Redacted(u *url.URL) string {
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
}
