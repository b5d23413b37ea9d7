// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"fmt"
	"net"
	"net/url"
)

// Endpoint reads the URL of a cloud's API. Credentials are sent there, so it must be an https URL, or an http one of this machine.
func Endpoint(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil {
		return nil, err
	}
	ip := net.ParseIP(u.Hostname())
	loopback := u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
	if u.Host == "" || u.Scheme != "https" && (u.Scheme != "http" || !loopback) {
		return nil, fmt.Errorf("%q must be an https URL, or an http one of this machine", text)
	}
	return u, nil
}
