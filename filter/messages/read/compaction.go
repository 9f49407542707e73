package read

import (
	"encoding/binary"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/compaction"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/seal"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// A request with {"compaction":{"type":"summarize"}} gets a message whose only block is the
// model's summary of the conversation. The next request has the block in the place of the
// messages that it summarizes. The summary is a text that the client can read; its signature
// says that it was made here.

// The codes of errors about compactions, which Anthropic's SDKs know.
const (
	codeNothingToSummarize = "compaction_nothing_to_summarize"
	codeMisplaced          = "compaction_block_misplaced"
	codeContentMismatch    = "compaction_content_mismatch"
	codeSignatureInvalid   = "compaction_signature_invalid"
)

// readCompaction reads {"type":"summarize","instructions":…}.
func (d *decoder) readCompaction(v jsontext.Field) *apierror.Error {
	kind := ""
	err := v.Fields(func(key string, v jsontext.Field) (err *apierror.Error) {
		switch key {
		case "type":
			kind = v.Str
		case "instructions":
			d.compaction.instructions, err = v.Text()
		default:
			err = compactionFields.Other(key, v, &d.ignored)
		}
		return err
	})

	if err == nil && kind != "summarize" {
		err = apierror.Invalid(v.Path+".type", "The type of a compaction must be summarize.")
	}
	d.compaction.asked = true
	return err
}

// compactionRequest is what a request says of a compaction.
type compactionRequest struct {
	asked        bool   // the reply is one
	instructions string // which ask for the summary; blank: the filter's own
}

// checkCompaction refuses a compaction of nothing.
func (d *decoder) checkCompaction() *apierror.Error {
	if !d.compaction.asked {
		return nil
	}

	if d.prepares {
		return apierror.Invalid("max_tokens",
			"A compaction writes a summary, and with \"max_tokens\" 0 nothing is written. Send more, or leave it out.")
	}

	// A conversation that ends with the assistant is complete: there is nothing to continue.
	d.input.Continue = false
	d.tools.ForSummary()
	said := func(i turn.Item) bool { return i.Kind != turn.Instructions && i.Kind != turn.Tools }
	if !slices.ContainsFunc(d.input.Items, said) {
		return apierror.New(http.StatusBadRequest, codeNothingToSummarize, "messages",
			"The conversation has nothing of the user or the assistant that could be summarized.")
	}
	return nil
}

// askForSummary ends the conversation with the request for its summary.
func (d *decoder) askForSummary() {
	if !d.compaction.asked {
		return
	}

	ask := d.compaction.instructions
	if strings.TrimSpace(ask) == "" {
		ask = compaction.Ask("")
	}
	compaction.AskOnly(&d.input)
	d.input.Items = append(d.input.Items, turn.Item{Kind: turn.User, Text: ask})
}

// readSummary reads the block of a compaction: its summary replaces what comes before it.
func (m *message) readSummary(v jsontext.Field) *apierror.Error {
	content := jsontext.Field{Result: v.Get("content"), Path: v.Path + ".content"}
	switch {
	case m.kind == turn.Instructions:
		return apierror.New(http.StatusBadRequest, codeMisplaced, v.Path+".type",
			"A block of type \"compaction\" belongs at the beginning of a message of the assistant or the user.")
	// A compaction that has failed: the conversation is as it was.
	case !content.Exists() || content.Type == gjson.Null:
		return nil
	case content.Type != gjson.String || content.Str == "":
		return apierror.Invalid(content.Path, "The content of a compaction must be a text that is not empty, or null.")
	}

	if err := m.checkSignature(v, content.Str); err != nil {
		return err
	}
	if err := m.forget(); err != nil {
		return err
	}
	m.items = append(m.items, compaction.Item(content.Str, v.Path))

	// The tools that the conversation had at its end, if other than those of the request.
	changes := jsontext.Field{Result: v.Get("tool_changes"), Path: v.Path + ".tool_changes"}
	if !changes.Exists() || changes.Type == gjson.Null {
		return nil
	}
	return changes.Elements(func(_ int, v jsontext.Field) *apierror.Error {
		if err := m.d.countBlock(); err != nil {
			return err
		}
		switch kind := v.Get("type").Str; kind {
		case "tool_addition", "tool_removal":
			return m.addChange(kind, v, true)
		}
		return apierror.Invalid(v.Path+".type",
			"The tool_changes of a compaction are blocks of type \"tool_addition\" and \"tool_removal\".")
	})
}

// checkSignature refuses a summary that is not the one that was signed.
func (m *message) checkSignature(v jsontext.Field, summary string) *apierror.Error {
	signature := v.Get("signature").Str
	if signature == "" {
		return nil
	}

	sealed, err := m.d.open(seal.Compaction, signature)
	switch {
	case errors.Is(err, seal.ErrTenant):
		return apierror.New(http.StatusBadRequest, codeSignatureInvalid, v.Path+".signature",
			"The compaction was made for another tenant. Leave the block out.").With(err)
	// It was signed with a key that is gone, or elsewhere: the text says enough.
	case err != nil:
		m.d.ignored.Add(v.Path + ".signature")
		return nil
	}

	_, n := binary.Uvarint([]byte(sealed))
	if n <= 0 || sealed[n:] != summary {
		return apierror.New(http.StatusBadRequest, codeContentMismatch, v.Path+".content",
			"The content of the compaction is not what its signature has recorded. Send the block as it came.")
	}
	return nil
}

// forget drops what a compaction replaces: all of the conversation but instructions and the
// definitions of tools.
func (m *message) forget() *apierror.Error {
	// Each compaction goes through all items, and a request can have thousands of them.
	if err := m.d.rc.Spend("messages", len(m.d.input.Items)+len(m.items)); err != nil {
		return err
	}

	gone := func(i turn.Item) bool { return i.Kind != turn.Instructions && i.Kind != turn.Tools }
	m.d.input.Items = slices.DeleteFunc(m.d.input.Items, gone)
	m.items = slices.DeleteFunc(m.items, gone)
	m.texts, m.text, m.image = nil, jsontext.Joined{}, false
	// Of calls before it there are no results any more.
	m.served = nil
	// What waits for a message of the user is found among all that is left.
	m.d.clearing = 0
	return nil
}
