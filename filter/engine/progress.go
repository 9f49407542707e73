package engine

import (
	"net/http"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// progress is what all decoders keep of a reply: the memory of its chunks, and
// which choices have finished.
type progress struct {
	ids      []harmony.Token // the chunks' tokens, of one Feed
	logprobs logprobs        // the chunks' Logprobs
	finished []bool          // by choice
	open     int             // choices that have not finished
	done     bool            // nothing more is read
}

func newProgress(r *Request) progress {
	n := max(r.N, 1)
	return progress{logprobs: newLogprobs(r), finished: make([]bool, n), open: n}
}

// begin takes the memory of the last Feed back.
func (p *progress) begin() {
	p.ids = p.ids[:0]
	p.logprobs.reuse()
}

func (p *progress) fail(err *apierror.Error) *apierror.Error {
	p.done = true
	return err
}

// end is the end of the reply: an error while a choice goes on.
func (p *progress) end() *apierror.Error {
	p.done = true
	if p.open > 0 {
		return unfinished()
	}
	return nil
}

// expects says whether the choice exists and goes on; news of one that has
// finished is dropped.
func (p *progress) expects(index int) (bool, *apierror.Error) {
	if index < 0 || index >= len(p.finished) {
		return false, unreadable("a choice that was not asked for")
	}
	return !p.finished[index], nil
}

// take copies the ids that raw writes in JSON into the memory of this Feed.
func (p *progress) take(raw []byte) ([]harmony.Token, *apierror.Error) {
	from := len(p.ids)
	ids, ok := appendIDs(p.ids, raw)
	if !ok {
		return nil, unreadable("token ids that are no ids")
	}
	p.ids = ids
	return ids[from:len(ids):len(ids)], nil
}

// appendNews appends c if it tells anything.
func appendNews(chunks []Chunk, c *Chunk) []Chunk {
	if len(c.Tokens) == 0 && c.Finish == FinishNone && c.Usage == nil {
		return chunks
	}
	return append(chunks, *c)
}

func (p *progress) finish(index int) {
	p.finished[index] = true
	p.open--
}

// unfinished is the error of a reply that ends before its choices do.
func unfinished() *apierror.Error {
	return apierror.New(http.StatusBadGateway, "", "", "The engine ended its reply before the answer was complete. Send the request again.")
}

// unreadable is the error of a reply that is none of the dialect.
func unreadable(what string) *apierror.Error {
	return apierror.New(http.StatusBadGateway, "", "", "The engine sent a reply that cannot be read: %s.", what)
}
