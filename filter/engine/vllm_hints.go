package engine

import "github.com/envoy-harmony/envoy-harmony/filter/retention"

// The versions of vLLM's hints about its KV cache, as of its source in September 2026. The member is that of
// TensorRT-LLM's HTTP API too, which takes any action and does nothing of it.
const (
	hintsProtocol = "0.1"
	retainAction  = "kv.retain"
	retainVersion = "1.0"
)

// kvHints writes what the engine is asked to keep of the prompt and of the output. vLLM 0.33's HTTP APIs
// ignore the member, as they do any other that they do not know.
func (o *object) kvHints(r *Request) {
	if r.Retention == nil {
		return
	}

	o.name("kv_hints")
	hints := newObject(o.b)
	hints.text("protocol_version", hintsProtocol)
	hints.text("message_id", r.ID.String())
	hints.name("actions")

	action := newObject(append(hints.b, '['))
	action.text("action_id", "retain")
	action.text("action_type", retainAction)
	action.text("action_version", retainVersion)
	action.name("payload")
	payload := newObject(action.b)
	payload.text("scope", r.Retention.Scope)
	payload.directives(r.Retention.Directives)
	action.b = payload.end()

	hints.b = append(action.end(), ']')
	o.b = hints.end()
}

// directives writes ranges of tokens of the prompt, and the output, each with its priority and with how many
// seconds that holds.
func (o *object) directives(all []retention.Directive) {
	o.name("directives")
	o.b = append(o.b, '[')
	for i, d := range all {
		if i > 0 {
			o.b = append(o.b, ',')
		}
		one := newObject(o.b)
		if d.Output {
			one.boolean("covers_output", true)
		} else {
			one.integer("start", d.Start)
			one.integer("end", d.End)
		}
		one.integer("priority", d.Priority)
		if d.Keep > 0 {
			one.number("duration", d.Keep.Seconds())
		}
		o.b = one.end()
	}
	o.b = append(o.b, ']')
}
