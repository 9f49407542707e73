package hosted

import (
	"context"
	"encoding/json"
	"errors"
	"regexp"
	"regexp/syntax"
	"slices"
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
	// Shown is what clients see of the tool where it is found: its name, or its definition.
	Shown string
}

// Name is the name by which the model calls the tool.
func (d *Deferred) Name() turn.ToolName {
	return turn.ToolName{Namespace: d.Namespace, Name: d.Tool.Name}
}

// Own reports whether the tool is a function of the client without a namespace.
func (d *Deferred) Own() bool { return d.Namespace == turn.FunctionsNamespace }

// Spaces returns tools in their namespaces.
func Spaces(deferred []Deferred) []harmony.Namespace {
	spaces := make([]harmony.Namespace, len(deferred))
	for i := range deferred {
		d := &deferred[i]
		spaces[i] = harmony.Namespace{Name: d.Namespace, Description: d.About, Tools: []harmony.Tool{d.Tool}}
	}
	return Merge(spaces)
}

// Merge puts the tools of a namespace that is there several times into the first. Only
// namespaces with equal names are merged; names that differ and look the same to the model are
// an error of the request, which is found later.
func Merge(spaces []harmony.Namespace) []harmony.Namespace {
	merged := make([]harmony.Namespace, 0, len(spaces))
	at := make(map[string]int, len(spaces))
	for _, space := range spaces {
		// The order of the first occurrence stays: it is a part of the prefix that engines cache.
		i, ok := at[space.Name]
		if !ok {
			at[space.Name] = len(merged)
			// The array beyond the slice is the caller's: appending must not write into it.
			space.Tools = slices.Clip(space.Tools)
			merged = append(merged, space)
			continue
		}

		merged[i].Tools = append(merged[i].Tools, space.Tools...)
		if merged[i].Description == "" {
			merged[i].Description = space.Description
		}
	}

	return merged
}

// SearchTool is a function that searches for tools.
type SearchTool struct {
	Name      string
	ByPattern bool // it takes a regular expression; otherwise words

	// Client is that the client runs the search. It may describe it.
	Client      bool
	Description string
	Parameters  json.RawMessage
}

// Function returns the search as the model sees it. about is what can be found.
func (t *SearchTool) Function(about *SearchDescription) harmony.Tool {
	f := harmony.Tool{Name: t.Name, Description: t.Description, Parameters: t.Parameters}
	switch {
	case t.Client && len(f.Parameters) > 0:
	case t.ByPattern:
		f.Parameters = json.RawMessage(patternParameters)
	default:
		f.Parameters = json.RawMessage(searchParameters)
	}
	if !t.Client || f.Description == "" {
		f.Description = about.String()
	}
	return f
}

// Search is the searches of a reply, and what they find.
type Search struct {
	Tools    []SearchTool
	Deferred []Deferred
	// Loaded are the tools that the model has already.
	Loaded map[turn.ToolName]bool

	rc *turn.RequestContext
}

// Search returns the searches, which find what is Deferred by now; nil: there are none. loaded are
// the tools that the model has already; the map becomes the search's own.
func (o *Offer) Search(loaded map[turn.ToolName]bool) *Search {
	if len(o.Searches) == 0 {
		return nil
	}
	return &Search{Tools: o.Searches, Deferred: o.Deferred, Loaded: loaded, rc: o.rc}
}

// Tool returns the search that a call is one of; nil: it is none.
func (s *Search) Tool(call *turn.CalledTool) *SearchTool {
	if s == nil || call.Namespace != turn.FunctionsNamespace {
		return nil
	}
	for i := range s.Tools {
		if s.Tools[i].Name == call.Name {
			return &s.Tools[i]
		}
	}
	return nil
}

// Find runs a search with what the model wrote. It returns the tools that fit best, without those
// that the model has; it has them from now on. The texts of errors are for the model.
func (s *Search) Find(t *SearchTool, text string) ([]Deferred, error) {
	var left []*Deferred
	for i := range s.Deferred {
		if d := &s.Deferred[i]; !s.Loaded[d.Name()] {
			left = append(left, d)
		}
	}

	run := searchDeferred
	if t.ByPattern {
		run = matchDeferred
	}
	best, err := run(searchSteps(s.rc), left, SearchArguments(text))

	found := make([]Deferred, len(best))
	for i, k := range best {
		found[i] = *left[k]
		if s.Loaded == nil {
			s.Loaded = map[turn.ToolName]bool{}
		}
		s.Loaded[found[i].Name()] = true
	}
	return found, err
}

// Bytes is about how much memory the definitions take; 0 for nil.
func (s *Search) Bytes() int {
	if s == nil {
		return 0
	}

	n := 0
	for i := range s.Deferred {
		t := &s.Deferred[i].Tool
		n += len(t.Name) + len(t.Description) + len(t.Parameters)
	}
	return n
}

// searchParameters are those of a search by words.
const searchParameters = `{"type":"object","properties":` +
	`{"query":{"type":"string","description":"What the tool should do, in a few words."},` +
	`"limit":{"type":"integer","description":"The most tools to find. 8 if left out."}},"required":["query"]}`

// patternParameters are those of a search by a regular expression.
const patternParameters = `{"type":"object","properties":` +
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

// searchSteps returns what takes the steps of a search of their share of the request's work.
func searchSteps(rc *turn.RequestContext) func(steps int) error {
	account := rc.Work.Part(context.Background(), maxSearch)
	return func(steps int) error {
		if account == nil {
			return ErrWork
		}
		return account.Spend(steps)
	}
}

// searchDeferred returns the indexes of the tools that fit the arguments of a search by words
// best, the best one first. It takes its steps of work before it works: an error of spend ends
// it with [ErrWork].
func searchDeferred(spend func(steps int) error, candidates []*Deferred, arguments string) ([]int, error) {
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

// matchDeferred returns the indexes of the tools that match the regular expression in the
// arguments of a search, in their order. Upper and lower case are the same. It takes its steps
// of work before it works: an error of spend ends it with [ErrWork].
func matchDeferred(spend func(steps int) error, candidates []*Deferred, arguments string) ([]int, error) {
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
