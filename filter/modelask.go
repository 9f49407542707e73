package filter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
)

const (
	modelsTimeout = 3 * time.Second  // for one list
	modelsFresh   = 10 * time.Second // an engine's list, or that it told none
	maxModelsBody = 4 << 20
)

// conditional are the headers by which a client asks for less than a whole list,
// if it has one already.
var conditional = []string{"if-match", "if-none-match", "if-modified-since", "if-unmodified-since", "if-range", "range"}

// otherModels is what whoever takes requests for other models tells of them.
type otherModels struct {
	list    gjson.Result
	missing bool // there is somebody, who does not tell
	theirs  bool // what they answer is for the client as it is
}

var errNoList = errors.New("the answer is no list of models")

// otherModels asks whoever takes requests for other models, behind the loopback
// listener: the upstream, or else an engine. It is asked as the client has asked,
// with its credentials, and may not let it in; what else it refuses is no reason
// to keep back what others tell.
func (s *Server) otherModels(ctx context.Context, x *exchange) otherModels {
	path := modelsPath
	if x.query != "" {
		path += "?" + x.query
	}
	header := x.headers.Clone()
	for _, name := range slices.Concat(x.strip, conditional) {
		header.Del(name)
	}
	status, list, err := s.loopback.models(ctx, header, path)
	var other otherModels
	switch {
	case err == nil:
		other.list = list
	case status == http.StatusNotFound: // it has none, or there is nobody
		err = nil
	case status == http.StatusUnauthorized, status == http.StatusForbidden, errors.Is(err, errNoList):
		other.theirs, err = true, nil
	default:
		other.missing = true
	}
	if ctx.Err() == nil { // else the client has gone
		logChange(s.log, "upstream", &s.unlisted, err)
	}
	return other
}

// engineList is what an engine has told of its models. It is asked once for all
// who want to know.
type engineList struct {
	mu      sync.Mutex
	until   time.Time // it is asked again
	answer  *engineAnswer
	fails   atomic.Bool
	lengths atomic.Pointer[map[string]int] // the context lengths of the last list
}

// length is the context length of a model, 0 where the engine has told none.
func (e *engineList) length(model string) int {
	if lengths := e.lengths.Load(); lengths != nil {
		return (*lengths)[model]
	}
	return 0
}

// keep keeps the context lengths of a list. vLLM and SGLang add max_model_len to
// OpenAI's fields.
func (e *engineList) keep(data gjson.Result) {
	lengths := map[string]int{}
	data.ForEach(func(_, m gjson.Result) bool {
		if n := m.Get("max_model_len").Int(); n > 0 && n <= math.MaxInt32 {
			lengths[strings.Clone(m.Get("id").String())] = int(n)
		}
		return true
	})
	e.lengths.Store(&lengths)
}

// engineAnswer is an engine's list once it is there.
type engineAnswer struct {
	there  chan struct{} // closed then
	models engineModels
}

// engineModels is an engine's list, or why there is none.
type engineModels struct {
	data gjson.Result
	err  error
}

// engineModels is an engine's list. Whose ctx ends before it is there gets none.
func (s *Server) engineModels(ctx context.Context, name string) engineModels {
	answer := s.askEngine(name)
	select {
	case <-answer.there:
		return answer.models
	case <-ctx.Done():
		return engineModels{err: ctx.Err()}
	}
}

// askEngine asks an engine for its list, at most every modelsFresh.
func (s *Server) askEngine(name string) *engineAnswer {
	e := s.lists[name]
	e.mu.Lock()
	defer e.mu.Unlock()
	now := s.now()
	if now.Before(e.until) {
		return e.answer
	}
	answer := &engineAnswer{there: make(chan struct{})}
	e.answer, e.until = answer, now.Add(modelsFresh)
	s.holds.Go(func() {
		defer close(answer.there)
		list, err := s.loopback.engineModels(name, s.dialects[name])
		logChange(s.log.WithField("engine", name), "engine", &e.fails, err)
		answer.models = engineModels{list.Get("data"), err}
		if err == nil {
			e.keep(answer.models.data)
		}
	})
	return answer
}

// logChange logs when somebody begins not to tell its models, which err is why, and
// when that is over.
func logChange(log logrus.FieldLogger, who string, fails *atomic.Bool, err error) {
	switch failed := err != nil; {
	case fails.Swap(failed) == failed:
	case failed:
		log.WithError(err).Warnf("the %s does not tell its models: they are left out of the list", who)
	default:
		log.Infof("the %s tells its models again", who)
	}
}

// engineModels asks an engine for its list, without anything of a client's.
func (l *loopback) engineModels(name string, d engine.Dialect) (list gjson.Result, err error) {
	header := http.Header{"User-Agent": {""}}
	header.Set(EngineHeader, name)
	if d, ok := d.(engine.ModelTeller); ok {
		return l.toldModel(header, d)
	}
	_, list, err = l.models(context.Background(), header, modelsPath)
	return list, err
}

// toldModel makes a list of the one model that an engine tells by a method of its
// own.
func (l *loopback) toldModel(header http.Header, d engine.ModelTeller) (list gjson.Result, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), modelsTimeout)
	defer cancel()
	var answer, trailer http.Header
	var body []byte
	status := 0
	err = l.read(ctx, header, d.EncodeModelInfo(), func(e engineEvent) bool {
		if e.header != nil {
			status, answer = e.status, e.header
		}
		body, trailer = append(body, e.body...), e.trailer
		return len(body) <= maxModelsBody
	})
	field := func(name string) string { return cmp.Or(trailer.Get(name), answer.Get(name)) }
	switch {
	case err != nil:
		return list, fmt.Errorf("ask for the model: %w", err)
	case status != http.StatusOK:
		return list, fmt.Errorf("ask for the model: %w", d.ReadError(status, answer.Get, body))
	}
	m, refused := d.ReadModelInfo(body, field)
	if refused != nil {
		return list, fmt.Errorf("ask for the model: %w", refused)
	}
	return gjson.ParseBytes(append(appendModel([]byte(`{"data":[`), m.ID, d.Kind(), m.ContextLength), "]}"...)), nil
}

// models asks for a list through the loopback listener.
func (l *loopback) models(ctx context.Context, header http.Header, path string) (status int, list gjson.Result, err error) {
	ctx, cancel := context.WithTimeout(ctx, modelsTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+l.host+path, http.NoBody)
	if err != nil {
		return 0, list, fmt.Errorf("ask for the models: %w", err)
	}
	req.Header, req.Host = header, header.Get("host")
	resp, err := l.transport.RoundTrip(req)
	if err != nil {
		return 0, list, fmt.Errorf("ask for the models: %w", err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxModelsBody+1))
	switch {
	case err != nil:
		return 0, list, fmt.Errorf("read the models: %w", err)
	case resp.StatusCode != http.StatusOK:
		return resp.StatusCode, list, fmt.Errorf("ask for the models: status %d", resp.StatusCode)
	case len(body) > maxModelsBody:
		return resp.StatusCode, list, fmt.Errorf("%w of at most %d bytes", errNoList, maxModelsBody)
	}
	if list, bad := jsontext.Parse(body); bad == nil && list.Get("data").IsArray() {
		return resp.StatusCode, list, nil
	}
	return resp.StatusCode, list, errNoList
}
