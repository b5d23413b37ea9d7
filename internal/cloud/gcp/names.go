// SPDX-License-Identifier: Apache-2.0

package gcp

import (
	"crypto/sha256"
	"fmt"
	"regexp"
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

var (
	groupName = regexp.MustCompile(`^(zones|regions)/([^/]+)/([^/]+)$`)
	// groupPath is the metadata created-by of a machine: projects/NUMBER/zones/ZONE/instanceGroupManagers/NAME.
	groupPath = regexp.MustCompile(`/(zones|regions)/([^/]+)/instanceGroupManagers/([^/]+)$`)
	// machinePath is the end of a machine's URL.
	machinePath = regexp.MustCompile(`(?:^|/)zones/([^/]+)/instances/([^/]+)$`)
	// machineProviderID has the project, zone and name of a machine. The API refuses other zones and names.
	machineProviderID = regexp.MustCompile(`^gce://([^/]+)/([a-z0-9-]{1,63})/([a-z0-9-]{1,63})$`)
)

// groupOf reads the name of a group in one of two forms, groupName and groupPath.
func groupOf(name string, form *regexp.Regexp) (g group, ok bool) {
	match := form.FindStringSubmatch(name)
	if match == nil {
		return group{}, false
	}
	return group{regional: match[1] == "regions", location: match[2], name: match[3]}, true
}

// template is an instance template's URL without the part that says which server has it: projects/P/global/instanceTemplates/T.
func (c *Cloud) template(link string) string {
	_, path, ok := strings.Cut("/"+link, "/projects/")
	switch {
	case ok:
		return "projects/" + path
	case strings.HasPrefix(link, "global/"), strings.HasPrefix(link, "regions/"):
		return "projects/" + c.project + "/" + link
	case link != "" && !strings.Contains(link, "/"):
		return "projects/" + c.project + "/global/instanceTemplates/" + link
	}
	return link
}

// templateName is the name of an instance template.
var templateName = regexp.MustCompile(`^projects/[a-z0-9.:-]+/(global|regions/[a-z0-9-]+)/instanceTemplates/[A-Za-z0-9._-]+$`)

// machine is where a machine is, and its name.
type machine struct{ zone, name string }

// String is the ID of a machine, as in requests.
func (m machine) String() string { return "zones/" + m.zone + "/instances/" + m.name }

// machineOf reads the ID of a machine, or a URL that ends in one. It is false for a machine that has no zone yet.
func machineOf(link string) (m machine, ok bool) {
	match := machinePath.FindStringSubmatch(link)
	if match == nil {
		return machine{}, false
	}
	return machine{match[1], match[2]}, true
}

// requestID is the id of a request, the same for each repetition.
func requestID(parts ...string) string {
	return uuid.NewSHA1(uuid.NameSpaceURL, []byte("https://moult.dev/operations/"+strings.Join(parts, "/"))).String()
}

// sequence is the end of a base name that is a pattern for numbers.
var sequence = regexp.MustCompile(`-#+(\[[0-9]*\])?$`)

// newNames makes the names of n machines from a token: the same names each time, and other names for another token.
func newNames(base, token string, n int) []string {
	const longest = 63 - 13
	base = sequence.ReplaceAllString(base, "")
	base = strings.TrimRight(base[:min(len(base), longest)], "-")
	sum := sha256.Sum256([]byte(token))
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("%s-%x%02d", base, sum[:5], i)
	}
	return names
}
