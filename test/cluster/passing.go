// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// Passing reports whether an error of a request to the API server is the moment's, and says nothing about what was asked for.
func Passing(err error) bool {
	for _, is := range []func(error) bool{
		apierrors.IsConflict, apierrors.IsTimeout, apierrors.IsServerTimeout, apierrors.IsInternalError, apierrors.IsTooManyRequests,
		apierrors.IsServiceUnavailable, utilnet.IsConnectionReset, utilnet.IsConnectionRefused, utilnet.IsHTTP2ConnectionLost,
		utilnet.IsProbableEOF, utilnet.IsTimeout,
	} {
		if is(err) {
			return true
		}
	}
	return false
}
