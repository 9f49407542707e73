package responses

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// A compaction puts an item in place of a conversation. The model itself writes
// a summary for it, sealed as the item's encrypted_content. In later input the
// item stands for the summary, and everything before it is left out but
// instructions and the newest of the users' messages.
//
// There are two ways to ask for one. [CompactPath] answers with the users'
// messages and the item. An item compaction_trigger at the end of the input of a
// response makes the item the response's only output.

// CompactPath is where a conversation is compacted.
const CompactPath = Path + "/compact"

// askForSummary is what the model is told to do.
const askForSummary = `Write a summary of our conversation so far. It is going to take the conversation's place: whoever goes on, you among them, will know only this summary, the instructions and, if they are not long, the last of my own messages.

Do not answer my last message, do not go on with the work, and call no tools. Put into the summary, as far as there is any:
- what I want, with every constraint and preference that I gave;
- what has been done, and what came of it;
- facts that will still be needed, word for word: names, paths, numbers, identifiers, code, errors, results of tools;
- what was decided and why, and what was tried and did not work;
- what is not done yet, and the next steps.

Leave out everything else. Write the summary only.`

// summaryHead stands before a summary in the conversation that goes on from it.
const summaryHead = "The conversation up to here was shortened to the following summary, which you wrote. Go on from it.\n\n"

// compactionTenant is for whom a summary is sealed: no tenant's name has the
// zero byte, so nothing else that is sealed opens as one.
func compactionTenant(tenant string) string { return "compaction\x00" + tenant }

// compacting is what the decoder knows of compaction.
type compacting struct {
	standalone bool   // the request is one for CompactPath
	triggered  bool   // the conversation is to be compacted
	retained   []byte // of a standalone one: the messages that stay, with commas between them
}

// DecodeCompact is [API.Decode] for a POST /v1/responses/compact. The reply is
// one object, and nothing is stored.
func (a *API) DecodeCompact(ctx context.Context, body []byte, scope *turn.Scope) (*Call, *apierror.Error) {
	d := a.newDecoder(scope)
	d.standalone = true
	return d.decode(ctx, body)
}

// checkStandalone checks the fields of a request that is for a compaction only.
func (d *decoder) checkStandalone() *apierror.Error {
	if !d.standalone {
		return nil
	}
	d.triggered, d.store = true, false
	switch {
	case d.options.stream:
		return apierror.Invalid("stream", "A compaction is one object. Leave stream out.")
	case d.options.background:
		return apierror.Invalid("background", "A compaction cannot be made in the background. Leave background out.")
	case d.options.messages:
		return apierror.Invalid("enable_response_messages", "A compaction has no Harmony messages in it. Leave enable_response_messages out.")
	}
	return nil
}

// addTrigger notes that the conversation is to be compacted.
func (d *decoder) addTrigger(item) *apierror.Error {
	d.triggered = true
	return nil
}

// checkTrigger refuses what follows a compaction_trigger.
func (d *decoder) checkTrigger(it item) *apierror.Error {
	if d.triggered && !d.standalone {
		return apierror.Invalid(it.at.Path, "An item of type compaction_trigger must be the last one of the input.")
	}
	return nil
}

// addCompaction adds the summary that the item stands for.
func (d *decoder) addCompaction(it item) *apierror.Error {
	if it.encrypted == "" {
		return apierror.Invalid(it.at.Path+".encrypted_content", "A compaction has no encrypted_content.")
	}
	foreign := apierror.Invalid(it.at.Path+".encrypted_content", "The compaction was not made by this service, or its key is gone. Send the items that it stands for, or a summary as a message.")
	if d.api.Compactor == nil {
		return foreign
	}
	sealed, err := d.api.Compactor.Open(compactionTenant(d.scope.Tenant), it.encrypted)
	room, n := binary.Uvarint(sealed)
	if err != nil || n <= 0 {
		return foreign.With(err)
	}
	if err := d.forget(int(room)); err != nil {
		return err
	}
	d.add(turn.Item{Kind: turn.User, Summary: true, Text: summaryHead + string(sealed[n:]), Path: it.at.Path})
	return nil
}

