// Package item is the JSON of the Responses API's items, both ways: [Read] reads
// an item of a request's input, [ReadStored] one that the store keeps, and an
// [Output] is an item that a reply makes. The package knows the members of each
// type of item. What an item means to the model, and when clients get it, is decided
// by package responses.
//
// The formats are those of OpenAI's reference of the Responses API.
package item

import (
	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
)

// Item is one element of an input: the members that some type of item has. Its
// texts are parts of the JSON that it was read from.
type Item struct {
	At     jsontext.Field // the whole item, and where it is in the request
	Kind   string         // its type
	ID     string
	Role   string
	Phase  string
	CallID string

	Namespace string // of the tool that is called
	Name      string
	Server    string // server_label of an MCP call
	Encrypted string // encrypted_content

	Content, Summary  jsontext.Field
	Arguments, Output jsontext.Field
	Input             jsontext.Field // of a custom tool's call
	Error             jsontext.Field // of an MCP call
	ModelView         gjson.Result   // of a stored item: what the model sees in its place
}

// textMember is where a member that is a text belongs; nil for other members.
func (it *Item) textMember(key string) *string {
	switch key {
	case "type":
		return &it.Kind
	case "id":
		return &it.ID
	case "role":
		return &it.Role
	case "phase":
		return &it.Phase
	case "call_id":
		return &it.CallID
	case "namespace":
		return &it.Namespace
	case "name":
		return &it.Name
	case "server_label":
		return &it.Server
	case "encrypted_content":
		return &it.Encrypted
	}

	return nil
}

// valueMember is where a member of any form belongs; nil for other members.
func (it *Item) valueMember(key string) *jsontext.Field {
	switch key {
	case "content":
		return &it.Content
	case "summary":
		return &it.Summary
	case "arguments":
		return &it.Arguments
	case "output":
		return &it.Output
	case "error":
		return &it.Error
	case "input":
		return &it.Input
	}

	return nil
}

// Read reads an element of an input. An item without a type is a message if it
// has a role, and else a reference to the item of its id.
func Read(at jsontext.Field) (it Item, err *apierror.Error) {
	it.At = at
	err = at.Fields(func(key string, v jsontext.Field) (err *apierror.Error) {
		if dst := it.textMember(key); dst != nil {
			*dst, err = v.Text()
		} else if dst := it.valueMember(key); dst != nil {
			*dst = v
		}
		return err
	})
	switch {
	case it.Kind != "":
	case it.Role != "":
		it.Kind = "message"
	case it.ID != "":
		it.Kind = "item_reference"
	case err == nil:
		err = apierror.Invalid(at.Path+".type", "An input item has no type.")
	}

	// Before anything looks for the call of an output.
	it.withCallID()

	return it, err
}

// UserMessage is the item for an input that is one text.
func UserMessage(v jsontext.Field) Item {
	// Whose content Content replaces.
	at := jsontext.Field{Result: gjson.Parse(`{"role":"user","content":""}`), Path: v.Path}
	return Item{At: at, Kind: "message", Role: "user", Content: v}
}

// IsReference reports whether an element of an input is the id of another item.
func IsReference(v gjson.Result) bool {
	kind := v.Get("type")
	if kind.Type == gjson.String {
		return kind.Str == "item_reference"
	}
	return v.Get("id").Type == gjson.String && v.Get("role").Type != gjson.String
}

// CheckCall refuses a tool call without a call_id or a name.
func (it *Item) CheckCall() *apierror.Error {
	switch {
	case it.CallID == "":
		return apierror.Invalid(it.At.Path+".call_id", "A tool call has no call_id.")
	case it.Name == "":
		return apierror.Invalid(it.At.Path+".name", "A tool call has no name.")
	}
	return nil
}

// Clip shortens an id that a client made up, for errors.
func Clip(id string) string {
	return jsontext.Clip(id)
}
