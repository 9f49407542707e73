package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

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
		d := start(t, options{config: keepAlives, direct: direct})
		for _, a := range faultAPIs {
			for _, text := range []string{
				"THINK A plan.\nSAY yes, yes and yes\n" + silence,
				"CALL look {\"at\":\"the moon\"}\n" + silence,
				"NOTHINK\nWORDS 30\n" + silence + " fault=error@9",
				"SIM first=300ms fault=cut@0",
			} {
				if direct && strings.HasSuffix(text, "cut@0") {
					continue // Envoy cuts the reply where the engine does
				}
				t.Run(fmt.Sprintf("%s/direct %v/%q", a.name, direct, text), func(t *testing.T) {
					resp := d.do(t, http.MethodPost, a.path, "application/json", strings.NewReader(a.body(vllmModel, text, true)))
					stream, message, err := a.read(resp.Body)
					if err != nil || (message != "") != strings.Contains(text, "fault") {
						t.Errorf("%v, error %q", err, message)
					}
					checkKeepAlives(t, a.name, stream)
				})
			}
		}
	}
}

// Streams of background responses have keep-alives as others do, also when they are
// followed by another client.
func TestKeepAlivesOfFollowedStreams(t *testing.T) {
	d := start(t, options{config: keepAlives})
	const text = "NOTHINK\nWORDS 30\n" + silence
	_, started := d.respond(t, vllmModel, text, `,"stream":true,"background":true`)
	followed := d.resume(t, begin(t, d.openai(), vllmModel, text).ID, "")
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
