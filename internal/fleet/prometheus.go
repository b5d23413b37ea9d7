// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/api"
	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"
)

// maxAnswer limits an answer, in bytes: ten thousand alerts fit.
const maxAnswer = 16 << 20

// alert is a pending or firing alert.
type alert struct {
	name   string
	firing bool
}

func newPrometheus(address string) (promv1.API, error) {
	c, err := api.NewClient(api.Config{Address: address, RoundTripper: bounded{api.DefaultRoundTripper}})
	if err != nil {
		return nil, fmt.Errorf("reading the URL, %w", cause(err))
	}
	return promv1.NewAPI(c), nil
}

// bounded limits the size of an answer to maxAnswer.
type bounded struct{ next http.RoundTripper }

func (b bounded) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := b.next.RoundTrip(request)
	if err == nil {
		response.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(response.Body, maxAnswer), response.Body}
	}
	return response, err
}

// pendingAndFiring returns the pending and firing alerts. It queries the series ALERTS, which every compatible store has. If the
// server has no queries, it reads the list of alerts.
func pendingAndFiring(ctx context.Context, server promv1.API) ([]alert, error) {
	value, warnings, _, err := server.Query(ctx, "ALERTS", time.Time{})
	switch {
	case isNotFound(err):
		return listed(ctx, server)
	case err != nil:
		return nil, cause(err)
	case len(warnings) > 0:
		return nil, fmt.Errorf("the answer may not be complete: %s", warnings[0])
	}
	series, ok := value.(model.Vector)
	if !ok {
		return nil, errors.New("the answer is not a list of series")
	}
	var all []alert
	for _, s := range series {
		if s.Value != 0 {
			all = append(all, alert{string(s.Metric[model.AlertNameLabel]), s.Metric["alertstate"] == "firing"})
		}
	}
	return all, nil
}

func listed(ctx context.Context, server promv1.API) ([]alert, error) {
	result, err := server.Alerts(ctx)
	if err != nil {
		return nil, cause(err)
	}
	if result.Alerts == nil {
		return nil, errors.New("the answer has no list of alerts")
	}
	var all []alert
	for _, a := range result.Alerts {
		if a.State != promv1.AlertStateInactive {
			all = append(all, alert{string(a.Labels[model.AlertNameLabel]), a.State == promv1.AlertStateFiring})
		}
	}
	return all, nil
}

// isNotFound reports whether the server does not have the endpoint.
func isNotFound(err error) bool {
	e, ok := errors.AsType[*promv1.Error](err)
	return ok && e.Type == promv1.ErrClient && strings.HasSuffix(e.Msg, strconv.Itoa(http.StatusNotFound))
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
