package stack

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/responses/responsestest"
)

// DocsTool is the tool of a request for the server of [ToolServer].
const DocsTool = `{"type":"mcp","server_label":"docs"}`

// ResponsesClient creates responses and checks each of them with the rules that all tests
// share.
type ResponsesClient struct {
	*Dataplane
	Stream bool
	Header []string

	// ID is that of the last request, Sse is the last stream.
	ID  string
	Sse string
}

// Post sends a request for a response and returns the status and the response.
func (c *ResponsesClient) Post(t *testing.T, body map[string]any) (int, gjson.Result) {
	t.Helper()
	if _, ok := body["model"]; !ok {
		body["model"] = SGLangModel
	}

	if c.Stream {
		body["stream"] = true
	}

	b, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}

	resp := c.Do(t, http.MethodPost, "/v1/responses", "application/json", bytes.NewReader(b), c.Header...)
	reply, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("%v, after %s", err, reply)
	}

	c.ID = resp.Header.Get("X-Request-Id")
	if resp.StatusCode != http.StatusOK {
		return resp.StatusCode, gjson.ParseBytes(reply)
	}

	if c.Stream {
		c.Sse = string(reply)
		if reply, err = responsestest.Stream(reply); err != nil {
			t.Fatalf("%v, in\n%s", err, c.Sse)
		}
	} else if err := responsestest.Object(reply); err != nil {
		t.Fatalf("%v, in\n%s", err, reply)
	}

	return resp.StatusCode, gjson.ParseBytes(reply)
}

// Create creates a response and checks its status.
func (c *ResponsesClient) Create(t *testing.T, status string, body map[string]any) gjson.Result {
	t.Helper()
	code, r := c.Post(t, body)
	if code != http.StatusOK || r.Get("status").Str != status {
		t.Fatalf("status %d: %s", code, r)
	}
	return r
}

// JSONArray joins JSON values to an array.
func JSONArray(elements ...string) json.RawMessage {
	return json.RawMessage("[" + strings.Join(elements, ",") + "]")
}

// ItemsOfType returns the items of a response with a type.
func ItemsOfType(r gjson.Result, kind string) (found []gjson.Result) {
	for _, i := range r.Get("output").Array() {
		if i.Get("type").Str == kind {
			found = append(found, i)
		}
	}
	return found
}

// LastText returns the text of a response's last message.
func LastText(r gjson.Result) string {
	text := ""
	for _, m := range ItemsOfType(r, "message") {
		text = m.Get("content.0.text").Str
	}
	return text
}

// InBothWays runs a test without and with streaming.
func InBothWays(t *testing.T, d *Dataplane, test func(*testing.T, *ResponsesClient)) {
	for name, stream := range map[string]bool{"whole": false, "streamed": true} {
		t.Run(name, func(t *testing.T) { test(t, &ResponsesClient{Dataplane: d, Stream: stream}) })
	}
}

// Prompts returns the prompts of the last response's model calls.
func (c *ResponsesClient) Prompts(t *testing.T) []string {
	t.Helper()
	requests := c.EngineRequests(t, c.ID)
	prompts := make([]string, 0, len(requests))
	for _, r := range requests {
		prompts = append(prompts, r.Prompt)
	}
	return prompts
}

// WantPrompt checks that a prompt has these texts in this order.
func WantPrompt(t *testing.T, prompt string, parts ...string) {
	t.Helper()
	rest := prompt
	for _, part := range parts {
		var ok bool
		if _, rest, ok = strings.Cut(rest, part); !ok {
			t.Errorf("the prompt has no %q at this position:\n%s", part, prompt)
			return
		}
	}
}

// Gather returns metrics by name and labels: for a histogram the number of values
// and, with the suffix _sum, their sum; otherwise the value.
func Gather(t *testing.T, r *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
			}
			of := "{" + strings.Join(labels, ",") + "}"
			all[f.GetName()+"_sum"+of] = m.GetHistogram().GetSampleSum()
			// A metric is one of the three; the values of the others are 0.
			all[f.GetName()+of] = m.GetCounter().GetValue() + m.GetGauge().GetValue() +
				float64(m.GetHistogram().GetSampleCount())
		}
	}
	return all
}
