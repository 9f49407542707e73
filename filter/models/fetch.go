package models

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/header"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/loopback"
)

const (
	fetchTimeout = 3 * time.Second  // for one list
	fresh        = 10 * time.Second // how long an engine's answer is used, and at most its failure
	maxListBytes = 4 << 20
)

// conditional are the headers by which a client asks for less than a whole list
// if it has one already.
var conditional = []string{"if-match", "if-none-match", "if-modified-since", "if-unmodified-since", "if-range", "range"}

// upstreamModels is the list of the upstream for other models.
type upstreamModels struct {
	list    gjson.Result
	failed  bool // there is an upstream, and it has not returned its models
	answers bool // its answer is for the client as it is
}

var errNoList = errors.New("the answer is not a list of models")

// askUpstream asks the upstream for other models, through the loopback listener:
// with the client's own headers, its credentials among them, which the upstream may
// reject. Other failures are no reason to withhold the models of the engines.
func (d *Directory) askUpstream(ctx context.Context, r *api.HTTPRequest, query url.Values) upstreamModels {
	target := path
	if len(query) > 0 {
		target += "?" + query.Encode()
	}

	// The list is put together: that the client has the upstream's part says nothing of it.
	head := r.Header.Clone()
	for _, name := range conditional {
		head.Del(name)
	}

	status, list, err := d.get(ctx, head, target)
	var m upstreamModels
	switch {
	case err == nil:
		m.list = list
	case status == http.StatusNotFound: // it has no models, or there is no upstream
		err = nil
	case status == http.StatusUnauthorized, status == http.StatusForbidden, errors.Is(err, errNoList),
		errors.Is(err, loopback.ErrTooLarge):
		m.answers, err = true, nil
	default:
		m.failed = true
	}

	if ctx.Err() == nil { // else the client has left
		logChange(d.o.Log, "upstream", d.upstream, err)
	}
	return m
}

// engineList is what an engine has reported of its models. It is asked once for
// all who want to know.
type engineList struct {
	mu      sync.Mutex
	until   time.Time // it is asked again
	answer  *engineAnswer
	fails   atomic.Bool
	lengths atomic.Pointer[modelLengths] // of the last list
}

// modelLengths are the models of an engine's list in its order, with their context
// lengths; 0: not reported.
type modelLengths []modelLength

type modelLength struct {
	id     string
	length int
}

// length is the context length of a model; 0 if it is not known. A model that is not
// in the list has the length that all Harmony models of the list have, or all models
// if none is Harmony's by its name.
func (e *engineList) length(model string, harmony func(id string) bool) int {
	lengths := e.lengths.Load()
	if lengths == nil {
		return 0
	}
	for _, m := range *lengths {
		if m.id == model {
			return m.length
		}
	}

	// Engines that serve one model take any name for it.
	if length, found := lengths.common(harmony); found {
		return length
	}
	length, _ := lengths.common(func(string) bool { return true })
	return length
}

// common is the context length that all wanted models have, 0 if they differ. found
// reports whether there is such a model.
func (l modelLengths) common(wanted func(id string) bool) (length int, found bool) {
	for _, m := range l {
		switch {
		case !wanted(m.id):
		case found && m.length != length:
			return 0, true
		default:
			length, found = m.length, true
		}
	}
	return length, found
}

// keepLengths keeps the context lengths of a list. vLLM and SGLang add
// max_model_len to OpenAI's fields.
func (e *engineList) keepLengths(data gjson.Result) {
	var lengths modelLengths
	for m := range jsontext.List(data) {
		id := m.Get("id")
		if id.Type != gjson.String {
			continue
		}

		// The text of the list is large, and is not kept for the sake of an id.
		n := m.Get("max_model_len").Int()
		if n < 0 || n > math.MaxInt32 {
			n = 0
		}
		lengths = append(lengths, modelLength{strings.Clone(id.Str), int(n)})
	}
	e.lengths.Store(&lengths)
}

// engineAnswer is an engine's list once it has arrived.
type engineAnswer struct {
	arrived chan struct{} // closed then
	models  engineModels
}

// engineModels is an engine's list, or why there is none.
type engineModels struct {
	data gjson.Result
	err  error
}

