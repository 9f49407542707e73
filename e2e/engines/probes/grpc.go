package probes

import (
	"encoding/binary"
	"encoding/json"
	"io"
	"math"
	"net/http"
	"slices"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"
)

// names are the names of a message's fields, with those of the messages in it.
type names map[protowire.Number]field

type field struct {
	name  string
	inner names
}

// columns are an OutputLogProbs.
var columns = names{1: {name: "floats"}, 2: {name: "ids"}, 3: {"top", names{1: {name: "floats"}, 2: {name: "ids"}}}}

// Fields that are texts, lists of numbers, or floats.
var (
	textFields = []string{
		"request_id", "finish_reason", "model_path", "tokenizer_path", "served_model_name", "model_type", "architectures",
		"default_sampling_params", "weight_version", "message",
	}
	listFields  = []string{"token_ids", "ids", "eos_ids"}
	floatFields = []string{"floats"}
)

// readFrames reads the messages of a call, and its status.
func (r *reading) readFrames(resp *http.Response) error {
	for {
		var prefix [5]byte
		if _, err := io.ReadFull(resp.Body, prefix[:]); err != nil {
			if r.probe.patience > 0 && resp.Request.Context().Err() != nil {
				return r.add("no end")
			}
			break
		}
		message := make([]byte, binary.BigEndian.Uint32(prefix[1:]))
		if _, err := io.ReadFull(resp.Body, message); err != nil {
			return r.add("cut")
		}
		if err := r.addMessage(message); err != nil {
			return err
		}
	}
	// An answer of headers only has its status in them.
	if resp.Header.Get("grpc-status") != "" {
		return r.addStatus(resp.Header)
	}
	return r.addStatus(resp.Trailer)
}

func (r *reading) addMessage(b []byte) error {
	s := r.engine.service()
	fields := s.response
	switch r.probe.path {
	case "GetModelInfo":
		fields = s.info
	case "HealthCheck":
		fields = names{1: {name: "healthy"}, 2: {name: "message"}}
	}
	object := decode(b, fields)
	for _, member := range []string{"chunk", "complete"} {
		inner, ok := object[member].(map[string]any)
		if !ok {
			continue
		}
		// The ids of a stream's Complete have come before.
		if repeats := member == "complete" && !r.probe.whole; !repeats {
			r.takeOutput(inner, 0)
		}

		index := 0
		if n, ok := inner["index"].(json.Number); ok {
			index, _ = strconv.Atoi(n.String())
		}
		return r.add(r.shape("", object, len(r.outputs[index])))
	}
	return r.add(r.shape("", object, 0))
}

// decode decodes a message to the form of JSON.
func decode(b []byte, fields names) map[string]any {
	object := map[string]any{}
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			object["broken"] = true
			return object
		}
		size := protowire.ConsumeFieldValue(number, kind, b[n:])
		if size < 0 {
			object["broken"] = true
			return object
		}
		f, known := fields[number]
		if !known {
			f.name = "field " + strconv.Itoa(int(number))
		}
		addField(object, f, kind, b[n:n+size])
		b = b[n+size:]
	}
	return object
}

func addField(object map[string]any, f field, kind protowire.Type, value []byte) {
	if kind == protowire.VarintType {
		v, _ := protowire.ConsumeVarint(value)
		object[f.name] = json.Number(strconv.FormatUint(v, 10))
		return
	}
	content, n := protowire.ConsumeBytes(value)
	if kind != protowire.BytesType || n < 0 {
		object[f.name] = "value"
		return
	}

	switch {
	case f.inner != nil:
		// Those that are repeated are alike.
		object[f.name] = decode(content, f.inner)
	case slices.Contains(textFields, f.name):
		object[f.name] = string(content)
	case slices.Contains(floatFields, f.name):
		var list []any
		for len(content) > 0 {
			bits, n := protowire.ConsumeFixed32(content)
			if n < 0 {
				break
			}
			list, content = append(list, json.Number(strconv.FormatFloat(float64(math.Float32frombits(bits)), 'e', 3, 32))), content[n:]
		}
		object[f.name] = list
	case slices.Contains(listFields, f.name):
		var list []any
		for len(content) > 0 {
			v, n := protowire.ConsumeVarint(content)
			if n < 0 {
				break
			}
			list, content = append(list, json.Number(strconv.FormatUint(v, 10))), content[n:]
		}
		object[f.name] = list
	default:
		object[f.name] = "value"
	}
}
