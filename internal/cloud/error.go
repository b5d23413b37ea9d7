// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Kind is the kind of an error. It decides how callers handle it.
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

// KindOf is the kind of an error: KindUnavailable for an error of other packages, and "" for nil.
func KindOf(err error) Kind {
	if err == nil {
		return ""
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Kind
	}
	return KindUnavailable
}

// RetryAfterSeconds reads the header Retry-After in seconds, at most an hour; 0 if it has another form.
func RetryAfterSeconds(h http.Header) time.Duration {
	seconds, err := strconv.Atoi(h.Get("Retry-After"))
	if err != nil || seconds < 0 {
		return 0
	}
	return time.Duration(min(seconds, 3600)) * time.Second
}

// RetryAfter is how long to wait after an error before the next request; 0 where the cloud does not say.
func RetryAfter(err error) time.Duration {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.RetryAfter
	}
	return 0
}

// IgnoreNotFound returns nil for an error of KindNotFound, and any other error unchanged.
func IgnoreNotFound(err error) error {
	if KindOf(err) == KindNotFound {
		return nil
	}
	return err
}

// ends reports whether Poll ends an operation with an error of this kind.
func (k Kind) ends() bool {
	return slices.Contains([]Kind{KindQuota, KindFull, KindInvalid, KindDenied, KindFailed}, k)
}

// Rule gives a kind to answers whose text matches. The text is code and message.
type Rule struct {
	Text *regexp.Regexp
	Kind Kind
}

// KindOfAnswer is the kind of the first rule that matches, or else otherwise.
func KindOfAnswer(rules []Rule, text string, otherwise Kind) Kind {
	for _, r := range rules {
		if r.Text.MatchString(text) {
			return r.Kind
		}
	}
	return otherwise
}

// CodeAndMessage is the text of an answer.
func CodeAndMessage(code, message string) string {
	return strings.TrimSuffix(code+": "+message, ": ")
}

// FromAnswer makes an error of an answer that refuses. Status 429 is KindThrottled. Else the first rule for its text decides, then its status.
func FromAnswer(doing string, status int, header http.Header, text string, rules []Rule) *Error {
	e := &Error{Kind: KindOfStatus(status), RetryAfter: RetryAfterSeconds(header), Err: fmt.Errorf("%s, %s", doing, text)}
	if e.Kind != KindThrottled {
		e.Kind = KindOfAnswer(rules, text, e.Kind)
	}
	return e
}

// KindOfStatus is the kind of an answer by its HTTP status alone.
func KindOfStatus(status int) Kind {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden:
		return KindDenied
	case http.StatusNotFound, http.StatusGone:
		return KindNotFound
	case http.StatusConflict, http.StatusPreconditionFailed:
		return KindConflict
	case http.StatusTooManyRequests:
		return KindThrottled
	case http.StatusRequestTimeout:
		return KindUnavailable
	}
	if status >= http.StatusBadRequest && status < http.StatusInternalServerError {
		return KindInvalid
	}
	return KindUnavailable
}
