// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/prometheus/client_golang/api"
	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"
)

func newPrometheus(address string, client *http.Client) (promv1.API, error) {
	c, err := api.NewClient(api.Config{Address: address, Client: client})
	if err != nil {
		return nil, fmt.Errorf("reading the URL, %w", cause(err))
	}
	return promv1.NewAPI(c), nil
}

// pendingAndFiring returns a series for each pending or firing alert: ALERTS, which every compatible store has.
func pendingAndFiring(ctx context.Context, server promv1.API) (model.Vector, error) {
	value, warnings, _, err := server.Query(ctx, "ALERTS", time.Time{})
	switch {
	case err != nil:
		return nil, cause(err)
	case len(warnings) > 0:
		return nil, fmt.Errorf("the answer may not be complete: %s", warnings[0])
	}
	series, ok := value.(model.Vector)
	if !ok {
		return nil, errors.New("the answer is not a list of series")
	}
	return series, nil
}

// cause returns why a request failed, without parts that differ each time, such as the local port.
func cause(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return errors.New("the query timed out")
	}
	if inner, ok := errors.AsType[*url.Error](err); ok {
		err = inner.Err
	}
	if inner, ok := errors.AsType[*net.OpError](err); ok && inner.Addr != nil {
		return fmt.Errorf("%s %s: %w", inner.Op, inner.Addr, inner.Err)
	}
	return err
}
