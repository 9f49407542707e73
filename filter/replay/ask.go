package replay

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/record"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// Call is a model call of a record that an engine can be asked again.
type Call struct {
	Request *engine.Request // as this version makes it
	Was     Output          // what was recorded
}

// Output is what an engine has said to a call.
type Output struct {
	Tokens  []harmony.Token // of the first choice
	Finish  engine.Finish
	First   time.Duration // from the call to the first tokens; 0: there were none
	Whole   time.Duration // from the call to the end
	Refused string        // the error in place of the output
}

// Calls returns the model calls of a record, of those that had an answer. skipped is why
// there are none; "" if there are.
func (p *Player) Calls(ctx context.Context, r *record.Record) (calls []Call, skipped string) {
	if why := skippedRecord(r); why != "" {
		return nil, why
	}

	s := newScript(r, p.Keeper)
	if why := p.play(record.With(ctx, s), r, s); why != "" {
		return nil, why
	}

	// Calls without tokens were lost, and are not worth asking.
	outputs := recordedOutputs(r)
	for i := range min(len(s.made.calls), len(outputs)) {
		if outputs[i].First > 0 {
			calls = append(calls, Call{Request: s.made.calls[i].request, Was: outputs[i]})
		}
	}

	if len(calls) == 0 {
		return nil, "it has no answer of an engine"
	}
	return calls, ""
}

// recordedOutputs are the outputs of all calls of a record.
func recordedOutputs(r *record.Record) (outputs []Output) {
	var called int64
	for i := range r.Events {
		e := &r.Events[i]
		if e.Kind == record.KindCall {
			outputs, called = append(outputs, Output{}), e.At
			continue
		}
		if len(outputs) == 0 {
			continue
		}
		o := &outputs[len(outputs)-1]
		switch e.Kind {
		case record.KindTokens:
			// Others are not asked for.
			if e.Tokens.Choice > 0 {
				continue
			}
			if o.First == 0 && len(e.Tokens.IDs) > 0 {
				o.First = micros(e.At - called)
			}
			o.Tokens, o.Finish = append(o.Tokens, e.Tokens.IDs...), engine.Finish(e.Tokens.Finish)
			o.Whole = micros(e.At - called)
		case record.KindBroken:
			o.Refused = e.Error.Err().Error()
		}
	}

	return outputs
}

func micros(n int64) time.Duration { return max(time.Duration(n)*time.Microsecond, time.Microsecond) }

// Engine is an engine that is asked again, at its own address.
type Engine struct {
	Name    string // for people
	URL     string // scheme, host and port
	Dialect engine.Dialect
	Model   string // its name of the model; "": the record's
	Greedy  bool   // temperature 0, so that two engines can say the same
	Client  *http.Client
}

// maxAnswer bounds what is read of an answer, in bytes.
const maxAnswer = 256 << 20

// Ask makes a call. An error is one of the way to the engine; what the engine refuses is
// an Output.
func (e *Engine) Ask(ctx context.Context, r *engine.Request) (o Output, err error) {
	// One choice of one engine: only the first is compared.
	asked := *r
	asked.N, asked.Disaggregation = 1, nil
	if e.Model != "" {
		asked.Model = e.Model
	}
	if e.Greedy {
		zero := 0.0
		asked.Temperature = &zero
	}

	// An engine that cannot take the request at all refuses it, as one that answers with an error.
	wire, refused := e.Dialect.Encode(&asked)
	if refused != nil {
		return Output{Refused: refused.Error()}, nil
	}

	req, err := http.NewRequestWithContext(
		ctx, http.MethodPost, strings.TrimSuffix(e.URL, "/")+wire.Path, strings.NewReader(string(wire.Body)),
	)
	if err != nil {
		return o, fmt.Errorf("ask %s: %w", e.Name, err)
	}

	req.Header.Set("Content-Type", "application/json")
	for _, h := range wire.Header {
		req.Header.Set(h.Name, h.Value)
	}

	begun := time.Now()
	resp, err := e.Client.Do(req)
	if err != nil {
		return o, fmt.Errorf("ask %s: %w", e.Name, err)
	}
	defer resp.Body.Close()

	if resp.StatusCode != http.StatusOK {
		// Errors are short; a page of a proxy need not be.
		text, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
		o.Refused = e.Dialect.ReadError(resp.StatusCode, resp.Header.Get, text).Error()
		return o, err
	}
	err = o.read(e.Dialect.NewDecoder(&asked), io.LimitReader(resp.Body, maxAnswer), begun)
	return o, err
}

// read reads an answer.
func (o *Output) read(d engine.Decoder, body io.Reader, begun time.Time) error {
	buf := make([]byte, 32<<10)
	var chunks []engine.Chunk
	take := func(chunks []engine.Chunk) {
		for i := range chunks {
			c := &chunks[i]
			if o.First == 0 && len(c.Tokens) > 0 {
				o.First = time.Since(begun)
			}
			o.Tokens = append(o.Tokens, c.Tokens...)
			if c.Finish != "" {
				o.Finish = c.Finish
			}
		}
		o.Whole = time.Since(begun)
	}

	// What came is fed before the error is looked at: the last bytes may come with it.
	for {
		n, err := body.Read(buf)
		more, broken := d.Feed(buf[:n], chunks[:0])
		take(more)
		chunks = more
		switch {
		case broken != nil:
			o.Refused = broken.Error()
			return nil
		case err == io.EOF:
			more, broken := d.End(chunks[:0])
			take(more)
			if broken != nil {
				o.Refused = broken.Error()
			}
			return nil
		case err != nil:
			return fmt.Errorf("read the answer: %w", err)
		}
	}
}
