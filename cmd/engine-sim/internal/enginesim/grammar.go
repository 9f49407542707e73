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

// A real engine constrains each token by the request's grammar. The simulator knows
// its whole output in advance. It uses that output if the grammar accepts it, and
// otherwise the closest one that the grammar accepts.

// grammar is a format of xgrammar's structural tags, as far as the simulator
// supports them. It matches text in which each special token is one character.
type grammar struct {
	Type     string          `json:"type"`
	Value    string          `json:"value"`          // const_string
	Elements []*grammar      `json:"elements"`       // sequence, or
	Content  *grammar        `json:"content"`        // optional, star, plus, repeat
	Min      int             `json:"min"`            // repeat
	Max      int             `json:"max"`            // repeat
	Token    harmony.Token   `json:"token"`          // token
	Excludes []harmony.Token `json:"exclude_tokens"` // any_tokens
	Schema   json.RawMessage `json:"json_schema"`    // json_schema
	Pattern  string          `json:"pattern"`        // regex
	Grammar  string          `json:"grammar"`        // grammar

	regex    *regexp.Regexp
	ebnf     ebnf
	excludes string // the excluded special tokens as characters
}

// firstMark is the character of the first special token, beyond all characters in
// texts. The others follow.
const firstMark = 0x100000

func isMark(r rune) bool { return r >= firstMark }

func markOf(id harmony.Token) string { return string(rune(firstMark + id - harmony.TokenStartOfText)) }

