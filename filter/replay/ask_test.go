package replay

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// vllm is an engine that answers every call with an output.
func vllm(t *testing.T, output string, got *string) *Engine {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		*got = r.URL.Path + " " + string(body)
		if output == "" {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, `{"error":{"message":"no","code":400}}`)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		tokens := harmony.AppendEncodeSpecial(nil, output)
		for i, token := range tokens {
			finish := "null"
			if i == len(tokens)-1 {
				finish = `"stop"`
			}
			fmt.Fprintf(w, "data: {\"choices\":[{\"index\":0,\"text\":\"\",\"token_ids\":[%d],\"finish_reason\":%s}]}\n\n", token, finish)
		}
		_, _ = io.WriteString(w, "data: [DONE]\n\n")
	}))
	t.Cleanup(server.Close)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	dialect, _ := engine.ByKind("vllm")
	return &Engine{Name: "vllm", URL: server.URL + "/", Dialect: dialect, Client: client}
}

const answer = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{}<|call|>"

func TestAsk(t *testing.T) {
	t.Parallel()
	var got string
	warm := 1.0
	request := &engine.Request{ID: engine.CallID{Request: "a"}, Model: "gpt-oss", Prompt: []harmony.Token{1, 2}, N: 3, MaxTokens: 9, Temperature: &warm}
	e := vllm(t, answer, &got)
	e.Model, e.Greedy = "other", true
	o, err := e.Ask(t.Context(), request)
	if err != nil || o.Refused != "" || o.Finish != engine.FinishStop || o.First <= 0 || o.Whole < o.First {
		t.Fatalf("%+v, %v", o, err)
	}
	path, body, _ := strings.Cut(got, " ")
	if path != "/v1/completions" || gjson.Get(body, "model").String() != "other" || gjson.Get(body, "temperature").Float() != 0 || gjson.Get(body, "n").Int() != 1 || gjson.Get(body, "prompt").Raw != "[1,2]" {
		t.Errorf("asked %s", got)
	}
	if request.N != 3 || *request.Temperature != 1 || request.Model != "gpt-oss" {
		t.Errorf("the request has changed: %+v", request)
	}
	said := o.Say()
	if said.Reasoning != "Hm." || said.Final != "" || len(said.Calls) != 1 || said.Calls[0] != "functions.f {}" || said.Tokens[inReasoning] == 0 || said.Tokens[inCalls] == 0 {
		t.Errorf("%+v", said)
	}
	refusing := vllm(t, "", &got)
	if o, err := refusing.Ask(t.Context(), request); err != nil || o.Refused == "" {
		t.Errorf("a refusal: %+v, %v", o, err)
	}
	cut := vllm(t, strings.TrimSuffix(answer, "<|call|>"), &got)
	cut.URL = "http://127.0.0.1:1"
	if _, err := cut.Ask(t.Context(), request); err == nil {
		t.Error("no engine answers")
	}
}

func TestTally(t *testing.T) {
	t.Parallel()
	output := func(text string) *Output {
		return &Output{Tokens: harmony.AppendEncodeSpecial(nil, text), Finish: engine.FinishStop, First: time.Millisecond, Whole: 3 * time.Millisecond}
	}
	const reasoned = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>"
	var a, b Tally
	for _, tally := range []*Tally{&a, &b} {
		tally.Add(output(answer), output(answer))
		tally.Add(output(reasoned+"Yes.<|return|>"), output(reasoned+"No.<|return|>"))
	}
	a.Add(output(answer), &Output{Refused: "no"})
	if a.Asked != 3 || a.Failed != 1 || a.SameAll != 1 || a.SameReasoning != 2 || a.SameFinal != 1 || a.SameCalls != 2 {
		t.Errorf("%+v", a)
	}
	text, err := json.Marshal(Table([]*Tally{&a, &b}))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`{"Name":"calls","Values":["","3","2"]}`, `{"Name":"refused or broken","Values":["","1","0"]}`, `{"Name":"the same answer","Values":["","50.0 %","50.0 %"]}`,
		`{"Name":"first token, median","Values":["1ms","1ms","1ms"]}`, `{"Name":"finish","Values":["","stop 100.0 %","stop 100.0 %"]}`,
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %s in %s", want, text)
		}
	}
	if rows := Table(nil); len(rows) == 0 {
		t.Error("no rows")
	}
}
