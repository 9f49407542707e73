package write

import (
	"encoding/binary"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/request"
	"github.com/envoy-harmony/envoy-harmony/filter/seal"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// compaction is the compaction that a reply is, or begins with.
type compaction struct {
	*request.Compaction
	inline *inlineCompaction // nil: the compaction is the whole reply
}

// summary gathers the text of the model's turn.
type summary struct{ answer, preamble []byte }

func (s *summary) event(e turn.Event) {
	switch {
	case e.Step != turn.Delta:
	case e.Kind == turn.Answer:
		s.answer = append(s.answer, e.Text...)
	case e.Kind == turn.Preamble:
		s.preamble = append(s.preamble, e.Text...)
	}
}

func (s *summary) text() string {
	if text := strings.TrimSpace(string(s.answer)); text != "" {
		return text
	}
	return strings.TrimSpace(string(s.preamble))
}

// seal returns the model's summary as the encrypted_content of a compaction.
func (c *compaction) seal(r *Reply) (string, *apierror.Error) {
	text := r.summary.text()
	switch {
	case r.model.finish() == turn.FinishLength:
		return "", apierror.New(http.StatusBadGateway, "compaction_failed", "", "The model had no room to complete its summary: it wrote %d tokens. Raise max_output_tokens, if it is set, or shorten the conversation.", r.model.reader.Counts().Output)
	case text == "":
		return "", apierror.New(http.StatusBadGateway, "compaction_failed", "", "The model wrote no summary of the conversation. Try again.")
	}
	plain := append(binary.AppendUvarint(nil, uint64(c.Room)), text...)
	sealed, err := c.Sealer.Seal(seal.Compaction, r.request.Context.Tenant, plain)
	if err != nil {
		return "", apierror.New(http.StatusInternalServerError, "", "", "Internal error.").With(fmt.Errorf("seal a compaction: %w", err))
	}
	return sealed, nil
}

// endCompaction ends a reply that is a compaction: the model's summary becomes the one
// item of the output.
func (r *Reply) endCompaction() *apierror.Error {
	if r.compaction == nil {
		return nil
	}
	sealed, err := r.compaction.seal(r)
	if err != nil {
		return err
	}
	id := r.request.Context.NewID("cmp_")
	json := jsontext.AppendString([]byte(`{"type":"compaction","id":`), id)
	json = jsontext.AppendString(append(json, `,"encrypted_content":`...), sealed)
	json = append(json, '}')
	r.output.made = append(r.output.made, request.Made{ID: id, JSON: json})
	r.output.count++
	if r.events.stream {
		r.events.itemWhole(0, ".added", json)
		r.events.itemWhole(0, ".done", json)
	}
	return nil
}

// appendCompaction appends the object that answers a request for a compaction.
func (o *responseObject) appendCompaction(dst []byte) []byte {
	q := o.request
	dst = jsontext.AppendString(append(dst, `{"id":`...), q.ResponseID)
	dst = strconv.AppendInt(append(dst, `,"object":"response.compaction","created_at":`...), q.Created, 10)
	dst = append(dst, `,"output":[`...)
	dst = slices.Grow(dst, q.Compaction.RetainedBytes())
	for _, message := range q.Compaction.Retained {
		dst = append(append(dst, message...), ',')
	}
	dst = append(o.output.append(dst), `],"usage":`...)
	o.model.count()
	return append(o.model.usage.append(dst, q.Options.UsagePerTurn), '}')
}
