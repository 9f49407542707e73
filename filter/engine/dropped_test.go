package engine

import (
	"cmp"
	"net/http"
	"reflect"
	"slices"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/constraint"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// asked is each parameter of a request, with a value that no engine has by default.
var asked = map[string]Request{
	"N":                 {N: 2},
	"MaxTokens":         {MaxTokens: 7},
	"MinTokens":         {MinTokens: 3},
	"StopTokens":        {StopTokens: []harmony.Token{200007}},
	"Constraint":        {Constraint: constraint.Text("x")},
	"Temperature":       {Temperature: ptr(.3)},
	"TopP":              {TopP: ptr(.3)},
	"TopK":              {TopK: ptr(3)},
	"MinP":              {MinP: ptr(.3)},
	"FrequencyPenalty":  {FrequencyPenalty: ptr(.3)},
	"PresencePenalty":   {PresencePenalty: ptr(.3)},
	"RepetitionPenalty": {RepetitionPenalty: ptr(1.3)},
	"Seed":              {Seed: ptr(int64(3))},
	"LogitBias":         {LogitBias: map[harmony.Token]float64{7: 3}},
	"Logprobs":          {Logprobs: true},
	"TopLogprobs":       {Logprobs: true, TopLogprobs: 3},
	"CacheSalt":         {CacheSalt: "x"},
	"Priority":          {Priority: ptr(3)},
}

// notAsked are the fields that say nothing about what is generated, or that have tests of their own.
var notAsked = []string{"ID", "Model", "Prompt", "Unlimited", "Advised", "Retention", "Whole", "Disaggregation"}

// doneHere are the parameters that an engine has not, and its decoder has, by the test that shows it.
var doneHere = map[string]string{"llamacpp StopTokens": "TestLlamaCPPStopsAtTokens"}

// What a client asks for, an engine is told, or the client that it is refused or ignored: no dialect
// drops a parameter in silence.
func TestNothingIsDroppedInSilence(t *testing.T) {
	t.Parallel()
	of := reflect.TypeFor[Request]()
	for _, name := range notAsked {
		if _, ok := of.FieldByName(name); !ok {
			t.Errorf("notAsked has %s, which is no field of Request", name)
		}
	}

	for _, dialect := range dialects {
		for _, field := range reflect.VisibleFields(of) {
			r, ok := asked[field.Name]
			if !ok {
				if !slices.Contains(notAsked, field.Name) {
					t.Errorf("Request.%s has no value in asked: add one", field.Name)
				}
				continue
			}

			told, err := dialect.Encode(asking(r))
			if err != nil {
				if err.Status != http.StatusBadRequest {
					t.Errorf("%s refuses %s with %d", dialect.Kind(), field.Name, err.Status)
				}
				continue
			}
			// Log probabilities are what their number is about.
			without, err := dialect.Encode(asking(Request{Logprobs: r.TopLogprobs > 0}))
			if err != nil {
				t.Fatal(err)
			}

			silent := reflect.DeepEqual(told, without) && len(dialect.Ignores(&r)) == 0
			_, here := doneHere[dialect.Kind()+" "+field.Name]
			switch {
			case silent && !here:
				t.Errorf("%s drops %s in silence: send it, return a 400 from Encode, or name it in Ignores",
					dialect.Kind(), field.Name)
			case here && !silent:
				t.Errorf("%s sends %s: take it out of doneHere", dialect.Kind(), field.Name)
			}
		}
	}
}

// asking returns a request with what every one has.
func asking(r Request) *Request {
	r.ID, r.Model, r.Prompt = CallID{Unique: "5feceb66", Number: 1, Request: "r"}, "m", []harmony.Token{1}
	r.N, r.MaxTokens = cmp.Or(r.N, 1), cmp.Or(r.MaxTokens, 100)
	return &r
}

func TestLlamaCPPStopsAtTokens(t *testing.T) {
	t.Parallel()
	d := llamacpp{}.NewDecoder(asking(Request{StopTokens: []harmony.Token{200007}}))
	body := `data: {"content":"","tokens":[7,200007,9],"stop":false,"tokens_predicted":3,"tokens_evaluated":1}` + "\n\n"
	chunks, err := d.Feed([]byte(body), nil)
	if err != nil || len(chunks) != 1 || !slices.Equal(chunks[0].Tokens, []harmony.Token{7, 200007}) || chunks[0].Finish != FinishStop {
		t.Errorf("%+v, %v", chunks, err)
	}
}
