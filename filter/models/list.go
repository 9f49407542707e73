package models

import (
	"fmt"
	"net/url"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
)

// list is a list of models that is being put together.
type list struct {
	base   gjson.Result // the upstream's list, whose other members stay
	models []model
	places map[string]int // index in models, by id
}

type model struct{ id, raw string }

// index is the place of a model; -1 if it is not in the list.
func (l *list) index(id string) int {
	if i, ok := l.places[id]; ok {
		return i
	}
	return -1
}

// add adds the models that are not in the list yet.
func (l *list) add(data gjson.Result) { l.take(data, false, func(string) bool { return true }) }

// replace adds those models of an engine that it serves, in place of what the list
// has of them.
func (l *list) replace(data gjson.Result, serves func(id string) bool) { l.take(data, true, serves) }

func (l *list) take(data gjson.Result, replace bool, wanted func(id string) bool) {
	data.ForEach(func(_, m gjson.Result) bool {
		// What is no model by its form is left out.
		id := m.Get("id")
		if id.Type == gjson.String && wanted(id.Str) {
			l.put(id.Str, m.Raw, replace)
		}
		return true
	})
}

func (l *list) put(id, raw string, replace bool) {
	if i := l.index(id); i >= 0 {
		if replace {
			l.models[i].raw = raw
		}
		return
	}
	if l.places == nil {
		l.places = map[string]int{}
	}
	l.places[id] = len(l.models)
	l.models = append(l.models, model{id, raw})
}

// released is the time of gpt-oss's release, in Unix seconds: the creation time of
// models of which only the name is known.
const released = 1754352000

// appendModel appends the object of a model of which only this is known.
func appendModel(dst []byte, id, owner string, contextLength int) []byte {
	dst = jsontext.AppendString(append(dst, `{"id":`...), id)
	dst = fmt.Appendf(dst, `,"object":"model","created":%d,"owned_by":`, released)
	dst = jsontext.AppendString(dst, owner)
	if contextLength > 0 {
		dst = fmt.Appendf(dst, `,"max_model_len":%d`, contextLength)
	}
	return append(dst, '}')
}

// openAIForm writes models as OpenAI's API does.
type openAIForm struct{}

func (openAIForm) query(q url.Values) url.Values { return q }

func (openAIForm) one(m model) []byte { return []byte(m.raw) }

func (openAIForm) list(l *list, _ url.Values) ([]byte, *apierror.Error) { return l.append(nil), nil }

// append appends the list, with the other members of the upstream's list.
func (l *list) append(dst []byte) []byte {
	dst = append(dst, `{"object":"list","data":[`...)
	for i, m := range l.models {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, m.raw...)
	}
	dst = append(dst, ']')
	l.base.ForEach(func(key, value gjson.Result) bool {
		if key.Str != "object" && key.Str != "data" {
			dst = append(append(append(append(dst, ','), key.Raw...), ':'), value.Raw...)
		}
		return true
	})
	return append(dst, '}')
}
