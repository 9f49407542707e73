package telemetry

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/sirupsen/logrus"
	"github.com/sirupsen/logrus/hooks/test"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/store"
	"github.com/envoy-harmony/envoy-harmony/filter/tools"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

var (
	testStart = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	errBroken = errors.New("connection reset")
)

// newTestTelemetry is telemetry with its log and metrics.
func newTestTelemetry(t *testing.T, content bool) (*Telemetry, *test.Hook, *prometheus.Registry) {
	t.Helper()
	log := logrus.New()
	log.SetOutput(io.Discard)
	log.SetLevel(logrus.DebugLevel)
	registry := prometheus.NewRegistry()
	metrics, err := NewMetrics(registry)
	if err != nil {
		t.Fatal(err)
	}
	return New(log, metrics, content), test.NewLocal(log), registry
}

// samples are the values of a metric by its labels; of a histogram, the sums.
func samples(t *testing.T, r *prometheus.Registry, name string) map[string]float64 {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			values[labels(m)] = m.GetCounter().GetValue() + m.GetGauge().GetValue() + m.GetHistogram().GetSampleSum()
		}
	}
	return values
}

func labels(m *dto.Metric) string {
	all := make([]string, 0, len(m.GetLabel()))
	for _, l := range m.GetLabel() {
		all = append(all, l.GetName()+"="+l.GetValue())
	}
	return strings.Join(all, " ")
}

// counts are the metrics' values that are not 0, except for times.
func counts(t *testing.T, r *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	for _, f := range families {
		name := f.GetName()
		for labels, value := range samples(t, r, name) {
			if value != 0 && !strings.HasSuffix(name, "_seconds") {
				values[strings.TrimSuffix(name+" "+labels, " ")] = value
			}
		}
	}
	return values
}

func TestOutcome(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err      *apierror.Error
		complete bool
		want     string
		level    logrus.Level
	}{
		{nil, true, "ok", logrus.InfoLevel},
		{nil, false, "canceled", logrus.InfoLevel},
		{apierror.Invalid("x", "No."), true, "rejected", logrus.InfoLevel},
		{apierror.New(504, "", "", "Late."), true, "failed", logrus.WarnLevel},
		{apierror.New(503, apierror.CodeShutdown, "", "It ends."), true, "drain", logrus.WarnLevel},
		{apierror.New(502, "", "", "Broken."), false, "failed", logrus.WarnLevel},
	} {
		telemetry, logged, registry := newTestTelemetry(t, false)
		r := &Record{Started: testStart}
		if c.err != nil {
			r.Failed(c.err)
		}
		telemetry.Close(r, &Outcome{API: "chat", Complete: c.complete, Now: testStart})
		if e := logged.LastEntry(); e.Data["outcome"] != c.want || e.Level != c.level {
			t.Errorf("%v, complete %t: outcome %v, level %s", c.err, c.complete, e.Data["outcome"], e.Level)
		}
		if n := samples(t, registry, "harmony_requests_total")["api=chat model=none outcome="+c.want]; n != 1 {
			t.Errorf("%v, complete %t: %v requests counted", c.err, c.complete, n)
		}
	}
}

// answered is an outcome with everything in it.
func answered() *Outcome {
	return &Outcome{
		API: "chat", RequestID: "abc", Tenant: "acme", Model: "gpt-oss", Engine: "main", Complete: true, Answered: true, Now: testStart.Add(3 * time.Second),
		Summary:   turn.Summary{Counts: turn.Counts{Output: 10, Reasoning: 1, Call: 2, Text: 3}, Cached: 64, Finish: turn.FinishStop, Calls: 1, Repairs: map[string]int{"stray_end": 2}, ModelCalls: 2},
		ToolCalls: 3, ToolFails: 1,
	}
}

