package enginesim

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
)

// pair are a prefill and a decode engine of a kind, as the filter speaks to them.
type pair struct {
	t               *testing.T
	dialect         engine.Disaggregator
	prefill, decode *Sim
	at              engine.Bootstrap // of the prefill engine
	decodeURL       string
}

func newPair(t *testing.T, kind string) *pair {
	t.Helper()
	dialect, _ := engine.ByKind(kind)
	d, ok := dialect.(engine.Disaggregator)
	if !ok {
		t.Fatalf("%s cannot be disaggregated", kind)
	}
	p := &pair{t: t, dialect: d, prefill: New(Options{Role: RolePrefill}), decode: New(Options{Role: RoleDecode})}
	where, err := url.Parse(serve(t, p.prefill))
	if err != nil {
		t.Fatal(err)
	}
	p.at.Host = where.Hostname()
	if p.at.Port, err = strconv.Atoi(where.Port()); err != nil {
		t.Fatal(err)
	}
	p.at.Room = 7
	p.decodeURL = serve(t, p.decode)
	return p
}

// send sends a leg and reads its answer.
func (p *pair) send(address string, leg *engine.Request) (body []byte, trailer http.Header, err *apierror.Error) {
	wire, err := p.dialect.Encode(leg)
	if err != nil {
		return nil, nil, err
	}
	req, failed := http.NewRequestWithContext(p.t.Context(), http.MethodPost, address+wire.Path, bytes.NewReader(wire.Body))
	if failed != nil {
		p.t.Error(failed)
		return nil, nil, nil
	}
	resp, failed := http.DefaultClient.Do(req)
	if failed != nil {
		p.t.Error(failed)
		return nil, nil, nil
	}
	defer resp.Body.Close()
	if body, failed = io.ReadAll(resp.Body); failed != nil {
		p.t.Error(failed)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, nil, p.dialect.ReadError(resp.StatusCode, resp.Header.Get, body)
	}
	trailer = trailersOf(resp)
	if code := trailer.Get("grpc-status"); code != "" && code != "0" {
		return nil, nil, p.dialect.ReadError(resp.StatusCode, trailer.Get, nil)
	}
	return body, trailer, nil
}

// compute is the prefill leg of r.
func (p *pair) compute(r *engine.Request, at *engine.Bootstrap) (*engine.Transfer, *apierror.Error) {
	leg, err := p.dialect.PrefillLeg(r, at)
	if err != nil {
		return nil, err
	}
	body, trailer, err := p.send(fmt.Sprintf("http://%s:%d", p.at.Host, p.at.Port), leg)
	if err != nil {
		return nil, err
	}
	reader := p.dialect.NewPrefillReader(leg)
	for _, b := range body { // however it is cut
		if err := reader.Feed([]byte{b}); err != nil {
			return nil, err
		}
	}
	return reader.End(trailer.Get)
}

// say is the decode leg of r.
func (p *pair) say(r *engine.Request, at *engine.Bootstrap, told *engine.Transfer) answer {
	return p.ask(r, p.dialect.DecodeLeg(r, at, told))
}

// ask sends a request to the decode engine.
func (p *pair) ask(r, leg *engine.Request) answer {
	body, trailer, err := p.send(p.decodeURL, leg)
	if err != nil {
		return answer{Err: err}
	}
	return decode(p.t, p.dialect.Kind(), r, body, trailer, len(body)+1)
}

// both are the two legs of r, at the same time or one after the other.
func (p *pair) both(r *engine.Request) (answer, *engine.Transfer, *apierror.Error) {
	if !p.dialect.MeetsInRoom() {
		told, err := p.compute(r, nil)
		if err != nil {
			return answer{}, nil, err
		}
		return p.say(r, nil, told), told, nil
	}
	said := make(chan answer)
	go func() { said <- p.say(r, &p.at, nil) }()
	told, err := p.compute(r, &p.at)
	return <-said, told, err
}

// TestLegs: what two engines say together is what one says alone.
func TestLegs(t *testing.T) {
	for _, kind := range engine.Disaggregating() {
		t.Run(kind, func(t *testing.T) {
			r := ask("THINK naïve 🙂\nSAY Hello, naïve 🙂!", func(r *engine.Request) { r.Logprobs, r.TopLogprobs = true, 2 })
			want := talk(t, New(Options{}), kind, "", r)
			p := newPair(t, kind)
			for round := range 2 {
				p.at.Room++
				got, told, err := p.both(r)
				if err != nil || got.Err != nil {
					t.Fatal(err, got.Err)
				}
				cached := got.Usage.CachedTokens
				if told != nil {
					cached = told.Usage.CachedTokens
				}
				if round == 0 && cached != 0 || round > 0 && cached == 0 {
					t.Errorf("round %d: cached %d", round, cached)
				}
				got.Usage = want.Usage
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("two engines differ from one (-one +two):\n%s", diff)
				}
			}
			if said := p.prefill.Requests()[0]; said.Role != RolePrefill || len(said.OutputIDs[0]) != 1 || said.State != StateFinished {
				t.Errorf("prefill: %+v", said)
			}
			if said := p.decode.Requests()[0]; said.Role != RoleDecode || said.State != StateFinished {
				t.Errorf("decode: %+v", said)
			}
		})
	}
}

