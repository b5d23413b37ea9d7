// SPDX-License-Identifier: Apache-2.0

package gcp

import (
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strconv"

	"cloud.google.com/go/auth"
	"cloud.google.com/go/compute/metadata"
)

// tokenRefused reports whether an error says that there is no token to be had, rather than that whoever gives them does not answer.
func tokenRefused(err error) bool {
	if refused, ok := errors.AsType[*auth.Error](err); ok && refused.Response != nil {
		return definite(refused.Response.StatusCode)
	}
	if machine, ok := errors.AsType[*metadata.Error](err); ok {
		return definite(machine.Code)
	}
	if _, ok := errors.AsType[metadata.NotDefinedError](err); ok {
		return true
	}
	// Exchanges of tokens say it in words alone.
	said := exchange.FindStringSubmatch(err.Error())
	if said == nil {
		return false
	}
	status, err := strconv.Atoi(said[1])
	return err == nil && definite(status)
}

var exchange = regexp.MustCompile(`(?:credentials|impersonate): status code ([0-9]{3})`)

func definite(status int) bool {
	return status >= 400 && status < 500 && status != http.StatusTooManyRequests && status != http.StatusRequestTimeout
}

// wrap says what was tried.
func wrap(doing string, err error) error { return fmt.Errorf("%s, %w", doing, err) }