func TestRecord(t *testing.T) {
	t.Parallel()
	telemetry, logged, registry := newTestTelemetry(t, false)
	r := &Record{Started: testStart, Response: "resp_1"}
	for range 2 {
		telemetry.ModelCall(r, &engine.Request{Prompt: make([]harmony.Token, 100)}, testStart)
	}
	r.Chunk(&engine.Chunk{}, testStart.Add(time.Second))
	r.Chunk(&engine.Chunk{}, testStart.Add(2*time.Second))
	telemetry.Close(r, answered())
	want := logrus.Fields{
		"request_id": "abc", "harmony": true, "model": "gpt-oss", "seconds": 3.0, "api": "chat", "tenant": "acme", "engine": "main", "response": "resp_1",
		"prompt_tokens": 200, "model_calls": 2, "tool_calls": 3, "tool_errors": 1, "outcome": "ok",
		"output_tokens": 10, "analysis_tokens": 1, "call_tokens": 2, "text_tokens": 3, "other_tokens": 4, "cached_tokens": 64,
		"finish": "stop", "calls": 1, "repairs": map[string]int{"stray_end": 2}, "first_token_seconds": 1.0,
	}
	if diff := cmp.Diff(want, logged.LastEntry().Data); diff != "" {
		t.Errorf("fields (-want +got):\n%s", diff)
	}
	wantCounts := map[string]float64{
		"harmony_requests_total api=chat model=gpt-oss outcome=ok": 1, "harmony_prompt_tokens_total model=gpt-oss": 200, "harmony_cached_tokens_total model=gpt-oss": 64,
		"harmony_output_tokens_total channel=analysis model=gpt-oss": 1, "harmony_output_tokens_total channel=call model=gpt-oss": 2,
		"harmony_output_tokens_total channel=text model=gpt-oss": 3, "harmony_output_tokens_total channel=other model=gpt-oss": 4,
		"harmony_parsing_errors_total kind=stray_end": 1, "harmony_mcp_iterations api=chat": 2,
	}
	if diff := cmp.Diff(wantCounts, counts(t, registry)); diff != "" {
		t.Errorf("metrics (-want +got):\n%s", diff)
	}
	if s := samples(t, registry, "harmony_time_to_first_token_seconds"); s["api=chat model=gpt-oss"] != 1 {
		t.Errorf("time to first token %v", s)
	}
}

// Fields without a value are left out. A fault is a warning, and an error names
// its cause.
func TestRecordOfAFailure(t *testing.T) {
	t.Parallel()
	telemetry, logged, registry := newTestTelemetry(t, false)
	r := &Record{Started: testStart}
	r.Failed(apierror.New(502, "engine_disconnected", "", "Send it again.").With(errBroken))
	telemetry.Close(r, &Outcome{API: "chat", RequestID: "abc", Model: "invented", Engine: "main", Fault: errors.New("docs: refused"), Now: testStart})
	want := logrus.Fields{
		"request_id": "abc", "harmony": true, "model": "invented", "seconds": 0.0, "api": "chat", "engine": "main", "outcome": "failed",
		"status": 502, "error": "Send it again.", "code": "engine_disconnected", "cause": errBroken.Error(), "fault": "docs: refused",
	}
	e := logged.LastEntry()
	if diff := cmp.Diff(want, e.Data); diff != "" || e.Level != logrus.WarnLevel {
		t.Errorf("level %s, fields (-want +got):\n%s", e.Level, diff)
	}
	wantCounts := map[string]float64{"harmony_requests_total api=chat model=other outcome=failed": 1}
	if diff := cmp.Diff(wantCounts, counts(t, registry)); diff != "" {
		t.Errorf("metrics (-want +got):\n%s", diff)
	}
}

// A background response is counted when it has been made, not when it is queued.
func TestBackgroundIsCountedOnce(t *testing.T) {
	t.Parallel()
	telemetry, logged, registry := newTestTelemetry(t, false)
	for kind, field := range map[Kind]string{Queued: "queued", Background: "background"} {
		telemetry.Close(&Record{Started: testStart}, &Outcome{Kind: kind, API: "responses", Complete: true, Now: testStart})
		if e := logged.LastEntry(); e.Data[field] != true {
			t.Errorf("no %s in %v", field, e.Data)
		}
	}
	if n := samples(t, registry, "harmony_requests_total")["api=responses model=none outcome=ok"]; n != 1 {
		t.Errorf("counted %v times", n)
	}
}

func TestPassedThrough(t *testing.T) {
	t.Parallel()
	telemetry, logged, registry := newTestTelemetry(t, false)
	telemetry.PassedThrough(&Record{Started: testStart}, "abc", "/v1/embeddings", testStart.Add(time.Second))
	e := logged.LastEntry()
	if diff := cmp.Diff(logrus.Fields{"request_id": "abc", "path": "/v1/embeddings", "harmony": false, "seconds": 1.0}, e.Data); diff != "" || e.Message != "passed through" || e.Level != logrus.DebugLevel {
		t.Errorf("%s %q, fields (-want +got):\n%s", e.Level, e.Message, diff)
	}
	if n := samples(t, registry, "harmony_passthrough_total")[""]; n != 1 {
		t.Errorf("counted %v times", n)
	}
}

