// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternal "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"moult.dev/moult/api/v1alpha1"
)

// LabellerOptions are what a Labeller needs.
type LabellerOptions struct {
	// NodeName is the name of the labeller's own Node.
	NodeName string
	// Config is how the API server is reached.
	Config *rest.Config
	// ReadAsNode says as whom the Node is read. Default ReadAsNodeAuto.
	ReadAsNode ReadAsNode
	// API asks the host's Update API for the version that the host runs. An error that is fs.ErrNotExist says that there is no socket,
	// one that is fs.ErrPermission that there is one which may not be asked.
	API func(ctx context.Context) (string, error)
	// Updog reports whether the host has updog.
	Updog func() (bool, error)
	// LookInterval is how long to wait before the next look where there was nothing to do, up to a fifth more or less at random.
	// Default 30m.
	LookInterval time.Duration
	// Clock is the clock. Default the real one.
	Clock clock.Clock
	// Random gives numbers from 0 up to 1. Default those of math/rand.
	Random func() float64
	// Log gets a line when something is found out. Default none.
	Log *slog.Logger
}

// Labeller puts the label on its own Node that names the interface of a Bottlerocket host, where there is none.
type Labeller struct {
	options LabellerOptions
	log     *slog.Logger
	ways    []*rest.RESTClient
	own     *rest.RESTClient
	writes  *writer
	// first is the index of the way of reading that worked.
	first int
	// heard is what the log was told last.
	heard string
}

// firstLook is within how long after the start the first look is.
const firstLook = 10 * time.Second

// bottlerocket begins the name of the operating system on Bottlerocket hosts, as kubelets say it: "Bottlerocket OS 1.20.3 (aws-k8s-1.30)".
const bottlerocket = "Bottlerocket OS "

// oldestAPI is the version of Bottlerocket from which on the Update API is known to be complete.
var oldestAPI = version.MustParseSemantic("0.4.1")

// NewLabeller makes a labeller. It fails without a name of the Node, and where Config or ReadAsNode is of no use.
func NewLabeller(o LabellerOptions) (*Labeller, error) {
	if o.NodeName == "" {
		return nil, errors.New("the name of the Node is not given")
	}
	o.LookInterval = cmp.Or(o.LookInterval, DefaultCheckInterval)
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.Random == nil {
		o.Random = rand.Float64
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	l := &Labeller{options: o, log: o.Log.With("node", o.NodeName)}
	config := limited(o.Config)
	configs, err := o.ReadAsNode.configs(config, o.NodeName)
	if err != nil {
		return nil, err
	}
	for _, c := range append(configs, config) {
		c = rest.CopyConfig(c)
		c.NegotiatedSerializer = metainternal.Codecs.WithoutConversion()
		client, err := rest.UnversionedRESTClientFor(c)
		if err != nil {
			return nil, fmt.Errorf("making a client, %w", err)
		}
		l.ways = append(l.ways, client)
	}
	l.ways, l.own = l.ways[:len(configs)], l.ways[len(configs)]
	if l.writes, err = newWriter(config, o.NodeName); err != nil {
		return nil, err
	}
	return l, nil
}

// Run looks after the Node until the context ends, and then returns nil.
func (l *Labeller) Run(ctx context.Context) error {
	asking := apiBackoff()
	probing := backoff{first: 10 * time.Second, most: l.options.LookInterval}
	wait := time.Duration(l.options.Random() * float64(firstLook))
	for sleep(ctx, l.options.Clock, wait) {
		settled, err := l.look(ctx)
		switch {
		case ctx.Err() != nil:
		case err != nil:
			wait = asking.next(l.options.Random)
			l.log.Warn("the Node can't be looked after", "error", err, "again", wait.Round(time.Millisecond))
			continue
		case settled:
			probing.reset()
			wait = spread(l.options.LookInterval, checkShare, l.options.Random)
		default:
			wait = probing.next(l.options.Random)
		}
		asking.reset()
	}
	return nil
}

// look labels the Node if it is to be labelled. It returns false if the host could not tell what it is.
func (l *Labeller) look(ctx context.Context) (bool, error) {
	n, err := l.read(ctx)
	if err != nil {
		return false, err
	}
	if n == nil {
		l.say("there is no such Node")
		return true, nil
	}
	if p, value, ok := v1alpha1.HostProtocolOf(n.Metadata.Labels); ok {
		l.say("the Node has a label already", "label", p.InterfaceLabel, "value", value)
		return true, nil
	}
	image := n.Status.NodeInfo.OSImage
	if !strings.HasPrefix(image, bottlerocket) {
		l.say("the host is not a Bottlerocket host", "osImage", image)
		return true, nil
	}
	value, why := l.probe(ctx, image)
	if value == "" {
		l.say("the interface of the host is not known", "osImage", image, "because", why)
		return false, nil
	}
	label := v1alpha1.HostProtocols[0].InterfaceLabel
	s := &said{meta: &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{ResourceVersion: n.Metadata.ResourceVersion}}}
	body, err := s.patch(words{labels: map[string]*string{label: &value}})
	if err != nil {
		return false, err
	}
	if _, err := l.writes.patch(ctx, body); err != nil {
		return false, err
	}
	l.say("labelled the Node", "label", label, "value", value, "osImage", image, "because", why)
	if err := l.event(ctx, fmt.Sprintf("Labelled %s=%s: the host is %s, and %s", label, value, image, why)); err != nil {
		l.log.Info("no Event could be made", "error", err)
	}
	return true, nil
}

