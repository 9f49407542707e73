package enginesim

import (
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// A real engine lets its model say only what the request's grammar allows. The
// simulated one knows what it is going to say before it begins: it says that if
// the grammar allows it, else something like it that does.

// grammar is one format of a structural tag of xgrammar, as far as the
// simulator knows them. It works on text in which every special token is a
// character of its own.
type grammar struct {
	Type     string          `json:"type"`
	Value    string          `json:"value"`          // const_string
	Elements []*grammar      `json:"elements"`       // sequence, or
	Content  *grammar        `json:"content"`        // optional, star, repeat
	Min      int             `json:"min"`            // repeat
	Max      int             `json:"max"`            // repeat
	Token    harmony.Token   `json:"token"`          // token
	Excludes []harmony.Token `json:"exclude_tokens"` // any_tokens
	Schema   json.RawMessage `json:"json_schema"`    // json_schema
	Pattern  string          `json:"pattern"`        // regex

	regex    *regexp.Regexp
	excludes string // as characters
}

// firstMark stands for the first special token, behind all characters that
// texts have; the others follow.
const firstMark = 0x100000

func isMark(r rune) bool { return r >= firstMark }

func markOf(id harmony.Token) string { return string(rune(firstMark + id - harmony.TokenStartOfText)) }

// marked is the text of ids.
func marked(ids []harmony.Token) string {
	var b strings.Builder
	from := 0
	for i, id := range ids {
		if id >= harmony.TokenStartOfText {
			b.WriteString(show(ids[from:i]) + markOf(id))
			from = i + 1
		}
	}
	return b.String() + show(ids[from:])
}

// unmarked is the ids of a text.
func unmarked(s string) []harmony.Token {
	var ids []harmony.Token
	for s != "" {
		i := strings.IndexFunc(s, isMark)
		if i < 0 {
			return append(ids, encode(s)...)
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		ids = append(append(ids, encode(s[:i])...), harmony.TokenStartOfText+harmony.Token(r-firstMark))
		s = s[i+size:]
	}
	return ids
}

// readGrammar reads a structural tag, the JSON text that engines take.
func readGrammar(tag string) (*grammar, *refusal) {
	var root struct {
		Type   string   `json:"type"`
		Format *grammar `json:"format"`
	}
	if json.Unmarshal([]byte(tag), &root) != nil || root.Type != "structural_tag" || root.Format == nil {
		return nil, badRequest("", "Invalid structural tag specification.")
	}
	if err := root.Format.check(); err != nil {
		return nil, err
	}
	return root.Format, nil
}

// check refuses what the simulator does not know. What a real engine does not
// survive is its internal error: a stop token that the grammar asks for, and a
// token that stands directly in a sequence behind something else.
func (g *grammar) check() *refusal {
	invalid := badRequest("", "Invalid structural tag specification.")
	broken := &refusal{http.StatusInternalServerError, "Internal server error", "InternalServerError", ""}
	parts := g.Elements
	switch g.Type {
	case "const_string":
		if strings.Contains(g.Value, "<|") {
			return badRequest("", "The simulated engine knows special tokens as tokens only.")
		}
	case "token":
		if slices.Contains(eos, g.Token) || g.Token < harmony.TokenStartOfText {
			return broken
		}
	case "any_tokens":
		for _, id := range g.Excludes {
			if id >= harmony.TokenStartOfText {
				g.excludes += markOf(id)
			}
		}
	case "json_schema":
		if !gjson.ValidBytes(g.Schema) || !knowsPatterns(gjson.ParseBytes(g.Schema)) {
			return invalid
		}
	case "regex":
		var err error
		if g.regex, err = compileRegex(g.Pattern); err != nil {
			return invalid
		}
	case "sequence", "or":
		if len(parts) == 0 {
			return invalid
		}
	case "optional", "star", "repeat":
		if g.Content == nil || g.Type == "repeat" && (g.Min != 1 || g.Max != 1) {
			return invalid
		}
		parts = []*grammar{g.Content}
	default:
		return badRequest("", "The simulated engine does not know the format "+g.Type+" of structural tags.")
	}
	for i, part := range parts {
		if part == nil {
			return invalid
		}
		if i > 0 && g.Type == "sequence" && part.Type == "token" {
			return broken
		}
		if err := part.check(); err != nil {
			return err
		}
	}
	return nil
}

func (g *grammar) accepts(s string) bool { return slices.Contains(g.ends(s, 0), len(s)) }

// ends are the places at which the format can end in s if it begins at a place.
func (g *grammar) ends(s string, at int) []int {
	rest := s[at:]
	switch g.Type {
	case "const_string":
		if strings.HasPrefix(rest, g.Value) {
			return []int{at + len(g.Value)}
		}
	case "token":
		if mark := markOf(g.Token); strings.HasPrefix(rest, mark) {
			return []int{at + len(mark)}
		}
	case "any_tokens":
		return g.freeEnds(s, at)
	case "repeat":
		return g.Content.ends(s, at)
	case "json_schema":
		d := json.NewDecoder(strings.NewReader(rest))
		var raw json.RawMessage
		if d.Decode(&raw) == nil && isOf(raw, g.Schema) {
			return []int{at + int(d.InputOffset())}
		}
	case "regex":
		if g.regex.MatchString(rest) {
			return []int{len(s)}
		}
	case "sequence":
		places := []int{at}
		for _, e := range g.Elements {
			places = e.endsOf(s, places)
		}
		return places
	case "or":
		var places []int
		for _, e := range g.Elements {
			places = append(places, e.ends(s, at)...)
		}
		return places
	case "optional":
		return append(g.Content.ends(s, at), at)
	case "star":
		places := []int{at}
		for last := places; len(last) > 0; places = append(places, last...) {
			last = slices.DeleteFunc(g.Content.endsOf(s, last), func(p int) bool { return slices.Contains(places, p) })
		}
		return places
	}
	return nil
}

func (g *grammar) endsOf(s string, places []int) []int {
	next := make([]int, 0, len(places))
	for _, at := range places {
		next = append(next, g.ends(s, at)...)
	}
	slices.Sort(next)
	return slices.Compact(next)
}

// freeEnds are the places where any tokens can end: before each special token,
// up to the first that is excluded, and at the end.
func (g *grammar) freeEnds(s string, at int) []int {
	var places []int
	for i, r := range s[at:] {
		if !isMark(r) {
			continue
		}
		places = append(places, at+i)
		if strings.ContainsRune(g.excludes, r) {
			return places
		}
	}
	return append(places, len(s))
}

// maxSmall bounds the texts that small gives.
const maxSmall = 4096

// small are short texts of the format: the smallest of every alternative.
func (g *grammar) small() []string {
	switch g.Type {
	case "const_string":
		return []string{g.Value}
	case "json_schema":
		return []string{smallestInstance(string(g.Schema))}
	case "regex":
		re, err := syntax.Parse(goRegex(g.Pattern), syntax.Perl)
		if err != nil {
			return nil
		}
		return []string{smallestMatch(re)}
	case "token":
		return []string{markOf(g.Token)}
	case "repeat":
		return g.Content.small()
	case "or":
		var all []string
		for _, e := range g.Elements {
			all = append(all, e.small()...)
		}
		return all[:min(len(all), maxSmall)]
	case "sequence":
		all := []string{""}
		for _, e := range g.Elements {
			all = product(all, e.small())
		}
		return all
	}
	return []string{""} // optional, star, any_tokens
}

func product(heads, tails []string) []string {
	var all []string
	for _, h := range heads {
		for _, t := range tails {
			if len(all) < maxSmall {
				all = append(all, h+t)
			}
		}
	}
	return all
}

func shortest(texts []string) string {
	if len(texts) == 0 {
		return ""
	}
	return slices.MinFunc(texts, func(a, b string) int { return len(a) - len(b) })
}

// smallestMatch is a short text that a regular expression matches.
func smallestMatch(re *syntax.Regexp) string {
	switch re.Op {
	case syntax.OpLiteral:
		return string(re.Rune)
	case syntax.OpCharClass:
		for i := 0; i+1 < len(re.Rune); i += 2 {
			if r := max(re.Rune[i], ' '); r <= re.Rune[i+1] { // no control character if there is another
				return string(r)
			}
		}
		return string(re.Rune[:min(1, len(re.Rune))])
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		return "a"
	case syntax.OpCapture:
		return smallestMatch(re.Sub[0])
	case syntax.OpPlus:
		return smallestMatch(re.Sub[0])
	case syntax.OpRepeat:
		return strings.Repeat(smallestMatch(re.Sub[0]), re.Min)
	case syntax.OpConcat:
		var b strings.Builder
		for _, sub := range re.Sub {
			b.WriteString(smallestMatch(sub))
		}
		return b.String()
	case syntax.OpAlternate:
		return smallestMatch(re.Sub[0])
	}
	return ""
}

// isOf reports whether a value is of a JSON Schema, as xgrammar reads it: an
// object whose properties are declared has no others unless the schema says so.
// What takes too long is not.
func isOf(value, schema []byte) bool {
	w := &schemaWalk{root: gjson.ParseBytes(schema)}
	return w.isOf(gjson.ParseBytes(value), w.root, 0) && w.steps <= maxSchemaSteps
}

func (w *schemaWalk) isOf(v, s gjson.Result, depth int) bool {
	if !w.step(s, depth) || s.IsBool() {
		return s.Bool()
	}
	if ref := s.Get("$ref"); ref.Exists() {
		return w.isOf(v, w.resolve(ref.String()), depth+1)
	}
	one := func(v gjson.Result) func(gjson.Result) bool {
		return func(s gjson.Result) bool { return w.isOf(v, s, depth+1) }
	}
	for _, k := range []string{"anyOf", "oneOf"} {
		if list := s.Get(k); list.Exists() && !slices.ContainsFunc(list.Array(), one(v)) {
			return false
		}
	}
	for _, part := range s.Get("allOf").Array() {
		if !one(v)(part) {
			return false
		}
	}
	same := func(x gjson.Result) bool { return python(x) == python(v) }
	if enum := s.Get("enum"); enum.Exists() && !slices.ContainsFunc(enum.Array(), same) {
		return false
	}
	if c := s.Get("const"); c.Exists() && !same(c) {
		return false
	}
	if types := s.Get("type"); types.Exists() && !slices.ContainsFunc(types.Array(), func(t gjson.Result) bool { return isType(v, t.Str) }) {
		return false
	}
	switch {
	case v.IsObject():
		return w.objectIsOf(v, s, depth)
	case v.IsArray():
		return within(len(v.Array()), s, "minItems", "maxItems") &&
			(!s.Get("items").Exists() || !slices.ContainsFunc(v.Array(), func(x gjson.Result) bool { return !one(x)(s.Get("items")) }))
	case v.Type == gjson.String:
		return ofPattern(v.Str, s.Get("pattern")) && within(len([]rune(v.Str)), s, "minLength", "maxLength")
	case v.Type == gjson.Number:
		least, most := s.Get("minimum"), s.Get("maximum")
		return (!least.Exists() || v.Num >= least.Num) && (!most.Exists() || v.Num <= most.Num)
	}
	return true
}

func isType(v gjson.Result, name string) bool {
	switch name {
	case "object":
		return v.IsObject()
	case "array":
		return v.IsArray()
	case "string":
		return v.Type == gjson.String
	case "number":
		return v.Type == gjson.Number
	case "integer":
		return v.Type == gjson.Number && v.Num == math.Trunc(v.Num)
	case "boolean":
		return v.IsBool()
	}
	return name == "null" && v.Type == gjson.Null
}

func within(n int, s gjson.Result, least, most string) bool {
	m := s.Get(most)
	return n >= int(s.Get(least).Int()) && (!m.Exists() || n <= int(m.Int()))
}

func (w *schemaWalk) objectIsOf(v, s gjson.Result, depth int) bool {
	for _, k := range s.Get("required").Array() {
		if !v.Get(gjson.Escape(k.String())).Exists() {
			return false
		}
	}
	declared := s.Get("properties").Map()
	more := s.Get("additionalProperties")
	ok := true
	v.ForEach(func(k, x gjson.Result) bool {
		property, known := declared[k.String()]
		switch {
		case known:
			ok = w.isOf(x, property, depth+1)
		case more.Exists():
			ok = w.isOf(x, more, depth+1)
		default:
			ok = len(declared) == 0
		}
		return ok
	})
	return ok
}

// obey gives what the model says under a grammar: the first of what it would
// like to say that the grammar allows, else the same reasoning and header with
// the smallest content, else the shortest text of the grammar.
func (g *grammar) obey(likes []sequence) (sequence, error) {
	for _, seq := range likes {
		if text, ok := seq.text(); ok && g.accepts(text) {
			return seq, nil
		}
	}
	small := g.small()
	var texts []string
	for _, seq := range likes {
		text, _ := seq.text()
		thought, last := splitLast(text)
		header, _, _ := strings.Cut(last, messageMark)
		for _, s := range small {
			if strings.HasPrefix(s, header+messageMark) {
				texts = append(texts, thought+s)
			}
		}
	}
	for _, seq := range likes {
		text, _ := seq.text()
		thought, _ := splitLast(text)
		texts = append(texts, thought+shortest(small))
	}
	for _, text := range append(texts, shortest(small)) {
		if g.accepts(text) {
			ids := appendSigned(nil, unmarked(text))
			return sequence{ids: append(ids, int32(harmony.TokenReturn))}, nil
		}
	}
	return sequence{}, errors.New("the grammar allows nothing that the simulator can say")
}

// text is what a sequence says, without the token that ends it. It is false if
// the sequence has no end.
func (s sequence) text() (string, bool) {
	ids := make([]harmony.Token, 0, len(s.ids))
	for _, id := range s.ids {
		switch id {
		case anyWords:
			return marked(ids), false
		case anyWord:
			id = int32(harmless()[0])
		}
		ids = append(ids, harmony.Token(id))
	}
	if n := len(ids) - 1; n >= 0 && (slices.Contains(eos, ids[n]) || ids[n] == harmony.TokenEnd) {
		ids = ids[:n]
	}
	return marked(ids), true
}

var (
	messageMark = markOf(harmony.TokenMessage)
	nextMessage = markOf(harmony.TokenStart) + "assistant"
)

// splitLast splits a reply before its last message.
func splitLast(text string) (before, last string) {
	if i := strings.LastIndex(text, nextMessage); i >= 0 {
		i += len(nextMessage)
		return text[:i], text[i:]
	}
	return "", text
}
