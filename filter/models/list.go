package models

import (
	"fmt"
	"net/url"
	"slices"

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

// openAIForm writes models as OpenAI's API does, with cards for the versions of Codex that
// read them.
type openAIForm struct{ d *Directory }

func (openAIForm) query(q url.Values) url.Values { return q }

func (openAIForm) one(m model) []byte { return []byte(m.raw) }

func (f openAIForm) list(l *list, q url.Values) ([]byte, *apierror.Error) {
	w := jsontext.Writer(nil).Open().Text("object", "list").Key("data").OpenList()
	for _, m := range l.models {
		w = append(w.Element(), m.raw...)
	}
	w = w.CloseList()

	ours := []string{"object", "data"}
	if readsCards(q.Get(clientVersion)) {
		ours = append(ours, cardsMember)
		w = f.d.appendCards(w, l)
	}

	// The other members of the upstream's list stay.
	l.base.ForEach(func(key, value gjson.Result) bool {
		if !slices.Contains(ours, key.Str) {
			w = append(append(append(w.Element(), key.Raw...), ':'), value.Raw...)
		}
		return true
	})
	return w.Close(), nil
}
