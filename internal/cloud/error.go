// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// Kind is the kind of an error. It decides what is done about it.
type Kind string

// The kinds of errors.
const (
	// KindNotFound: there is no such scale set, or no such machine.
	KindNotFound Kind = "NotFound"
	// KindConflict: the scale set was changed meanwhile, or is being changed.
	KindConflict Kind = "Conflict"
	// KindThrottled: there were too many requests.
	KindThrottled Kind = "Throttled"
	// KindQuota: the cloud has no room, or the account no quota.
	KindQuota Kind = "Quota"
	// KindFull: the scale set is at its maximum.
	KindFull Kind = "Full"
	// KindDenied: the credentials are missing, wrong, or not enough.
	KindDenied Kind = "Denied"
	// KindInvalid: the cloud does not accept the request.
	KindInvalid Kind = "Invalid"
	// KindFailed: the operation has failed, and is over.
	KindFailed Kind = "Failed"
	// KindUnavailable: the cloud does not answer, or its answer can't be read. Every error of other packages is of this kind.
	KindUnavailable Kind = "Unavailable"
)

// Error is an error of a cloud.
type Error struct {
	Kind Kind
	// RetryAfter is how long to wait before the next request; 0 where the cloud does not say.
	RetryAfter time.Duration
	// Err is the answer.
	Err error
}

// Error implements error.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the answer.
func (e *Error) Unwrap() error { return e.Err }

// Errorf makes an error of a kind.
func Errorf(kind Kind, format string, args ...any) error {
	return &Error{Kind: kind, Err: fmt.Errorf(format, args...)}
}

// KindOf is the kind of an error: KindUnavailable for one that has none, and "" for nil.
func KindOf(err error) Kind {
	if err == nil {
		return ""
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Kind
	}
	return KindUnavailable
}

// RetryAfterSeconds reads the header Retry-After, where it counts seconds; 0 where it does not.
func RetryAfterSeconds(h http.Header) time.Duration {
	seconds, err := strconv.Atoi(h.Get("Retry-After"))
	if err != nil || seconds < 0 {
		return 0
	}
	return time.Duration(seconds) * time.Second
}

// RetryAfter is how long to wait after an error before the next request; 0 where the cloud does not say.
func RetryAfter(err error) time.Duration {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.RetryAfter
	}
	return 0
}

// NotFinal makes of an error of a question one that does not say how the operation has ended: it is asked again.
func NotFinal(err error) error {
	switch KindOf(err) {
	case KindQuota, KindFull, KindInvalid, KindDenied, KindFailed:
		return &Error{Kind: KindUnavailable, RetryAfter: RetryAfter(err), Err: err}
	case "", KindNotFound, KindConflict, KindThrottled, KindUnavailable:
	}
	return err
}
