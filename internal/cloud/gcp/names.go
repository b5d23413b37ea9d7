// SPDX-License-Identifier: Apache-2.0

package gcp

import (
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/google/uuid"
)

// group is a managed instance group: where it is, and its name.
type group struct {
	regional       bool
	location, name string
}

// String is the name that ScaleSet takes.
func (g group) String() string {
	if g.regional {
		return "regions/" + g.location + "/" + g.name
	}
	return "zones/" + g.location + "/" + g.name
}

// groupOf reads a name with a location.
func groupOf(name string) (group, bool) {
	parts := strings.Split(name, "/")
	if len(parts) != 3 || parts[1] == "" || parts[2] == "" || parts[0] != "zones" && parts[0] != "regions" {
		return group{}, false
	}
	return group{regional: parts[0] == "regions", location: parts[1], name: parts[2]}, true
}

// groupFromMetadata reads the metadata created-by of a machine: projects/NUMBER/zones/ZONE/instanceGroupManagers/NAME.
func groupFromMetadata(metadata string) (group, bool) {
	parts := strings.Split(metadata, "/")
	if n := len(parts); n >= 4 && parts[n-2] == "instanceGroupManagers" {
		return groupOf(parts[n-4] + "/" + parts[n-3] + "/" + parts[n-1])
	}
	return group{}, false
}

// zoneName is a zone's name, also that of an AI zone such as us-central1-ai1a.
var zoneName = regexp.MustCompile(`^[a-z]+-[a-z]+[0-9]+-(ai[0-9]+)?[a-z]$`)

// machineID is how a machine is named here, and in requests.
func machineID(zone, name string) string { return "zones/" + zone + "/instances/" + name }

// machineOf reads a machineID, or a URL that ends in one.
func machineOf(link string) (zone, name string, ok bool) {
	parts := strings.Split(link, "/")
	n := len(parts)
	if n < 4 || parts[n-4] != "zones" || parts[n-2] != "instances" || parts[n-3] == "" || parts[n-1] == "" {
		return "", "", false
	}
	return parts[n-3], parts[n-1], true
}

// machineOfProviderID reads a providerID of this project.
func (c *Cloud) machineOfProviderID(id string) (zone, name string, ok bool) {
	rest, ok := strings.CutPrefix(id, "gce://")
	if !ok {
		return "", "", false
	}
	parts := strings.Split(rest, "/")
	if len(parts) != 3 || parts[0] != c.project || parts[1] == "" || parts[2] == "" {
		return "", "", false
	}
	return parts[1], parts[2], true
}

// requestID is the id of a request, the same for each repetition.
func requestID(parts ...string) string {
	return uuid.NewSHA1(uuid.NameSpaceURL, []byte("https://moult.dev/operations/"+strings.Join(parts, "/"))).String()
}

// sequence is the end of a base name that is a pattern for numbers.
var sequence = regexp.MustCompile(`-#+(\[[0-9]*\])?$`)

var letters = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// newNames makes the names of n machines from a token: the same names each time, and other names for another token.
func newNames(base, token string, n int) []string {
	const longest = 63 - 11
	base = sequence.ReplaceAllString(base, "")
	if len(base) > longest {
		base = base[:longest]
	}
	sum := sha256.Sum256([]byte(token))
	mark := letters.EncodeToString(sum[:5])
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("%s-%s%02s", strings.TrimRight(base, "-"), mark, strconv.FormatInt(int64(i), 36))
	}
	return names
}