// Prompt and output are logged only where the configuration and the level say so.
func TestContent(t *testing.T) {
	t.Parallel()
	prompt, output := harmony.AppendEncodeSpecial(nil, "<|start|>user<|message|>Hi"), harmony.AppendEncodeSpecial(nil, "<|message|>Hello<|end|>")
	for _, c := range []struct {
		content bool
		level   logrus.Level
		want    bool
	}{{true, logrus.DebugLevel, true}, {true, logrus.InfoLevel, false}, {false, logrus.DebugLevel, false}} {
		telemetry, logged, _ := newTestTelemetry(t, c.content)
		telemetry.Log.SetLevel(c.level)
		r := &Record{Started: testStart}
		telemetry.ModelCall(r, &engine.Request{Prompt: prompt[:1]}, testStart)
		telemetry.ModelCall(r, &engine.Request{Prompt: prompt}, testStart)
		for _, id := range output {
			r.Chunk(&engine.Chunk{Index: 1, Tokens: []harmony.Token{id}}, testStart)
		}
		r.Failed(apierror.Invalid("", "The engine refused the request.").With(&engine.Cause{Text: "Hi is too long"}))
		telemetry.Close(r, answered())
		got := len(logged.AllEntries()) == 2
		if got != c.want {
			t.Errorf("content %t, level %s: %d lines", c.content, c.level, len(logged.AllEntries()))
		}
		if e := logged.AllEntries()[0]; got && (e.Data["prompt"] != "<|start|>user<|message|>Hi" || e.Data["output_1"] != "<|message|>Hello<|end|>" || e.Data["engine_error"] != "Hi is too long") {
			t.Errorf("content %v", e.Data)
		}
		if line := logged.LastEntry().Data; !c.want && strings.Contains(fmt.Sprint(line), "Hi is too long") {
			t.Errorf("content %t, level %s: %v", c.content, c.level, line)
		}
	}
}

// What an operator can improve at an engine is logged once for each engine.
func TestAdvice(t *testing.T) {
	t.Parallel()
	telemetry, logged, _ := newTestTelemetry(t, false)
	for _, name := range []string{"a", "b", "a"} {
		telemetry.Close(&Record{Started: testStart}, &Outcome{Engine: name, Advice: "Use token ids.", Now: testStart})
	}
	var advised []string
	for _, e := range logged.AllEntries() {
		if e.Message == "Use token ids." {
			advised = append(advised, fmt.Sprint(e.Data["engine"]))
		}
	}
	if diff := cmp.Diff([]string{"a", "b"}, advised); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Names that come from clients and models become labels only if an engine or a tool
// has answered under them, and so many at most.
// No label is empty, whatever an engine, a client or an error leaves out. The labels of a
// rollout are the operator's own.
func TestNoLabelIsEmpty(t *testing.T) {
	t.Parallel()
	telemetry, _, registry := newTestTelemetry(t, false)
	for _, o := range []*Outcome{{API: "models"}, {API: "chat", Engine: "e"}, {API: "chat", Engine: "e", Answered: true, Now: testStart}} {
		r := &Record{Started: testStart}
		telemetry.Continued(r, &Loss{Err: apierror.New(500, "", "", "")}, testStart)
		telemetry.Close(r, o)
	}
	telemetry.Metrics.ToolDone(tools.Job{Server: &tools.Server{Label: "s", Trusted: true}}, 0, tools.Result{Answered: true})
	telemetry.Metrics.ToolDone(tools.Job{}, 0, tools.Result{})
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetValue() == "" {
					t.Errorf("%s has a label %s that is empty", f.GetName(), l.GetName())
				}
			}
		}
	}
	if n := samples(t, registry, "harmony_continuations_total")["reason=unknown"]; n != 3 {
		t.Errorf("%v continuations for an unknown reason", n)
	}
}