// messageBytes is what a message takes of the room for users' messages beside
// its text.
const messageBytes = 16

// forget takes out of the conversation what a compaction stands for: all but
// instructions and the newest users' messages that have room, the last of which
// is shortened where that leaves something of it. The summary of an earlier
// compaction is none of these.
func (d *decoder) forget(room int) *apierror.Error {
	if err := d.unfold(); err != nil {
		return err
	}
	var kept []turn.Item
	for _, item := range slices.Backward(d.input.Items) {
		switch {
		case item.Kind == turn.Instructions:
			kept = append(kept, item)
		case item.Kind == turn.User && !item.Summary:
			size := room - messageBytes
			if size < min(len(item.Text), shortestText) {
				room = 0
				continue
			}
			item.Text = shorten(item.Text, size) // if need be; then no room is left
			room = size - len(item.Text)
			kept = append(kept, item)
		}
	}
	slices.Reverse(kept)
	d.input.Items = kept
	return nil
}

// userRoom is how many bytes of users' messages stay beside a compaction made
// for the model: an eighth of its context, at four bytes a token. It is sealed
// with the summary, so that the conversation is the same for every model that
// goes on with it.
func userRoom(m *turn.Model) int {
	return cmp.Or(m.ContextLength, turn.DefaultContextLength) / 8 * 4
}

// retain notes a message that stays beside the compaction. The summary has what
// the assistant said.
func (d *decoder) retain(it *item) {
	if !d.standalone || it.kind != "message" || it.role == "assistant" {
		return
	}
	id := it.id
	if id == "" {
		id = d.scope.NewID(idPrefix(it.kind))
	}
	if len(d.retained) > 0 {
		d.retained = append(d.retained, ',')
	}
	d.retained = it.appendStored(d.retained, id)
}

// finishCompaction ends the conversation with the demand for its summary.
func (d *decoder) finishCompaction() *apierror.Error {
	if !d.triggered {
		return nil
	}
	if d.api.Compactor == nil {
		return apierror.Invalid("input", "Compaction is not configured here. Send a summary as a message.")
	}
	d.input.OneCall = false
	d.input.Choice, d.input.Format, d.input.Strict = turn.Choice{}, nil, nil
	if err := d.unfold(); err != nil { // long texts may have to be shortened
		return err
	}
	d.add(turn.Item{Kind: turn.User, Text: askForSummary})
	return nil
}

// prepare makes the token request.
func (d *decoder) prepare(ctx context.Context) (*turn.Turn, *apierror.Error) {
	if !d.triggered {
		return d.scope.Prepare(ctx, &d.input)
	}
	return d.prepareSummary(ctx)
}

// The longest texts of a conversation that is too long to be summarised as it
// is: of so many bytes, then of fewer, until there is room for the summary.
const (
	longestText  = 32 << 10
	shortestText = 1 << 9
)

// prepareSummary makes the token request for a summary. What is too long for
// the model's context is just what has to be compacted: long texts are shortened
// then, and only if that does not do are turns dropped.
func (d *decoder) prepareSummary(ctx context.Context) (*turn.Turn, *apierror.Error) {
	in := d.input
	in.Truncate, in.Engine.MaxTokens = false, 0
	t, err := d.scope.Prepare(ctx, &in)
	for size := longestText; size >= shortestText && d.cramped(t, err); size /= 4 {
		in.Items = shortened(d.input.Items, size)
		t, err = d.scope.Prepare(ctx, &in)
	}
	if d.cramped(t, err) {
		in.Truncate = true
		t, err = d.scope.Prepare(ctx, &in)
	}
	if most := d.input.Engine.MaxTokens; err == nil && most > 0 {
		t.Engine.MaxTokens = min(t.Engine.MaxTokens, most)
	}
	return t, err
}

