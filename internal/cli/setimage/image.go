// SPDX-License-Identifier: Apache-2.0

package setimage

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"moult.dev/moult/api/v1alpha1"
)

var (
	bareName  = regexp.MustCompile(`^[A-Za-z0-9_]([A-Za-z0-9_.-]{0,78}[A-Za-z0-9_])?$`)
	machine   = regexp.MustCompile(`^ami-[0-9a-f]+$`)
	launch    = regexp.MustCompile(`^lt-[0-9a-f]+:[0-9]+$`)
	template  = regexp.MustCompile(`^[a-z]([a-z0-9-]{0,61}[a-z0-9])?$`)
	templates = regexp.MustCompile(`(^|/)(global|regions/[a-z0-9-]+)/instanceTemplates/[a-z]([a-z0-9-]{0,61}[a-z0-9])?$`)
)

// reference is what a scale set takes as its image, of what a person calls it. An error says what it could have been.
func reference(p *v1alpha1.CloudProvider, image string) (string, error) {
	wrong := func(could string) (string, error) {
		return "", fmt.Errorf("%q names no image: it must be %s", image, could)
	}
	switch {
	case image == "":
		return "", fmt.Errorf("-imageid must say which image")
	case p.AWS != nil && !machine.MatchString(image) && !launch.MatchString(image):
		return wrong("ami-ID, or lt-ID:VERSION with the number of a version")
	case p.GCP != nil && !template.MatchString(image) && !templates.MatchString(image):
		return wrong("the name or the path of an instance template")
	case p.Azure == nil:
		return image, nil
	case strings.Contains(image, "/"):
		known := func(prefix string) bool {
			return len(image) > len(prefix) && strings.EqualFold(image[:len(prefix)], prefix)
		}
		if !slices.ContainsFunc([]string{"/subscriptions/", "/sharedGalleries/", "/communityGalleries/"}, known) {
			return wrong("a name, publisher:offer:sku:version, or an id that begins with /subscriptions/, /sharedGalleries/ or /communityGalleries/")
		}
		return image, nil
	case strings.Contains(image, ":"):
		if parts := strings.Split(image, ":"); len(parts) != 4 || slices.Contains(parts, "") {
			return wrong("publisher:offer:sku:version")
		}
		return image, nil
	case !bareName.MatchString(image):
		return wrong("a name of letters, digits, '_', '.' and '-', publisher:offer:sku:version, or an id")
	}
	return "/subscriptions/" + p.Azure.SubscriptionID + "/resourceGroups/" + p.Azure.ResourceGroup + "/providers/Microsoft.Compute/images/" + image, nil
}

// lastPart is an image's name for people: the part behind the last slash.
func lastPart(image string) string { return image[strings.LastIndex(image, "/")+1:] }
