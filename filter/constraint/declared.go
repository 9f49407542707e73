package constraint

import "github.com/envoy-harmony/envoy-harmony/filter/work"

// The parts of a reply in which only the names of the tools that are called are fixed, or their
// arguments too.
//
//	reply  = message {end message}
//
// An engine compiles each recipient once: so there is one place for calls. Mixtures of their headers' forms, and
// messages without an end between them, are allowed for that. No model writes them.
var (
	plain     = forms("<|channel|>analysis<|message|>", "<|channel|>commentary<|message|>")
	addressed = forms(" to=", "<|channel|>commentary to=", "<|channel|>analysis to=")
	channel   = Optional{forms("<|channel|>commentary", "<|channel|>analysis")}
)

// declared returns the replies whose calls are of tools that are declared. Nobody asked for another
// order of messages than the model's own.
func (s *Spec) declared(account *work.Account) Format {
	var one Choice
	// Recipients whose arguments are any object, and any text.
	var objects, texts Choice
	for i := range s.Tools {
		tool := &s.Tools[i]
		switch {
		case tool.hasValue():
			one = append(one, addressedTo(Text(tool.Recipient), jsonType, tool.value(account)))
		case tool.Free, tool.Code:
			texts = append(texts, Text(tool.Recipient))
		default:
			objects = append(objects, Text(tool.Recipient))
		}
	}
	if len(objects) > 0 {
		one = append(one, addressedTo(objects, builtinType, NewValue(account, AnyObject)))
	}
	if len(texts) > 0 {
		one = append(one, addressedTo(texts, builtinType, Free{}))
	}

	one = append(one, Sequence{answerHeaders, Free{}}, Sequence{plain, Free{}})

	// Also where the client wants one call: who reads the reply ends it after that.
	return Some{Sequence{one, Optional{more}}}
}

// addressedTo returns the messages that call one of some recipients.
func addressedTo(recipients Format, types Choice, content Format) Format {
	return Sequence{addressed, recipients, channel, types, content}
}
