package read

import (
	"bytes"
	"context"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/responses/stored"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
)

// maxNewItems is how many items a request can add to a conversation, as in
// OpenAI's API.
const maxNewItems = 20

// ReadConversationBody reads the body of a request about a conversation. Its items
// are those that the input of a response can have.
func (a *Reader) ReadConversationBody(
	ctx context.Context, body []byte, rc *turn.RequestContext,
) (stored.Body, *apierror.Error) {
	var read stored.Body
	// All members are optional, and so is the body.
	if len(bytes.TrimSpace(body)) == 0 {
		body = []byte(`{}`)
	}

	root, err := jsontext.Parse(body)
	if err != nil {
		return read, err
	}

	if v := root.Get("metadata"); v.Exists() {
		// An empty object is also what null means.
		read.Metadata = []byte(`{}`)
	}

	// The items are read as those of a response, so that a conversation has nothing that a response
	// would refuse.
	d := a.newDecoder(rc)
	known := func(key string) bool { return key == "metadata" || key == "items" }
	if err := (jsontext.Field{Result: root}).FieldsOf(known, func(key string, v jsontext.Field) *apierror.Error {
		switch key {
		case "metadata":
			err := d.fields.readMetadata(v)
			read.Metadata = d.fields.echo.metadata
			return err
		case "items":
			read.HasItems = true
			return d.readNewItems(v)
		}
		return nil
	}); err != nil {
		return read, err
	}
	if err := d.addInput(ctx); err != nil {
		return read, err
	}
	if d.items.compacting.triggered {
		return read, apierror.Invalid("items",
			"An item of type compaction_trigger is for the input of a response. Leave it out.")
	}

	read.Items = d.history.added

	return read, d.checkIDs("items")
}

// readNewItems notes the items for a conversation.
func (d *decoder) readNewItems(v jsontext.Field) *apierror.Error {
	n := 0
	err := v.Elements(func(int, jsontext.Field) *apierror.Error {
		if n == maxNewItems {
			return apierror.Invalid("items",
				"The field \"items\" has more than %d items. Send the others in further requests.", maxNewItems)
		}
		n++
		return nil
	})
	d.fields.items = v
	return err
}