// markedText returns the text of ids, with marks for special tokens.
func markedText(ids []harmony.Token) string {
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

// markedIDs returns the ids of a text with marks.
func markedIDs(s string) []harmony.Token {
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

// readGrammar parses a structural tag in JSON.
func readGrammar(tag string) (*grammar, *apiError) {
	var root struct {
		Type   string   `json:"type"`
		Format *grammar `json:"format"`
	}
	if json.Unmarshal([]byte(tag), &root) != nil || root.Type != "structural_tag" || root.Format == nil {
		return nil, badTag()
	}
	if err := root.Format.check(); err != nil {
		return nil, err
	}
	return root.Format, nil
}

// check rejects what the simulator does not support. Two cases that crash a real
// engine are internal errors: a stop token that the grammar requires, and a token
// that follows another element in a sequence.
func (g *grammar) check() *apiError {
	invalid := badTag()
	broken := &apiError{
		status: http.StatusInternalServerError, message: "Internal server error", kind: "InternalServerError",
	}

	parts := g.Elements
	switch g.Type {
	case "const_string":
		// In a text, xgrammar takes a special token and its spelling alike. The filter must ask for the token.
		if strings.Contains(g.Value, "<|") {
			return badRequest("", "The simulated engine supports special tokens only as tokens.")
		}
	case "token":
		// vLLM 0.32 (xgrammar 0.2.8) answers 500 to a tag that requires a stop token.
		if slices.Contains(eos, g.Token) || g.Token < harmony.TokenStartOfText {
			return broken
		}

	case "any_tokens":
		for _, id := range g.Excludes {
			// Ids below the special ones are pieces of text, which no mark stands for.
			if id >= harmony.TokenStartOfText {
				g.excludes += markOf(id)
			}
		}

	case "json_schema":
		if !gjson.ValidBytes(g.Schema) || !patternsSupported(gjson.ParseBytes(g.Schema)) {
			return badGrammar("json_schema_converter.cc:4175", errors.New("the schema is not supported"))
		}
	case "regex":
		var err error
		if g.regex, err = compileRegex(g.Pattern); err != nil {
			return badGrammar("regex_converter.cc:83", err)
		}
	case "grammar":
		var err error
		if g.ebnf, err = readEBNF(g.Grammar); err != nil {
			return badGrammar("grammar_parser.cc:820", err)
		}

	case "sequence", "or":
		if len(parts) == 0 {
			return invalid
		}
	case "optional", "star", "plus", "repeat":
		if g.Content == nil || g.Type == "repeat" && (g.Min != 1 || g.Max != 1) {
			return invalid
		}
		parts = []*grammar{g.Content}
	default:
		return badRequest("", "The simulated engine does not support the format "+g.Type+" of structural tags.")
	}

	for i, part := range parts {
		if part == nil {
			return invalid
		}
		// Once vLLM has compiled a tag with a stop token, it answers 500 to each tag that has a token in this
		// place, until it is restarted. The simulator always does.
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

// ends returns the positions in s at which a match that begins at a position can
// end.
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
		// A decoder stops after the value. What follows it belongs to the next element.
		d := json.NewDecoder(strings.NewReader(rest))
		var raw json.RawMessage
		if d.Decode(&raw) == nil && matchesSchema(raw, g.Schema) {
			return []int{at + int(d.InputOffset())}
		}

	case "regex":
		// Patterns are anchored at both ends, so a match is all the rest.
		if g.regex.MatchString(rest) {
			return []int{len(s)}
		}
	case "grammar":
		return g.ebnf.ends(s, at)

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
	case "star", "plus":
		places := []int{at}
		if g.Type == "plus" {
			places = g.Content.ends(s, at)
		}
		// Only new positions are followed, so that the loop ends for a content that matches nothing.
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

// freeEnds returns the positions at which any_tokens can end: before each special
// token up to the first excluded one, and at the end of s.
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

// maxSamples bounds the texts that samples returns.
const maxSamples = 4096

// samples returns short texts of the format: the shortest of each alternative.
func (g *grammar) samples() []string {
	switch g.Type {
	case "const_string":
		return []string{g.Value}
	case "json_schema":
		value, err := smallestInstance(string(g.Schema))
		if err != nil {
			return nil
		}
		return []string{value}
	case "regex":
		re, err := syntax.Parse(goRegex(g.Pattern), syntax.Perl)
		if err != nil {
			return nil
		}
		return []string{smallestMatch(re)}

	case "grammar":
		if text, ok := g.ebnf.sample(); ok {
			return []string{text}
		}
		return nil

	case "token":
		return []string{markOf(g.Token)}
	case "repeat", "plus":
		return g.Content.samples()

	case "or":
		var all []string
		for _, e := range g.Elements {
			all = append(all, e.samples()...)
		}
		return all[:min(len(all), maxSamples)]

	case "sequence":
		all := []string{""}
		for _, e := range g.Elements {
			all = product(all, e.samples())
		}
		return all
	}

	return []string{""} // optional, star, any_tokens
}

func product(heads, tails []string) []string {
	var all []string
	for _, h := range heads {
		for _, t := range tails {
			if len(all) < maxSamples {
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

// smallestMatch returns a short text that a regular expression matches.
func smallestMatch(re *syntax.Regexp) string {
	switch re.Op {
	case syntax.OpLiteral:
		return string(re.Rune)

	case syntax.OpCharClass:
		for i := 0; i+1 < len(re.Rune); i += 2 {
			if r := max(re.Rune[i], ' '); r <= re.Rune[i+1] { // prefer a printable character
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

// matchesSchema reports whether a value matches a JSON Schema as xgrammar compiles
// it: an object with declared properties has no others unless the schema allows it.
// The answer is false if the check takes too long.
func matchesSchema(value, schema []byte) bool {
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
	// xgrammar takes oneOf for anyOf: it does not check that only one of the schemas fits.
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

	ofType := func(t gjson.Result) bool { return isType(v, t.Str) }
	if types := s.Get("type"); types.Exists() && !slices.ContainsFunc(types.Array(), ofType) {
		return false
	}

	switch {
	case v.IsObject():
		return w.objectIsOf(v, s, depth)
	case v.IsArray():
		return within(len(v.Array()), s, "minItems", "maxItems") &&
			(!s.Get("items").Exists() ||
				!slices.ContainsFunc(v.Array(), func(x gjson.Result) bool { return !one(x)(s.Get("items")) }))
	case v.Type == gjson.String:
		return matchesPattern(v.Str, s.Get("pattern")) && within(len([]rune(v.Str)), s, "minLength", "maxLength")
	case v.Type == gjson.Number:
		return numberIsOf(v.Num, s)
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
			// xgrammar closes an object with declared properties, although JSON Schema leaves it open.
			ok = len(declared) == 0
		}
		return ok
	})

	return ok
}

// choose returns the output of the model under a grammar. In order of preference: a
// candidate that the grammar accepts; the reasoning and header of a candidate with
// the shortest content; the shortest text of the grammar.
func (g *grammar) choose(candidates []sequence) (sequence, error) {
	for _, seq := range candidates {
		if text, ok := seq.text(); ok && g.accepts(text) {
			return seq, nil
		}
	}

	// No candidate fits. The grammar's shortest texts replace the last message, and what the model has
	// thought before stays, so that tests see the reasoning they asked for. The texts with the candidate's
	// own header come first.
	samples := g.samples()
	var texts []string
	for _, seq := range candidates {
		text, _ := seq.text()
		thought, last := splitLast(text)
		header, _, _ := strings.Cut(last, messageMark)
		for _, s := range samples {
			if strings.HasPrefix(s, header+messageMark) {
				texts = append(texts, thought+s)
			}
		}
	}

	for _, seq := range candidates {
		text, _ := seq.text()
		thought, _ := splitLast(text)
		texts = append(texts, thought+shortest(samples))
	}

	for _, text := range append(texts, shortest(samples)) {
		if g.accepts(text) {
			ids := appendSigned(nil, markedIDs(text))
			return sequence{ids: append(ids, int32(harmony.TokenReturn))}, nil
		}
	}
	return sequence{}, errors.New("the grammar accepts no text that the simulator can generate")
}

// text returns the marked text of a sequence without its end token. It returns
// false if the sequence has no end.
func (s sequence) text() (string, bool) {
	ids := make([]harmony.Token, 0, len(s.ids))
	for _, id := range s.ids {
		switch id {
		case fillerForever:
			return markedText(ids), false
		case fillerWord:
			// A filler stands for any word, so any of them shows whether the grammar takes it.
			id = int32(fillerWords()[0])
		}
		ids = append(ids, harmony.Token(id))
	}

	// An end token stops the generation before the grammar sees it.
	if n := len(ids) - 1; n >= 0 && (slices.Contains(eos, ids[n]) || ids[n] == harmony.TokenEnd) {
		ids = ids[:n]
	}
	return markedText(ids), true
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
