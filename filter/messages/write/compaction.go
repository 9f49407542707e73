package write

import (
	"encoding/binary"
	"fmt"
	"net/http"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/reply"
	"github.com/envoy-harmony/envoy-harmony/filter/seal"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// A reply that is a compaction has one block: the model's summary of the conversation, with a
// signature that says that it was made here. Package read reads it back.

// begin begins the turn of a reply: for the model's own output, for its summary, or for none.
func (e *encoder) begin(t *turn.Turn) {
	switch {
	case e.request.Compacts:
		e.reply.BeginAside(t, e.takeSummary, e.endCompaction)
	case e.request.Prepares:
		e.reply.BeginUnread(t)
	default:
		e.reply.Begin(t)
	}
}

// takeSummary takes an event of the model's turn.
func (e *encoder) takeSummary(dst []byte, event turn.Event) []byte {
	e.summary.Event(event)
	return dst
}

// endCompaction is the stage that ends a reply that is a compaction: the model's summary is
// its only block.
func (e *encoder) endCompaction(dst []byte) ([]byte, reply.Step, *apierror.Error) {
	calls := e.reply.Calls()
	text, err := e.summary.Text(e.reply.Choice(0).Finish(), "max_tokens", calls[len(calls)-1].Output)
	if err != nil {
		return dst, reply.Step{}, err
	}

	// In the form of Responses' compactions: no message stays beside the summary.
	signature := ""
	if sealer := e.request.Services.Sealer; sealer != nil {
		plain := append(binary.AppendUvarint(nil, 0), text...)
		sealed, fault := sealer.Seal(seal.Compaction, e.request.Context.Tenant, plain)
		if fault != nil {
			return dst, reply.Step{}, apierror.New(http.StatusInternalServerError, "", "", "Internal error.").With(
				fmt.Errorf("seal a compaction: %w", fault))
		}
		signature = sealed
	}

	return e.appendCompaction(dst, text, signature), reply.Step{}, nil
}

// appendCompaction writes the block of a compaction. In a stream the summary is a delta, and
// the rest of the block is in its first event, which has all that no delta can have.
func (e *encoder) appendCompaction(dst []byte, text, signature string) []byte {
	block := func(dst []byte, content string) []byte {
		dst = append(append(dst, `{"type":"compaction","content":`...), content...)
		dst = append(dst, `,"encrypted_content":null,"signature":`...)
		if signature == "" {
			dst = append(dst, "null"...)
		} else {
			dst = jsontext.AppendString(dst, signature)
		}
		return append(append(append(dst, `,"tool_changes":[`...), e.request.Tools.Changes...), "]}"...)
	}
	content := string(jsontext.AppendString(nil, text))

	e.blocks, e.compacted = e.blocks+1, true
	if !e.request.Options.Stream {
		e.whole = append(block(e.whole, content), ',')
		return dst
	}
	dst = append(e.beginBlockEvent(dst, "content_block_start"), `,"content_block":`...)
	dst = endEvent(block(dst, "null"))
	dst = e.beginBlockEvent(dst, "content_block_delta")
	dst = append(append(dst, `,"delta":{"type":"compaction_delta","content":`...), content...)
	dst = endEvent(append(dst, `,"encrypted_content":null}`...))
	return endEvent(e.beginBlockEvent(dst, "content_block_stop"))
}