// probe finds out by which interface the host is reached, and why; it returns no interface if that can't be told now.
func (l *Labeller) probe(ctx context.Context, image string) (value, why string) {
	timed, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	runs, err := l.options.API(timed)
	switch {
	case err == nil && atLeast(runs, oldestAPI):
		return v1alpha1.InterfaceUpdateAPI, "its Update API answers"
	case errors.Is(err, fs.ErrPermission):
		// Only an agent of the right SELinux type may ask.
		if runs, _, _ = strings.Cut(strings.TrimPrefix(image, bottlerocket), " "); atLeast(runs, oldestAPI) {
			return v1alpha1.InterfaceUpdateAPI, "it has an Update API"
		}
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return "", fmt.Sprintf("the Update API does not answer: %v", err)
	}
	there, err := l.options.Updog()
	switch {
	case err != nil:
		return "", fmt.Sprintf("updog can't be looked for: %v", err)
	case there:
		return v1alpha1.InterfaceUpdog, "it has updog and no Update API that can be used"
	}
	return "", "it has neither an Update API nor updog"
}

// atLeast reports whether a version such as "v1.20.3" is that one or a later one. What can't be read is not.
func atLeast(text string, least *version.Version) bool {
	v, err := version.ParseSemantic(text)
	return err == nil && v.AtLeast(least)
}

// say logs what is found out, once.
func (l *Labeller) say(what string, args ...any) {
	if text := fmt.Sprint(append([]any{what}, args...)...); text != l.heard {
		l.heard = text
		l.log.Info(what, args...)
	}
}

// osNode is what a labeller looks at of a Node.
type osNode struct {
	Metadata struct {
		ResourceVersion string            `json:"resourceVersion"`
		Labels          map[string]string `json:"labels"`
	} `json:"metadata"`
	Status struct {
		NodeInfo struct {
			OSImage string `json:"osImage"`
		} `json:"nodeInfo"`
	} `json:"status"`
}

// read reads the Node, nil when there is none, in one way or the other.
func (l *Labeller) read(ctx context.Context) (*osNode, error) {
	var refused error
	for i := range l.ways {
		way := (l.first + i) % len(l.ways)
		timed, cancel := context.WithTimeout(ctx, requestTimeout)
		raw, err := l.ways[way].Get().AbsPath("/api/v1/nodes/"+l.options.NodeName).SetHeader("Accept", "application/json").Do(timed).Raw()
		cancel()
		switch {
		case apierrors.IsNotFound(err):
			return nil, nil
		case apierrors.IsForbidden(err):
			refused = errors.Join(refused, err)
			continue
		case err != nil:
			return nil, fmt.Errorf("reading node %s, %w", l.options.NodeName, err)
		}
		l.first = way
		n := &osNode{}
		if err := json.Unmarshal(raw, n); err != nil {
			return nil, fmt.Errorf("reading node %s, %w", l.options.NodeName, err)
		}
		return n, nil
	}
	l.first = 0
	return nil, fmt.Errorf("reading node %s, %w", l.options.NodeName, refused)
}

// labelledReason is the reason of the labeller's Event.
const labelledReason = "HostInterfaceLabelled"

// event makes an Event about the Node. Like the kubelet's own it bears the Node's name as uid, by which kubectl describe finds it.
func (l *Labeller) event(ctx context.Context, message string) error {
	now := l.options.Clock.Now().UTC().Format(time.RFC3339)
	name := l.options.NodeName
	body, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Event",
		"metadata":       map[string]any{"generateName": name + ".", "namespace": metav1.NamespaceDefault},
		"involvedObject": map[string]any{"apiVersion": "v1", "kind": "Node", "name": name, "uid": name},
		"type":           "Normal", "reason": labelledReason, "message": message,
		"source": map[string]any{"component": "moult-labeller", "host": name}, "firstTimestamp": now, "lastTimestamp": now, "count": 1,
		"reportingComponent": "moult-labeller", "reportingInstance": name,
	})
	if err != nil {
		return err
	}
	timed, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return l.own.Post().AbsPath("/api/v1/namespaces/"+metav1.NamespaceDefault+"/events").SetHeader("Content-Type", "application/json").
		SetHeader("Accept", "application/json").Body(body).Do(timed).Error()
}
