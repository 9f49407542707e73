package filter

import (
	"fmt"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
)

// modelList is a list of models that is being put together.
type modelList struct {
	others gjson.Result // the list that it begins with
	models []listedModel
	places map[string]int // by id
}

type listedModel struct{ id, raw string }

func (l *modelList) index(id string) int {
	if i, ok := l.places[id]; ok {
		return i
	}
	return -1
}

// add takes the models that are not there yet.
func (l *modelList) add(data gjson.Result) { l.take(data, false, func(string) bool { return true }) }

// serve takes the models of an engine that it is asked for; what it says of
// them goes before what others do.
func (l *modelList) serve(data gjson.Result, asked func(id string) bool) { l.take(data, true, asked) }

func (l *modelList) take(data gjson.Result, replace bool, wanted func(id string) bool) {
	data.ForEach(func(_, m gjson.Result) bool {
		id := m.Get("id")
		if id.Type == gjson.String && wanted(id.Str) {
			l.put(id.Str, m.Raw, replace)
		}
		return true
	})
}

func (l *modelList) put(id, raw string, replace bool) {
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
	l.models = append(l.models, listedModel{id, raw})
}

// released is when gpt-oss was: the day of creation of models of which only the
// name is known.
const released = 1754352000

// configured adds a model that nobody has told of.
func (l *modelList) configured(name string, s *Server) {
	m, _ := s.cfg.Model(name)
	l.put(name, string(appendModel(nil, name, "envoy-harmony", s.contextLength(&m))), false)
}

// appendModel writes a model of which no more is known.
func appendModel(dst []byte, id, owner string, contextLength int) []byte {
	dst = jsontext.AppendString(append(dst, `{"id":`...), id)
	dst = fmt.Appendf(dst, `,"object":"model","created":%d,"owned_by":`, released)
	dst = jsontext.AppendString(dst, owner)
	if contextLength > 0 {
		dst = fmt.Appendf(dst, `,"max_model_len":%d`, contextLength)
	}
	return append(dst, '}')
}

// append writes the list. What the one that it begins with has beside its models
// stays.
func (l *modelList) append(dst []byte) []byte {
	dst = append(dst, `{"object":"list","data":[`...)
	for i, m := range l.models {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, m.raw...)
	}
	dst = append(dst, ']')
	l.others.ForEach(func(key, value gjson.Result) bool {
		if key.Str != "object" && key.Str != "data" {
			dst = append(append(append(append(dst, ','), key.Raw...), ':'), value.Raw...)
		}
		return true
	})
	return append(dst, '}')
}
