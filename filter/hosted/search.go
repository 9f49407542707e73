package hosted

import (
	"context"
	"errors"
	"regexp"
	"regexp/syntax"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// Deferred is a tool that the model does not see before a search finds it.
//
// With a search among its tools, a request keeps deferred ones out of the prompt. The
// model sees one function that searches for them. Those that it finds join the prompt after
// the search, so that what precedes it stays in the engine's prefix cache. How a client
// names the search and sees what it finds is the API's.
type Deferred struct {
	Namespace string
	About     string // the description of the namespace
	Tool      harmony.Tool
}

// SearchParameters are those of a search by words.
const SearchParameters = `{"type":"object","properties":` +
	`{"query":{"type":"string","description":"What the tool should do, in a few words."},` +
	`"limit":{"type":"integer","description":"The most tools to find. 8 if left out."}},"required":["query"]}`

// PatternParameters are those of a search by a regular expression.
const PatternParameters = `{"type":"object","properties":` +
	`{"pattern":{"type":"string","description":"A regular expression, of 200 characters at most, that the name, ` +
	`the description or the parameters of the tool match."},` +
	`"limit":{"type":"integer","description":"The most tools to find. 8 if left out."}},"required":["pattern"]}`

// The bounds of what a search's description says about the tools that can be found,
// in bytes.
const (
	maxSearchable  = 16 << 10
	maxSearchEntry = 300
)

// SearchDescription is the description of a search: what it does, and what can be found.
type SearchDescription struct{ text strings.Builder }

// Add names something that can be found: a namespace, or a function that has none.
func (d *SearchDescription) Add(name, description string) {
	if d.text.Len() == 0 {
		d.text.WriteString("\nThere are tools for:")
	}
	// A request can have thousands of deferred tools: the description is a part of every prompt.
	if d.text.Len() > maxSearchable {
		return
	}

	d.text.WriteString("\n- " + name)
	description, _, _ = strings.Cut(strings.TrimSpace(description), "\n")
	if description != "" {
		description = strings.ToValidUTF8(description[:min(len(description), maxSearchEntry)], "")
		d.text.WriteString(": " + description)
	}
}

// String returns the description.
func (d *SearchDescription) String() string {
	return "Searches for tools that are not listed yet, and adds those that it finds. Call it before you say that a " +
		"tool is missing." + d.text.String()
}

// SearchArguments returns the arguments of a search for tools as a JSON object. What
// is none is the query.
func SearchArguments(text string) string {
	if jsontext.IsObject(text) {
		return string(jsontext.AppendCompact(nil, text))
	}
	return string(append(jsontext.AppendString([]byte(`{"query":`), text), '}'))
}

// The number of tools that a search finds.
const (
	foundByDefault = 8
	foundAtMost    = 32
)

// limitOf returns how many tools the arguments of a search ask for.
func limitOf(arguments string) int {
	// The model may write any number, and each tool that is found becomes a part of the prompt.
	if v := gjson.Get(arguments, "limit"); v.Type == gjson.Number && v.Num >= 1 {
		return int(min(v.Num, foundAtMost))
	}
	return foundByDefault
}

// SearchSteps returns what takes the steps of a search of their share of the request's work.
func SearchSteps(rc *turn.RequestContext) func(steps int) error {
	account := rc.Work.Part(context.Background(), maxSearch)
	return func(steps int) error {
		if account == nil {
			return ErrWork
		}
		return account.Spend(steps)
	}
}

// SearchDeferred returns the indexes of the tools that fit the arguments of a search by words
// best, the best one first. It takes its steps of work before it works: an error of spend ends
// it with [ErrWork].
func SearchDeferred(spend func(steps int) error, candidates []*Deferred, arguments string) ([]int, error) {
	query := gjson.Get(arguments, "query")
	// A model that mixes the two searches up means what it wrote.
	if !query.Exists() {
		query = gjson.Get(arguments, "pattern")
	}
	return rank(spend, candidates, query.String(), limitOf(arguments))
}

// The bounds of a regular expression of a search: its bytes, and the instructions of its program,
// of which a few bytes can make tens of thousands.
const (
	maxPattern = 200
	maxProgram = 500
)

// maxSearch is how many steps of work a search may take on the exchange's goroutine: about 0.1 s.
const maxSearch = 2_000_000

// stepCells is how many cells of a match a step of work has: each character of a text is compared
// with each instruction of the program, which takes some 7 ns.
const stepCells = 8

// The errors of a search. Their texts are for the model.
var (
	ErrPattern = errors.New("the pattern is no regular expression of RE2 with at most 200 characters")
	ErrWork    = errors.New("the search takes too much work: send fewer tools or a simpler pattern")
)

// MatchDeferred returns the indexes of the tools that match the regular expression in the
// arguments of a search, in their order. Upper and lower case are the same. It takes its steps
// of work before it works: an error of spend ends it with [ErrWork].
func MatchDeferred(spend func(steps int) error, candidates []*Deferred, arguments string) ([]int, error) {
	pattern := gjson.Get(arguments, "pattern")
	// Anthropic's own documentation has both names.
	if !pattern.Exists() {
		pattern = gjson.Get(arguments, "query")
	}
	if pattern.Type != gjson.String || pattern.Str == "" || len(pattern.Str) > maxPattern {
		return nil, ErrPattern
	}
	expression, size, err := compile("(?i)" + pattern.Str)
	if err != nil {
		return nil, err
	}

	most := limitOf(arguments)
	var found []int
	for i, d := range candidates {
		parameters := d.Tool.Parameters[:min(len(d.Tool.Parameters), maxIndexed)]
		for _, part := range []string{d.Tool.Name, d.Tool.Description, string(parameters)} {
			part = part[:min(len(part), maxIndexed)]
			// A match cannot be stopped, and the model writes the pattern that the client asks for.
			if spend(1+size*len(part)/stepCells) != nil {
				return nil, ErrWork
			}
			if expression.MatchString(part) {
				found = append(found, i)
				break
			}
		}
		if len(found) == most {
			break
		}
	}
	return found, nil
}

// compile returns a regular expression, and how many instructions its program has.
func compile(pattern string) (*regexp.Regexp, int, error) {
	tree, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return nil, 0, ErrPattern
	}
	program, err := syntax.Compile(tree.Simplify())
	if err != nil {
		return nil, 0, ErrPattern
	}
	if len(program.Inst) > maxProgram {
		return nil, 0, ErrWork
	}

	expression, err := regexp.Compile(pattern)
	if err != nil {
		return nil, 0, ErrPattern
	}
	return expression, len(program.Inst), nil
}

// FoundText is what the model sees of the outcome of a search: the names of the tools as the
// prompt has them.
func FoundText(spaces []harmony.Namespace) string {
	var names []string
	for i := range spaces {
		space := spaces[i].Name
		if space != turn.FunctionsNamespace {
			// The model must find the names in the prompt as it has to write them.
			space = turn.ModelName(space)
		}
		for _, t := range spaces[i].Tools {
			names = append(names, space+"."+turn.ModelName(t.Name))
		}
	}

	if len(names) == 0 {
		return "No tools were found beside those that are listed already."
	}

	return strconv.Itoa(len(names)) + " tools were found, and can be called now: " + strings.Join(names, ", ")
}