// failed tells whether an error is the engine's own.
func failed(err *apierror.Error) bool { return err != nil && err.Status == http.StatusBadGateway }

func TestRoomsMismatch(t *testing.T) {
	for _, kind := range []string{"sglang", "sglang-grpc"} {
		for name, change := range map[string]func(*pair, *engine.Bootstrap, *engine.Request){
			"room":   func(_ *pair, at *engine.Bootstrap, _ *engine.Request) { at.Room++ },
			"host":   func(_ *pair, at *engine.Bootstrap, _ *engine.Request) { at.Host = "127.0.0.2" },
			"port":   func(_ *pair, at *engine.Bootstrap, _ *engine.Request) { at.Port = 1 },
			"prompt": func(_ *pair, _ *engine.Bootstrap, r *engine.Request) { r.Prompt = userPrompt("SIM meet=200ms\nSAY y") },
		} {
			t.Run(kind+"/"+name, func(t *testing.T) {
				p := newPair(t, kind)
				at, other := p.at, ask("SIM meet=200ms\nSAY x")
				change(p, &at, other)
				said := make(chan answer)
				go func() { said <- p.say(other, &at, nil) }()
				if _, err := p.compute(ask("SIM meet=200ms\nSAY x"), &p.at); !failed(err) {
					t.Errorf("prefill: %v", err)
				}
				if got := <-said; !failed(got.Err) {
					t.Errorf("decode: %v", got.Err)
				}
			})
		}
		t.Run(kind+"/refused", func(t *testing.T) {
			p := newPair(t, kind)
			at := p.at
			at.Port++
			if _, err := p.compute(ask("SAY x"), &at); !failed(err) {
				t.Errorf("another engine's port: %v", err)
			}
			if got := p.ask(ask("SAY x"), ask("SAY x")); got.Err == nil || got.Err.Status != http.StatusBadRequest {
				t.Errorf("no room: %v", got.Err)
			}
			two := ask("SAY x", func(r *engine.Request) { r.N = 2 })
			if _, err := p.dialect.PrefillLeg(two, &at); err == nil || err.Param != "n" {
				t.Errorf("two choices: %v", err)
			}
			whole := New(Options{})
			p.decodeURL = serve(t, whole)
			if got := p.say(ask("SAY x"), &p.at, nil); got.Err == nil || got.Err.Status != http.StatusBadRequest {
				t.Errorf("an engine that is not disaggregated: %v", got.Err)
			}
		})
	}
}

func TestTransferMismatch(t *testing.T) {
	for _, kind := range []string{"vllm", "vllm-generate", "vllm-grpc"} {
		t.Run(kind, func(t *testing.T) {
			p := newPair(t, kind)
			r := ask("SAY x")
			told, err := p.compute(r, nil)
			if err != nil {
				t.Fatal(err)
			}
			for name, params := range map[string]string{
				"blocks": strings.Replace(string(told.Params), `"remote_block_ids":[1`, `"remote_block_ids":[2`, 1),
				"engine": strings.Replace(string(told.Params), `"sim-`, `"another-`, 1),
				"port":   strings.Replace(string(told.Params), `"remote_port":`, `"remote_port":1`, 1),
			} {
				if params == string(told.Params) {
					t.Fatalf("%s: nothing changed in %s", name, params)
				}
				if got := p.say(r, nil, &engine.Transfer{Params: []byte(params)}); !failed(got.Err) {
					t.Errorf("%s: %v", name, got.Err)
				}
			}
			if got := p.say(ask("SAY y"), nil, told); !failed(got.Err) {
				t.Errorf("another prompt: %v", got.Err)
			}
			if got := p.say(r, nil, told); got.Err != nil {
				t.Errorf("the right one: %v", got.Err)
			}
			if got := p.say(r, nil, told); !failed(got.Err) {
				t.Errorf("twice: %v", got.Err)
			}
			if _, _, err := p.send(p.decodeURL, r); err == nil || err.Status != http.StatusBadRequest {
				t.Errorf("no parameters: %v", err)
			}
			leg, _ := p.dialect.PrefillLeg(r, nil)
			if _, _, err := p.send(p.decodeURL, leg); err == nil || err.Status != http.StatusBadRequest {
				t.Errorf("the other role: %v", err)
			}
		})
	}
}
