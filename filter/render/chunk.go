package render

import (
	"context"
	"strings"
	"time"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/api"
	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
)

// chunk makes the events of one chunk of a stream, and the state for the next one. The
// reply so far is made again, since nothing is kept.
func (d *derendering) chunk(ctx context.Context) ([]byte, *apierror.Error) {
	index, err := d.choiceIndex()
	if err != nil {
		return nil, err
	}

	s := &d.state
	if !s.begun {
		s.begin(d)
	}

	// The reply so far is made as of the time of its first chunk, what is new as of now.
	now := func() time.Time { return time.Unix(s.created, 0) }
	request, err := d.prepare(ctx, s.id, func() time.Time { return now() })
	if err != nil {
		return nil, err
	}

	// The chunk may be of a choice that the request's n does not have yet.
	req := *request.Engine()
	req.N = max(req.N, index+1)
	chunks, err := d.chunks(&req)
	if err != nil {
		return nil, err
	}

	// The reply so far is a few bytes of the request for each token, and its texts are made again.
	// Where the choice ends, so are the last events, which repeat them.
	if err := d.rc.Room(s.bytes() + replyBytes(chunks, true)); err != nil {
		return nil, err
	}

	// Each choice has a state, and so a reply, of its own.
	request.Engine().N = 1
	reply := request.NewReply(api.SingleCall)
	if err := replay(reply, s.chunks()); err != nil {
		return nil, err
	}

	// Only the new events may have the time of now: those before must come out as they did.
	now = d.rc.Now
	events, err := d.play(reply, chunks)
	if err != nil {
		return nil, err
	}
	return d.answer(request, index, events), nil
}

// begin begins the state of a stream with its first chunk.
func (s *streamState) begin(d *derendering) {
	s.created = d.rc.Now().Unix()
	if s.id = d.generated.Get("request_id").Str; s.id == "" || len(s.id) > maxID {
		s.id = d.rc.ID("")
	}
}

// maxID is the most bytes of a request's id that a state has.
const maxID = 256

// choiceIndex returns the index of the choice that the chunk is of; 0 if it is of none.
func (d *derendering) choiceIndex() (int, *apierror.Error) {
	choices := d.generated.Get("choices")
	n := count(choices)
	if n == 0 {
		return 0, nil
	}
	path := d.generated.Path + ".choices"
	if n > 1 {
		return 0, apierror.Invalid(path,
			"A chunk must have at most one choice: each choice has a stream_state of its own. Send %d "+
				"requests.", n)
	}
	index := choices.Get("0.index").Int()
	if index < 0 || index >= int64(d.rc.Limits.Choices) {
		return 0, apierror.Invalid(path,
			"The index of a choice must be at least 0 and less than %d.", d.rc.Limits.Choices)
	}
	return int(index), nil
}

// replay brings a reply to where it is after chunks whose events the client has.
func replay(reply api.Reply, chunks []engine.Chunk) *apierror.Error {
	var scratch []byte
	for i := range chunks {
		if reply.Done() {
			return nil
		}
		var err *apierror.Error
		if scratch, err = reply.Push(scratch[:0], &chunks[i]); err != nil {
			return err
		}
	}
	return nil
}

// play returns the events of the new chunks, and of the end if the choice has ended.
// A chunk of no choice has the usage only: it is counted as if the choice ended here.
func (d *derendering) play(reply api.Reply, chunks []engine.Chunk) (events []byte, err *apierror.Error) {
	s := &d.state
	counts := !d.hasChoice()
	// The client has the end.
	if s.finish != engine.FinishNone && !counts {
		return nil, nil
	}

	for i := range chunks {
		c := &chunks[i]
		c.Index = 0
		if events, err = reply.Push(events, c); err != nil {
			return nil, err
		}
		if counts {
			continue
		}
		s.add(c)
		if reply.Done() {
			s.finish = engine.FinishStop
			break
		}
	}

	// Only Chat Completions has an event for the usage alone: the other APIs have it in their last one.
	if counts && d.merge || !counts && s.finish != engine.FinishNone {
		return end(reply, events)
	}
	return events, nil
}

// hasChoice reports whether the chunk is of a choice.
func (d *derendering) hasChoice() bool { return d.generated.Get("choices.0").Exists() }

// answer is the answer to a chunk: vLLM's for Chat Completions, and the same with a
// list of events for the other APIs, which have several events for a token.
func (d *derendering) answer(request api.Request, index int, sse []byte) []byte {
	var dst []byte

	if d.merge {
		m := merged{
			id: request.Info().ID, created: d.state.created, model: d.requested(), index: index,
			choice: d.hasChoice(), usage: d.generated.Get("usage").IsObject(),
		}
		eachEvent(sse, m.add)
		dst = m.append([]byte(`{"chunk":`))
	} else {
		dst = []byte(`{"events":[`)
		// A chunk may have no event at all: the list is empty then.
		first := true
		eachEvent(sse, func(object gjson.Result) {
			if !first {
				dst = append(dst, ',')
			}
			first = false
			dst = append(dst, object.Raw...)
		})
		dst = append(dst, ']')
	}

	return append(d.state.append(append(dst, `,"stream_state":`...)), '}')
}

// requested is the model that the reply names.
func (d *derendering) requested() string {
	if d.model != "" {
		return d.model
	}
	return d.request.Get("model").Str
}

// eachEvent calls each for the objects of server-sent events.
func eachEvent(sse []byte, each func(object gjson.Result)) {
	for line := range strings.Lines(string(sse)) {
		if data, ok := strings.CutPrefix(line, "data: "); ok && data[0] == '{' {
			each(gjson.Parse(strings.TrimSuffix(data, "\n")))
		}
	}
}