// engineModels is an engine's list. If ctx ends before it has arrived, there is
// none.
func (d *Directory) engineModels(ctx context.Context, name string) engineModels {
	answer := d.askEngine(name)
	select {
	case <-answer.arrived:
		return answer.models
	case <-ctx.Done():
		return engineModels{err: ctx.Err()}
	}
}

// askEngine asks an engine for its list, unless its last answer is fresh.
func (d *Directory) askEngine(name string) *engineAnswer {
	e := d.engines[name]
	e.mu.Lock()
	defer e.mu.Unlock()

	// An answer that is under way counts as fresh too: however many clients ask, the engine is
	// asked once.
	now := d.o.Now()
	if now.Before(e.until) {
		return e.answer
	}

	// The engine's answer is for all who wait. So no client's context ends the request, which
	// has a deadline of its own.
	answer := &engineAnswer{arrived: make(chan struct{})}
	e.answer, e.until = answer, now.Add(fresh)
	d.fetching.Go(func() {
		defer close(answer.arrived)
		list, err := d.fetch(name)
		logChange(d.o.Log.WithField("engine", name), "engine", &e.fails, err)
		answer.models = engineModels{list.Get("data"), err}
		if err != nil {
			e.failed(now, d.o.Now())
			return
		}
		e.keepLengths(answer.models.data)
	})
	return answer
}

// failed has an engine that has failed asked again after as long as its failure took: at once
// where nothing listens yet, and not by every client where it does not answer in time.
func (e *engineList) failed(asked, now time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.until = now.Add(min(now.Sub(asked), fresh))
}

// logChange logs when a source begins to fail, and when it works again.
func logChange(log logrus.FieldLogger, source string, fails *atomic.Bool, err error) {
	// An engine that is down for a day is two lines.
	switch failed := err != nil; {
	case fails.Swap(failed) == failed:
	case failed:
		log.WithError(err).Warnf("The %s does not return its models: they are left out of the list", source)
	default:
		log.Infof("The %s returns its models again", source)
	}
}

// fetch asks an engine for its list, without headers of a client.
func (d *Directory) fetch(name string) (list gjson.Result, err error) {
	head := http.Header{"User-Agent": {""}}
	head.Set(header.Engine, name)
	if dialect := d.o.Dialects[name]; dialect != nil && dialect.Traits().ModelInfo != nil {
		return d.fetchInfo(head, dialect.Traits().ModelInfo)
	}
	_, list, err = d.get(context.Background(), head, path)
	return list, err
}

// fetchInfo makes a list of the one model that an engine reports by a method of its
// own.
func (d *Directory) fetchInfo(head http.Header, dialect engine.ModelInformer) (list gjson.Result, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), fetchTimeout)
	defer cancel()
	answer, err := d.o.Client.Ask(ctx, head, dialect.EncodeModelInfo(), maxListBytes)
	switch {
	case err != nil:
		return list, fmt.Errorf("ask for the model: %w", err)
	case answer.Status != http.StatusOK:
		return list, fmt.Errorf("ask for the model: %w", dialect.ReadError(answer.Status, answer.Header, answer.Body))
	}
	m, rejected := dialect.ReadModelInfo(answer.Body, answer.Field)
	if rejected != nil {
		return list, fmt.Errorf("ask for the model: %w", rejected)
	}
	return gjson.ParseBytes(append(
		appendModel([]byte(`{"data":[`), m.ID, dialect.Kind(), m.ContextLength), "]}"...,
	)), nil
}

// get asks for a list through the loopback listener.
func (d *Directory) get(
	ctx context.Context, head http.Header, target string,
) (status int, list gjson.Result, err error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	status, body, err := d.o.Client.Get(ctx, head, target, maxListBytes)
	switch {
	case status != 0 && status != http.StatusOK:
		return status, list, fmt.Errorf("ask for the models: status %d", status)
	case err != nil:
		return status, list, fmt.Errorf("ask for the models: %w", err)
	}
	if list, bad := jsontext.Parse(body); bad == nil && list.Get("data").IsArray() {
		return status, list, nil
	}
	return status, list, errNoList
}
