package replies

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
	"github.com/envoy-harmony/envoy-harmony/filter/config"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/responsestest"
)

// silence makes the engine slower than keepAlives, before its first token and between
// the others.
const silence = "SIM first=300ms delay=20ms tokens-per-event=random:3"

// keepAlives lets streams have keep-alives whenever the engine is silent, as it is with
// silence.
func keepAlives(c *config.Config) {
	c.Limits.HeaderHold.Duration = 20 * time.Millisecond
	c.Limits.KeepAlive.Duration = 5 * time.Millisecond
}

// A keep-alive is no event without data, in no stream of any API: openai-go before 3.43
// decodes an event at each empty line. Events between keep-alives are whole.
func TestKeepAlives(t *testing.T) {
	for _, direct := range []bool{false, true} {
		d := stack.Start(t, stack.Options{Config: keepAlives, Direct: direct})

		for _, a := range stack.FaultAPIs {
			for _, text := range []string{
				"THINK A plan.\nSAY yes, yes and yes\n" + silence,
				"CALL look {\"at\":\"the moon\"}\n" + silence,
				"NOTHINK\nWORDS 30\n" + silence + " fault=error@9",
				"SIM first=300ms fault=cut@0",
			} {
				if direct && strings.HasSuffix(text, "cut@0") {
					continue // Envoy cuts the reply where the engine does
				}

				t.Run(fmt.Sprintf("%s/direct %v/%q", a.Name, direct, text), func(t *testing.T) {
					resp := d.Do(t, http.MethodPost, a.Path, "application/json", strings.NewReader(a.Body(stack.VLLMModel, text, true)))
					stream, message, err := a.Read(resp.Body)
					if err != nil || (message != "") != strings.Contains(text, "fault") {
						t.Errorf("%v, error %q", err, message)
					}
					checkKeepAlives(t, a.Name, stream)
				})
			}
		}
	}
}

// Streams of background responses have keep-alives as others do, also when they are
// followed by another client.
func TestKeepAlivesOfFollowedStreams(t *testing.T) {
	d := stack.Start(t, stack.Options{Config: keepAlives})
	const text = "NOTHINK\nWORDS 30\n" + silence
	_, started := d.Respond(t, stack.VLLMModel, text, `,"stream":true,"background":true`)
	followed := d.Resume(t, stack.BeginBackground(t, d.Openai(), stack.VLLMModel, text).ID, "")
	for _, stream := range []string{started, followed} {
		if _, err := responsestest.Stream([]byte(stream)); err != nil {
			t.Errorf("%v in\n%s", err, stream)
		}
		checkKeepAlives(t, "responses", stream)
	}
}

// checkKeepAlives checks that a stream has keep-alives, of its API's kind.
func checkKeepAlives(t *testing.T, api, stream string) {
	t.Helper()
	comments := strings.HasPrefix(stream, ":") || strings.Contains(stream, "\n:")
	pings := strings.Count(stream, "event: ping\n") > 1 // there is one behind message_start
	if isMessages := api == "messages"; comments == isMessages || pings != isMessages {
		t.Errorf("comments %v, pings %v, in\n%s", comments, pings, stream)
	}
}
