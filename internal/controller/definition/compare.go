// SPDX-License-Identifier: Apache-2.0

package definition

import (
	"fmt"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"moult.dev/moult/config/crd"
)

// compare says what a definition in the cluster lacks of the status in the definition that this program was built with, or returns nil.
func compare(want, have *apiextensionsv1.CustomResourceDefinition) error {
	lacks := crd.Missing(want, have, "status")
	if len(lacks) == 0 {
		return nil
	}
	return fmt.Errorf("CustomResourceDefinition %s lacks %s, so the API server drops what the operator stores there: "+
		"apply config/crd of this version of Moult, and let nothing replace it", want.Name, strings.Join(lacks, ", "))
}
