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

// pair is a prefill and a decode engine of one kind, with the dialect that the
// filter uses for them.
type pair struct {
	t               *testing.T
	dialect         engine.Disaggregator
	prefill, decode *Sim
	bootstrap       engine.Bootstrap // of the prefill engine
	decodeURL       string
}

func newPair(t *testing.T, kind string) *pair {
	t.Helper()
	dialect, _ := engine.ByKind(kind)
	d, ok := dialect.(engine.Disaggregator)
	if !ok {
		t.Fatalf("%s does not support disaggregation", kind)
	}
	p := &pair{t: t, dialect: d, prefill: New(Options{Role: RolePrefill}), decode: New(Options{Role: RoleDecode})}
	where, err := url.Parse(serve(t, p.prefill))
	if err != nil {
		t.Fatal(err)
	}
	p.bootstrap.Host = where.Hostname()
	if p.bootstrap.Port, err = strconv.Atoi(where.Port()); err != nil {
		t.Fatal(err)
	}
	p.bootstrap.Room = 7
	p.decodeURL = serve(t, p.decode)
	return p
}

// send sends one of the two requests and returns its response.
func (p *pair) send(address string, part *engine.Request) (body []byte, trailer http.Header, err *apierror.Error) {
	wire, err := p.dialect.Encode(part)
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

// prefillPart sends the prefill request of r.
func (p *pair) prefillPart(r *engine.Request, at *engine.Bootstrap) (*engine.KVTransfer, *apierror.Error) {
	part, err := p.dialect.PrefillRequest(r, at)
	if err != nil {
		return nil, err
	}
	body, trailer, err := p.send(fmt.Sprintf("http://%s:%d", p.bootstrap.Host, p.bootstrap.Port), part)
	if err != nil {
		return nil, err
	}
	reader := p.dialect.NewPrefillReader(part)
	for _, b := range body { // in chunks of one byte
		if err := reader.Feed([]byte{b}); err != nil {
			return nil, err
		}
	}
	return reader.End(trailer.Get)
}

// decodePart sends the decode request of r.
func (p *pair) decodePart(r *engine.Request, at *engine.Bootstrap, transfer *engine.KVTransfer) answer {
	return p.ask(r, p.dialect.DecodeRequest(r, at, transfer))
}

// ask sends a request to the decode engine and decodes the response.
func (p *pair) ask(r, part *engine.Request) answer {
	body, trailer, err := p.send(p.decodeURL, part)
	if err != nil {
		return answer{Err: err}
	}
	return decode(p.t, p.dialect.Kind(), r, body, trailer, len(body)+1)
}

// both sends the prefill and the decode request of r, concurrently or one after the
// other.
func (p *pair) both(r *engine.Request) (answer, *engine.KVTransfer, *apierror.Error) {
	if !p.dialect.UsesBootstrapRoom() {
		transfer, err := p.prefillPart(r, nil)
		if err != nil {
			return answer{}, nil, err
		}
		return p.decodePart(r, nil, transfer), transfer, nil
	}
	decoded := make(chan answer)
	go func() { decoded <- p.decodePart(r, &p.bootstrap, nil) }()
	transfer, err := p.prefillPart(r, &p.bootstrap)
	return <-decoded, transfer, err
}

// TestDisaggregated: a prefill and a decode engine together return what one engine
// returns.
func TestDisaggregated(t *testing.T) {
	for _, kind := range engine.Disaggregating() {
		t.Run(kind, func(t *testing.T) {
			r := ask("THINK naïve 🙂\nSAY Hello, naïve 🙂!", func(r *engine.Request) { r.Logprobs, r.TopLogprobs = true, 2 })
			want := talk(t, New(Options{}), kind, "", r)
			p := newPair(t, kind)
			for round := range 2 {
				p.bootstrap.Room++
				got, transfer, err := p.both(r)
				if err != nil || got.Err != nil {
					t.Fatal(err, got.Err)
				}
				cached := got.Usage.CachedTokens
				if transfer != nil {
					cached = transfer.Usage.CachedTokens
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

// failed reports whether an error is an engine's failure.
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
				at, other := p.bootstrap, ask("SIM meet=200ms\nSAY x")
				change(p, &at, other)
				said := make(chan answer)
				go func() { said <- p.decodePart(other, &at, nil) }()
				if _, err := p.prefillPart(ask("SIM meet=200ms\nSAY x"), &p.bootstrap); !failed(err) {
					t.Errorf("prefill: %v", err)
				}
				if got := <-said; !failed(got.Err) {
					t.Errorf("decode: %v", got.Err)
				}
			})
		}
		t.Run(kind+"/rejected", func(t *testing.T) {
			p := newPair(t, kind)
			at := p.bootstrap
			at.Port++
			if _, err := p.prefillPart(ask("SAY x"), &at); !failed(err) {
				t.Errorf("port of another engine: %v", err)
			}
			if got := p.ask(ask("SAY x"), ask("SAY x")); got.Err == nil || got.Err.Status != http.StatusBadRequest {
				t.Errorf("no room: %v", got.Err)
			}
			two := ask("SAY x", func(r *engine.Request) { r.N = 2 })
			if _, err := p.dialect.PrefillRequest(two, &at); err == nil || err.Param != "n" {
				t.Errorf("two choices: %v", err)
			}
			whole := New(Options{})
			p.decodeURL = serve(t, whole)
			if got := p.decodePart(ask("SAY x"), &p.bootstrap, nil); got.Err == nil || got.Err.Status != http.StatusBadRequest {
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
			transfer, err := p.prefillPart(r, nil)
			if err != nil {
				t.Fatal(err)
			}
			for name, params := range map[string]string{
				"blocks": strings.Replace(string(transfer.Params), `"remote_block_ids":[1`, `"remote_block_ids":[2`, 1),
				"engine": strings.Replace(string(transfer.Params), `"sim-`, `"another-`, 1),
				"port":   strings.Replace(string(transfer.Params), `"remote_port":`, `"remote_port":1`, 1),
			} {
				if params == string(transfer.Params) {
					t.Fatalf("%s: %s is unchanged", name, params)
				}
				if got := p.decodePart(r, nil, &engine.KVTransfer{Params: []byte(params)}); !failed(got.Err) {
					t.Errorf("%s: %v", name, got.Err)
				}
			}
			if got := p.decodePart(ask("SAY y"), nil, transfer); !failed(got.Err) {
				t.Errorf("another prompt: %v", got.Err)
			}
			if got := p.decodePart(r, nil, transfer); got.Err != nil {
				t.Errorf("the right one: %v", got.Err)
			}
			if got := p.decodePart(r, nil, transfer); !failed(got.Err) {
				t.Errorf("twice: %v", got.Err)
			}
			if _, _, err := p.send(p.decodeURL, r); err == nil || err.Status != http.StatusBadRequest {
				t.Errorf("no parameters: %v", err)
			}
			part, _ := p.dialect.PrefillRequest(r, nil)
			if _, _, err := p.send(p.decodeURL, part); err == nil || err.Status != http.StatusBadRequest {
				t.Errorf("the other role: %v", err)
			}
		})
	}
}
