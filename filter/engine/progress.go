package engine

import (
	"net/http"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// progress is the common part of all decoders: the buffers of the chunks and
// the state of the choices.
type progress struct {
	ids      []harmony.Token // the chunks' tokens since the last call of Feed
	logprobs logprobs        // the chunks' log probabilities since the last call of Feed
	finished []bool          // by choice
	open     int             // number of choices that have not finished
	done     bool            // the rest of the reply is ignored
}

// idsAtOnce is the capacity for the tokens of one call of Feed.
const idsAtOnce = 16

func newProgress(r *Request) progress {
	n := max(r.N, 1)
	return progress{
		logprobs: newLogprobs(r),
		finished: make([]bool, n),
		open:     n,
		ids:      make([]harmony.Token, 0, idsAtOnce),
	}
}

// reset reuses the buffers of the last call of Feed.
func (p *progress) reset() {
	p.ids = p.ids[:0]
	p.logprobs.reuse()
}

func (p *progress) fail(err *apierror.Error) *apierror.Error {
	p.done = true
	return err
}

// end ends the reply. It returns an error if a choice has not finished.
func (p *progress) end() *apierror.Error {
	p.done = true
	if p.open > 0 {
		return unfinished()
	}
	return nil
}

// Trailers is for protocols whose trailers say nothing.
func (p *progress) Trailers(func(name string) string) *apierror.Error { return nil }

// Advice is for engines that have no option that is worth it.
func (p *progress) Advice() string { return "" }

// isOpen reports whether a choice has not finished. Output of a choice that has
// finished is dropped. A choice that was not requested is an error.
func (p *progress) isOpen(index int) (bool, *apierror.Error) {
	if index < 0 || index >= len(p.finished) {
		return false, unreadable("it has a choice that was not requested")
	}
	return !p.finished[index], nil
}

// parseIDs parses a JSON array of ids into the buffer of this call of Feed.
func (p *progress) parseIDs(raw []byte) ([]harmony.Token, *apierror.Error) {
	from := len(p.ids)
	ids, ok := appendIDs(p.ids, raw)
	if !ok {
		return nil, unreadable("its token ids are not numbers")
	}
	p.ids = ids
	// Full: what is appended later for another choice must not change these.
	return ids[from:len(ids):len(ids)], nil
}

// appendChunk appends c unless it is empty.
func appendChunk(chunks []Chunk, c *Chunk) []Chunk {
	if len(c.Tokens) == 0 && c.Finish == FinishNone && c.Usage == nil {
		return chunks
	}
	return append(chunks, *c)
}

func (p *progress) finish(index int) {
	p.finished[index] = true
	p.open--
}

// unfinished returns the error for a reply that ends before all choices have
// finished.
func unfinished() *apierror.Error {
	return apierror.New(http.StatusBadGateway, "", "",
		"The engine ended its reply before the answer was complete. Send the request again.")
}

// unreadable returns the error for a reply that is not in the dialect's format.
func unreadable(what string) *apierror.Error {
	return apierror.New(http.StatusBadGateway, "", "", "The engine sent a reply that cannot be read: %s.", what)
}
