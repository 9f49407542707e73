package fields

import (
	"strings"

	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
)

// Clients were made for many services, and send their names of what every API here has: a limit
// of the output, its end, instructions. Such a field would change the answer, and so it is never
// ignored: it is refused with the API's own name. It is not mapped, because the names do not mean
// the same: of max_length, for one, the prompt is a part.

// Own are an API's own fields for what other services have other names for. The texts stand after
// the name of the field that is refused.
type Own struct {
	Limit, Stop, Answers, System, Conversation, Effort, Format string
}

// vocabulary are the names of services and SDKs that no API here has: of Gemini, Cohere, TGI,
// llama.cpp, Ollama, text-generation-webui, NeMo, lm-eval, and of older versions of the APIs here.
// The lists of them are in filter/api/apitest/testdata.
var vocabulary = []struct {
	names string
	use   func(o Own) string
	// Values that ask for nothing; nil: as for other refused fields.
	unless []string
}{
	{
		`max_completion_tokens max_decode_tokens max_gen_len max_gen_toks max_generated_tokens max_length
			max_new_tokens max_out_len max_output_tokens max_response_output_tokens max_response_tokens
			max_token_count max_tokens max_tokens_to_sample n_predict num_predict num_tokens tokens_to_generate`,
		func(o Own) string { return o.Limit },
		[]string{"-1"},
	},
	{
		`antiprompt custom_stopping_strings end_sequences stop stop_list stop_sequence stop_sequences stop_str
			stop_strings stop_word stop_words stopping_strings until`,
		func(o Own) string { return o.Stop }, nil,
	},
	{
		`best_of candidate_count n n_cmpl num_generations num_return_sequences`,
		func(o Own) string { return o.Answers },
		[]string{"1"},
	},
	{
		`developer instructions preamble system system_instruction system_message system_prompt`,
		func(o Own) string { return o.System }, nil,
	},
	{`chat_history contents inputs`, func(o Own) string { return o.Conversation }, nil},
	{`effort thinking_level`, func(o Own) string { return o.Effort }, nil},
	{
		`json_mode response_mime_type response_schema`,
		func(o Own) string { return o.Format },
		[]string{"false", `"text/plain"`},
	},
}

// WithVocabulary returns the fields of an API, with the names that other services have for what it
// has.
func WithVocabulary[D any](fields jsontext.Table[D], own Own) jsontext.Table[D] {
	refused := jsontext.Table[D]{}
	for _, v := range vocabulary {
		for name := range strings.FieldsSeq(v.names) {
			refused[name] = jsontext.Row[D]{
				Refused: name + " is no field of this API. " + v.use(own), Unless: v.unless,
			}
		}
	}
	return fields.Beside(refused)
}