func TestLabelsAreBounded(t *testing.T) {
	t.Parallel()
	telemetry, _, registry := newTestTelemetry(t, false)
	served := func(model string, answered bool) {
		telemetry.Close(&Record{Started: testStart}, &Outcome{API: "chat", Model: model, Engine: "main", Answered: answered, Complete: true, Now: testStart})
	}
	served("invented", false)
	for i := range maxModels + 5 {
		served(fmt.Sprint("m", i), true)
	}
	served("m0", false)
	requests := samples(t, registry, "harmony_requests_total")
	if len(requests) != maxModels+1 || requests["api=chat model=other outcome=ok"] != 6 || requests["api=chat model=m0 outcome=ok"] != 2 {
		t.Errorf("%d models, %v others", len(requests), requests["api=chat model=other outcome=ok"])
	}

	m := telemetry.Metrics
	docs := &tools.Server{Label: "docs", Trusted: true}
	m.ToolDone(tools.Job{Server: docs, Tool: "search"}, time.Second, tools.Result{Answered: true})
	m.ToolDone(tools.Job{Server: docs, Tool: "invented"}, time.Second, tools.Result{Error: "no such tool"})
	m.ToolDone(tools.Job{Server: docs}, time.Second, tools.Result{})
	m.ToolDone(tools.Job{Server: &tools.Server{Label: "mine"}, Tool: "any"}, time.Second, tools.Result{})
	want := map[string]float64{
		"outcome=ok server=docs tool=search": 1, "outcome=failed server=docs tool=other": 1, "outcome=ok server=docs tool=list": 1, "outcome=ok server=request tool=call": 1,
	}
	if diff := cmp.Diff(want, samples(t, registry, "harmony_tool_calls_total")); diff != "" {
		t.Errorf("tools (-want +got):\n%s", diff)
	}
}

// Every metric has a row in docs/operations.md, with its labels.
func TestMetricsAreDocumented(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	_, _, registry := newTestTelemetry(t, false)
	all := make(chan *prometheus.Desc)
	go func() {
		defer close(all)
		registry.Describe(all)
	}()
	description := regexp.MustCompile(`fqName: "(harmony_\w+)".*variableLabels: \{([^}]*)\}`)
	n := 0
	for d := range all {
		n++
		parts := description.FindStringSubmatch(d.String())
		if parts == nil {
			t.Fatalf("%s has another form", d)
		}
		row := "| `" + parts[1] + "` | "
		if parts[2] != "" {
			row += "`" + strings.ReplaceAll(parts[2], ",", "`, `") + "` "
		}
		if !bytes.Contains(page, []byte(row+"| ")) {
			t.Errorf("docs/operations.md, table Metrics: add %s| what it counts |", row)
		}
	}
	if n < 15 {
		t.Errorf("only %d metrics found", n)
	}
}

// Every metric is counted somewhere: one that is only made is 0 for ever.
func TestMetricsAreCounted(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	fields, used := map[string]bool{}, map[string]bool{}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		tree, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(tree, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.TypeSpec:
				if s, ok := n.Type.(*ast.StructType); ok && strings.HasSuffix(strings.ToLower(n.Name.Name), "metrics") {
					for _, field := range s.Fields.List {
						for _, name := range field.Names {
							fields[name.Name] = true
						}
					}
				}
			case *ast.SelectorExpr:
				used[n.Sel.Name] = true
			}
			return true
		})
	}
	for name := range fields {
		if !used[name] {
			t.Errorf("nothing counts the metric in the field %s: add a method of Metrics that does", name)
		}
	}
	if len(fields) < 20 {
		t.Errorf("only %d fields found", len(fields))
	}
}

// Accesses that the store does not answer are counted; its own answers are not, nor
// those that the client has given up.
func TestStoreFailures(t *testing.T) {
	t.Parallel()
	counts := map[string]int{}
	s := ObserveStore(brokenStore{}, func(operation string) { counts[operation]++ }, "sqlite", nil)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for id, ctx := range map[string]context.Context{"": t.Context(), "gone": gone, "none": t.Context(), "late": t.Context()} {
		if _, err := s.Get(ctx, "", id); err == nil {
			t.Errorf("no error for %q", id)
		}
	}
	if err := s.PutTexts(t.Context(), "", nil); err == nil {
		t.Error("no error of PutTexts")
	}
	if diff := cmp.Diff(map[string]int{"get_response": 2, "put_texts": 1}, counts); diff != "" {
		t.Errorf("counts (-want +got):\n%s", diff)
	}
}

// brokenStore does not answer, except for some responses.
type brokenStore struct{ store.Store }

func (brokenStore) Get(ctx context.Context, _, id string) (*store.Response, error) {
	switch id {
	case "none":
		return nil, fmt.Errorf("read: %w", store.ErrNotFound)
	case "late":
		return nil, context.DeadlineExceeded
	}
	return nil, errors.Join(errBroken, ctx.Err())
}

func (brokenStore) PutTexts(context.Context, string, map[string]string) error { return errBroken }