// cramped tells that the prompt leaves less than an eighth of the context.
func (d *decoder) cramped(t *turn.Turn, err *apierror.Error) bool {
	if err != nil || d.scope.Unbounded {
		return err != nil && err.Code == "context_length_exceeded"
	}
	left := t.Engine.MaxTokens
	return left < (len(t.Engine.Prompt)+left)/8
}

// shortened is the conversation without the middle of texts that are longer
// than size bytes. Instructions, and the demand at its end, stay as they are.
func shortened(items []turn.Item, size int) []turn.Item {
	short := slices.Clone(items)
	for i := range short[:len(short)-1] {
		if item := &short[i]; item.Kind != turn.Instructions {
			item.Text = shorten(item.Text, size)
		}
	}
	return short
}

// shorten leaves out the middle of a text that is longer than size bytes.
func shorten(text string, size int) string {
	if len(text) <= size {
		return text
	}
	begin, end := size/2, len(text)-size/2
	for begin > 0 && !utf8.RuneStart(text[begin]) {
		begin--
	}
	for end < len(text) && !utf8.RuneStart(text[end]) {
		end++
	}
	return text[:begin] + fmt.Sprintf("\n[%d bytes are left out here]\n", end-begin) + text[end:]
}

// compaction is what the reply needs to know of the compaction that it is.
type compaction struct {
	sealer     *Sealer
	room       int // for users' messages beside it, in bytes
	standalone bool
	retained   []byte
}

// compaction is nil where the conversation is not to be compacted.
func (d *decoder) compaction() *compaction {
	if !d.triggered {
		return nil
	}
	return &compaction{sealer: d.api.Compactor, room: userRoom(d.scope.Model), standalone: d.standalone, retained: d.retained}
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

// compact ends a reply that is a compaction: the model's summary becomes the one
// item of the output.
func (r *Reply) compact() *apierror.Error {
	c, text := r.call.compaction, r.summary.text()
	switch {
	case c == nil:
		return nil
	case r.reader.Finish() == turn.FinishLength:
		return apierror.New(http.StatusBadGateway, "compaction_failed", "", "The model had no room to complete its summary: it wrote %d tokens. Raise max_output_tokens, if it is set, or shorten the conversation.", r.reader.Counts().Output)
	case text == "":
		return apierror.New(http.StatusBadGateway, "compaction_failed", "", "The model wrote no summary of the conversation. Try again.")
	}
	plain := append(binary.AppendUvarint(nil, uint64(c.room)), text...)
	sealed, err := c.sealer.Seal(compactionTenant(r.call.scope.Tenant), plain)
	if err != nil {
		return apierror.New(http.StatusInternalServerError, "", "", "Internal error.").With(fmt.Errorf("seal a compaction: %w", err))
	}
	id := r.call.scope.NewID("cmp_")
	item := jsontext.AppendString([]byte(`{"type":"compaction","id":`), id)
	item = jsontext.AppendString(append(item, `,"encrypted_content":`...), sealed)
	item = append(item, '}')
	r.made = append(r.made, madeItem{id: id, json: item})
	r.items++
	if !r.call.options.stream {
		return nil
	}
	for _, step := range []string{".added", ".done"} {
		r.beginEvent("response.output_item", step)
		r.dst = append(append(r.dst, `,"output_index":0,"item":`...), item...)
		r.endEvent()
	}
	return nil
}

// appendCompaction appends the object that answers a request for a compaction.
func (r *Reply) appendCompaction(dst []byte) []byte {
	dst = jsontext.AppendString(append(dst, `{"id":`...), r.call.id)
	dst = strconv.AppendInt(append(dst, `,"object":"response.compaction","created_at":`...), r.call.created, 10)
	dst = append(dst, `,"output":[`...)
	if retained := r.call.compaction.retained; len(retained) > 0 {
		dst = append(append(dst, retained...), ',')
	}
	dst = append(r.appendOutput(dst), `],"usage":`...)
	r.countTurn()
	return append(r.usage.append(dst, r.call.options.usagePerTurn), '}')
}
