package models

import (
	"net/url"
	"strconv"
	"time"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
)

// anthropicVersion is the request header that every client of Anthropic's API sends.
// It decides in which form models are written.
const anthropicVersion = "anthropic-version"

// The bounds of a page of Anthropic's list, in models.
const (
	defaultPage = 20
	largestPage = 1000
)

// anthropicForm writes models as Anthropic's API does, with the types ModelInfo and
// SyncPage of its Python SDK 2.12.0 as the source.
type anthropicForm struct{ d *Directory }

// query asks the upstream for as many models as it returns at once: pages are made of
// the whole list.
func (anthropicForm) query(q url.Values) url.Values {
	all := url.Values{}
	for name, values := range q {
		all[name] = values
	}
	all.Del("after_id")
	all.Del("before_id")
	all.Set("limit", strconv.Itoa(largestPage))
	return all
}

func (f anthropicForm) one(m model) []byte { return f.append(nil, m) }

// append appends a model. One that the upstream reports in this form stays as it is.
func (f anthropicForm) append(dst []byte, m model) []byte {
	reported := gjson.Parse(m.raw)
	if reported.Get("type").Str == "model" && reported.Get("display_name").Exists() {
		return append(dst, m.raw...)
	}

	// What the engine has reported counts more than what the upstream says of the same model.
	settings, harmony := f.d.o.Config.Model(m.id)
	length := reported.Get("max_model_len").Int()
	if n := f.d.ContextLength(&settings); harmony && n > 0 {
		length = int64(n)
	}
	tokens := "null"
	if length > 0 {
		tokens = strconv.FormatInt(length, 10)
	}

	dst = jsontext.AppendString(append(dst, `{"type":"model","id":`...), m.id)
	dst = jsontext.AppendString(append(dst, `,"display_name":`...), m.id)
	dst = jsontext.AppendString(append(dst, `,"created_at":`...), createdAt(reported.Get("created").Int()))
	dst = append(dst, `,"lifecycle":"active","deprecated_at":null,"retires_at":null,"line":null`+
		`,"max_input_tokens":`+tokens+`,"max_tokens":`+tokens+`,"capabilities":`...)
	if !harmony { // not known
		return append(dst, "null}"...)
	}
	return append(f.appendCapabilities(dst), '}')
}

// latest is the end of the year 9999, the last that RFC 3339 can write.
const latest = 253402300799

// createdAt is the time of Unix seconds in RFC 3339; the epoch if it is not known.
func createdAt(seconds int64) string {
	return time.Unix(min(max(seconds, 0), latest), 0).UTC().Format(time.RFC3339)
}

// appendCapabilities appends what POST /v1/messages can do with a Harmony model.
func (f anthropicForm) appendCapabilities(dst []byte) []byte {
	const yes, no = `{"supported":true}`, `{"supported":false}`
	answer := func(able bool) string {
		if able {
			return yes
		}
		return no
	}
	tools := &f.d.o.Config.Tools
	search, python := tools.WebSearch != "", tools.CodeInterpreter != ""
	return append(dst, `{"batch":`+no+`,"citations":`+no+`,"code_execution":`+no+
		`,"context_management":`+no+
		`,"effort":{"supported":true,"low":`+yes+`,"medium":`+yes+`,"high":`+yes+`,"xhigh":`+yes+`,"max":`+yes+`}`+
		`,"image_input":`+no+`,"pdf_input":`+no+
		`,"server_tools":{"supported":`+strconv.FormatBool(search || python)+
		`,"web_search":`+answer(search)+`,"code_execution":`+answer(python)+`}`+
		`,"structured_outputs":`+yes+
		`,"thinking":{"supported":true,"types":{"adaptive":`+yes+`,"between_tools":`+yes+
		`,"disabled":`+yes+`,"enabled":`+yes+`}}}`...)
}

// list writes a page of the list: limit models, the first ones or those next to
// after_id or before_id.
func (f anthropicForm) list(l *list, q url.Values) ([]byte, *apierror.Error) {
	first, last, err := page(l, q)
	if err != nil {
		return nil, err
	}

	// has_more is about the direction in which the client pages.
	more := last < len(l.models)
	if q.Get("before_id") != "" {
		more = first > 0
	}

	dst := []byte(`{"data":[`)
	for i, m := range l.models[first:last] {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = f.append(dst, m)
	}

	dst = strconv.AppendBool(append(dst, `],"has_more":`...), more)
	if first == last {
		return append(dst, `,"first_id":null,"last_id":null}`...), nil
	}
	dst = jsontext.AppendString(append(dst, `,"first_id":`...), l.models[first].id)
	dst = jsontext.AppendString(append(dst, `,"last_id":`...), l.models[last-1].id)
	return append(dst, '}'), nil
}

// page is the part of the list that a query asks for, from first to before last.
func page(l *list, q url.Values) (first, last int, err *apierror.Error) {
	limit := defaultPage
	if text := q.Get("limit"); text != "" {
		n, convErr := strconv.Atoi(text)
		if convErr != nil || n < 1 || n > largestPage {
			return 0, 0, apierror.Invalid("limit", "The limit must be a number from 1 to %d.", largestPage)
		}
		limit = n
	}

	after, before := q.Get("after_id"), q.Get("before_id")
	switch {
	case after != "" && before != "":
		return 0, 0, apierror.Invalid("before_id", "Only one of after_id and before_id can be used. Leave one out.")
	case after != "":
		if first = l.index(after) + 1; first == 0 {
			return 0, 0, apierror.Invalid("after_id", "The list has no such model. Use the last_id of a page.")
		}
	case before != "":
		if last = l.index(before); last < 0 {
			return 0, 0, apierror.Invalid("before_id", "The list has no such model. Use the first_id of a page.")
		}
		// Pages backwards: the models before that one, and the last of these.
		return max(last-limit, 0), last, nil
	}
	return first, min(first+limit, len(l.models)), nil
}
