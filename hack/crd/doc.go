// SPDX-License-Identifier: Apache-2.0

// Package crd finishes the CustomResourceDefinitions of kinds that carry Kubernetes' own types, of a whole pod for instance.
// controller-gen has no marker for this:
//
//   - Below spec.template descriptions go: with them a definition is larger than what `kubectl apply` can keep in its annotation.
//   - There defaults go, too, but those that ExtendedDaemonSet's definitions have at the same place: a default that comes in later
//     changes templates, and with them the revision of fleets that run.
//   - The template's metadata gets all fields that ExtendedDaemonSet's definitions have, creationTimestamp: null with them.
//   - What Go could not read back is refused, anywhere. One object with, say, a port of 99999999999 would keep the operator from
//     seeing any.
package crd
