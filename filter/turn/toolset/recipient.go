package toolset

import (
	"cmp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"github.com/envoy-harmony/envoy-harmony/filter/turn/item"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// A model writes the names of tools in many ways: in quotation marks, with other
// separators, with a prefix too many, cut, or with a piece of the header after them. All
// that is decided here, by comparing what it wrote with the tools of the request: as the
// prompt shows them, and as the client sent them.
//
// The comparison has stages, and a stage counts only if no earlier one has found a tool:
// a right spelling always wins. In each stage the spelling is compared as it is, without
// repetitions, and without prefixes. If a stage finds two tools, the model may have meant
// either, so the call is one of an unknown tool. A call that is not made costs the model
// another try; a call of the wrong tool can cost more.

// Address is what a message's recipient is.
type Address uint8

// What a recipient is.
const (
	NoRecipient Address = iota // none
	Offered                    // a tool of the request
	Respelled                  // a tool of the request, in another spelling
	Unsure                     // no tool; whether the message is a call tells its end
	Unknown                    // something else
)

// Addressee returns the tool that a message calls.
func (s *Set) Addressee(header *harmony.Header) (item.ToolName, Address) {
	recipient, marked := writtenRecipient(header)
	if recipient == "" {
		return item.ToolName{}, NoRecipient
	}

	called, found := s.Resolve(recipient)
	if found == Unknown {
		if spaced, ok := s.resolveSpaced(header); ok {
			return spaced, Respelled
		}
	}

	if found == NoRecipient && isReader(recipient) {
		return item.ToolName{}, NoRecipient
	}
	// What the message is tells only its end: the recipient is a word of the header, or it is no
	// tool and not marked as a recipient, or the message is an answer.
	if found == NoRecipient || found == Unknown && (!marked || header.Channel == harmony.ChannelFinal) {
		return s.UnknownTool(recipient), Unsure
	}
	return called, found
}

// resolveSpaced returns the tool whose name has a space that the parser took for the end of
// the recipient.
func (s *Set) resolveSpaced(h *harmony.Header) (item.ToolName, bool) {
	if h.Behind == "" {
		return item.ToolName{}, false
	}
	t, found := s.Resolve(h.Recipient + " " + h.Behind)
	return t, found == Offered || found == Respelled
}

// isReader reports whether a recipient is who reads the reply. What is written to them is no
// call and need not wait for its end.
func isReader(recipient string) bool {
	words := recipientWords(recipient)
	return len(words) == 1 && (words[0] == "user" || words[0] == "all")
}

// writtenRecipient returns the recipient of a message, and whether it was written as one.
// The model sometimes begins a call as the tool's own message.
func writtenRecipient(h *harmony.Header) (recipient string, marked bool) {
	if h.Recipient == "" && h.Role == harmony.RoleTool {
		return h.Name, false
	}
	return h.Recipient, !h.Unmarked
}

// Resolve returns the tool that a recipient means. A recipient in a namespace that is none
// of plain functions is unknown, even if a tool has its name; the unknown tool's name
// includes the namespace. A function of a namespace that is a tool itself means that tool.
// A word of the header is no recipient.
func (s *Set) Resolve(recipient string) (item.ToolName, Address) {
	if t, ok := s.byRecipient[recipient]; ok {
		return t, Offered
	}
	if ts := s.byName[strings.TrimPrefix(recipient, item.FunctionsNamespace+".")]; len(ts) == 1 {
		return ts[0], Offered
	}

	// What follows is not for most calls, so that its tables are made when they are needed.
	words := recipientWords(recipient)
	if s.spellings == nil {
		s.spellings = s.newSpellings()
	}
	sent := strings.TrimPrefix(norm.NFC.String(clip(recipient, maxRecipient)), item.FunctionsNamespace+".")
	if ts := s.spellings.sent[sent]; len(ts) == 1 {
		return ts[0], Respelled
	}

	forms := s.spellings.forms(words)
	for _, stage := range stages {
		switch found := stage(s, forms); {
		case len(found) == 1:
			return found[0], Respelled
		case len(found) > 1:
			return s.UnknownTool(recipient), Unknown
		}
	}

	if len(words) == 0 || headerWords[words[len(words)-1]] {
		return item.ToolName{}, NoRecipient
	}

	// Code tools are namespaces: a function of one means the tool.
	for _, form := range forms {
		space, _, _ := strings.Cut(form, ".")
		if t, ok := s.byRecipient[strings.ToLower(space)]; ok {
			return t, Respelled
		}
	}
	return s.UnknownTool(recipient), Unknown
}

// UnknownTool returns a tool that the request does not have, under the name that the model
// wrote. It has no tool's name, or the client would run that one.
func (s *Set) UnknownTool(recipient string) item.ToolName {
	name := unknownName(recipient)
	for s.declares(name) {
		name += "_"
	}
	return item.ToolName{Name: name}
}

// Unoffered returns the tool that a message calls where no tools are offered.
func Unoffered(header *harmony.Header) item.ToolName {
	recipient, _ := writtenRecipient(header)
	return item.ToolName{Name: unknownName(recipient)}
}

// unknownName returns the name of a tool that nobody knows, as the model wrote it.
func unknownName(recipient string) string {
	words := recipientWords(recipient)
	for len(words) > 1 && strings.EqualFold(words[0], item.FunctionsNamespace) {
		words = words[1:]
	}

	name := clip(strings.Join(words, "_"), item.MaxNameBytes)
	return cmp.Or(name, "unknown")
}

// declares reports whether a name is that of a tool, by the model's or the client's names.
func (s *Set) declares(name string) bool {
	if len(s.byName[name]) > 0 {
		return true
	}
	return s.spellings != nil && len(s.spellings.sent[name]) > 0
}

// maxRecipient bounds what is read of a recipient, in bytes: a namespace, a name, and what
// can be around them.
const maxRecipient = 4 * item.MaxNameBytes

// recipientWords splits a recipient into the words that names can consist of. What follows
// a control token that is spelled as text is dropped.
func recipientWords(recipient string) []string {
	recipient, _, _ = strings.Cut(clip(recipient, maxRecipient), "<|")
	// A dash is a character of names, an arrow separates them.
	recipient = strings.ReplaceAll(norm.NFC.String(recipient), "->", ".")
	return strings.FieldsFunc(recipient, func(r rune) bool { return !harmony.IsNameRune(r) })
}

// clip returns the first n bytes of a text, without the part of a character at their end.
func clip(text string, n int) string {
	if len(text) <= n {
		return text
	}

	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n]
}

// prefixWords are the words that a model writes before the names of functions.
var prefixWords = map[string]bool{
	"functions": true, "function": true, "tools": true, "tool": true, "namespace": true, "to": true, "recipient": true,
	"assistant": true, "analysis": true, "commentary": true,
}

// gluedPrefixes are those of them that it writes with _ too. The others are words of names:
// assistant_delete is not delete.
var gluedPrefixes = map[string]bool{"functions": true, "function": true, "tools": true, "tool": true}

// maxPrefixes bounds the prefixes that are removed one by one.
const maxPrefixes = 6

// spellings are the names of a toolset in the forms in which they are compared. They are
// made once: a model can make thousands of calls of tools that nobody has.
type spellings struct {
	// As the client sent them, with and without namespace.
	sent map[string][]item.ToolName
	// Folded, with the namespace.
	whole map[string][]item.ToolName
	// Folded, of tools that no other has the name of.
	alone map[string][]item.ToolName
	// Of whole and alone, sorted by their folded form.
	names []spelledName
	// The namespaces, except that of plain functions.
	spaces map[string]bool
	// longest is how many bytes the longest folded name has. What a model writes can be
	// much longer.
	longest int
}

// spelledName is a name of a tool before and after it is folded.
type spelledName struct {
	name, folded string
	// Bytes of the folded namespace.
	space int
	tool  item.ToolName
}

// forms returns the spellings in which a recipient is looked for: as it is, without
// repetitions, and without its prefixes. A prefix that is a namespace of the request is
// none.
func (p *spellings) forms(words []string) []string {
	if len(words) == 0 {
		return []string{""}
	}

	var forms []string
	for _, words := range repetitions(words) {
		forms = p.withoutPrefixes(forms, words)
	}
	return forms
}

// withoutPrefixes appends what is left of words as their prefixes are removed one by one.
func (p *spellings) withoutPrefixes(forms, words []string) []string {
	for range maxPrefixes {
		if form := strings.Join(words, "."); !slices.Contains(forms, form) {
			forms = append(forms, form)
		}

		first := strings.ToLower(words[0])
		if len(words) == 1 || !prefixWords[first] || p.spaces[first] {
			break
		}
		words = words[1:]
	}
	return forms
}

// repetitions returns words as they are, without their second half if it repeats the first,
// without repetitions at their end, and without any.
func repetitions(words []string) [][]string {
	all := [][]string{words}
	if half := len(words) / 2; len(words)%2 == 0 && slices.EqualFunc(words[:half], words[half:], strings.EqualFold) {
		words = words[:half]
		all = append(all, words)
	}

	last := len(words) - 1
	for last > 0 && strings.EqualFold(words[last-1], words[last]) {
		last--
	}
	return append(all, words[:last+1], slices.CompactFunc(slices.Clone(words), strings.EqualFold))
}

// stages are the ways of comparing the forms of a recipient with the names of the tools,
// the strictest one first. Each returns the tools that fit. The first form is the
// recipient as it is. In it other separators are as small a change as a prefix is in the
// others: tool.search may be tool_search, or search.
var stages = [...]func(s *Set, forms []string) []item.ToolName{
	func(s *Set, forms []string) []item.ToolName { return anyForm(forms[:1], s.exactly) },
	func(s *Set, forms []string) []item.ToolName {
		found := anyForm(forms[1:], s.exactly)
		if len(found) == 0 {
			return nil
		}
		return merge(found, s.spellings.folded(forms[0]))
	},
	func(s *Set, forms []string) []item.ToolName { return anyForm(forms, s.spellings.folded) },
	func(s *Set, forms []string) []item.ToolName { return anyForm(forms, s.spellings.withHeader) },
	func(s *Set, forms []string) []item.ToolName { return anyForm(forms, s.spellings.cut) },
	func(s *Set, forms []string) []item.ToolName { return anyForm(unglued(forms), s.spellings.folded) },
}

// anyForm returns the tools that fit one of some forms.
func anyForm(forms []string, fitting func(form string) []item.ToolName) (found []item.ToolName) {
	for _, form := range forms {
		found = merge(found, fitting(form))
	}
	return found
}

func merge(a, b []item.ToolName) []item.ToolName {
	if len(a) == 0 {
		return b
	}
	// It may be a list of the toolset.
	a = slices.Clip(a)
	for _, t := range b {
		if !slices.Contains(a, t) {
			a = append(a, t)
		}
	}
	return a
}

// unglued returns the forms whose prefix is glued to the name, without it.
func unglued(forms []string) (rest []string) {
	for _, form := range forms {
		if end := strings.IndexAny(form, "_-"); end > 0 && gluedPrefixes[strings.ToLower(form[:end])] {
			rest = append(rest, form[end+1:])
		}
	}
	return rest
}

// exactly returns the tools of exactly a spelling, with or without their namespace.
func (s *Set) exactly(form string) []item.ToolName {
	if t, ok := s.byRecipient[form]; ok {
		return []item.ToolName{t}
	}
	if ts := s.byName[strings.TrimPrefix(form, item.FunctionsNamespace+".")]; len(ts) > 0 {
		return ts
	}
	return s.spellings.sent[form]
}

func (s *Set) newSpellings() *spellings {
	table := &spellings{
		sent: map[string][]item.ToolName{}, whole: map[string][]item.ToolName{}, alone: map[string][]item.ToolName{},
		spaces: map[string]bool{},
	}
	for recipient, named := range s.byRecipient {
		name := recipient[strings.LastIndexByte(recipient, '.')+1:]
		space := strings.TrimSuffix(strings.TrimSuffix(recipient, name), ".")
		if space != item.FunctionsNamespace {
			table.spaces[strings.ToLower(space)] = true
		}

		// Built-in tools have one spelling, which the model was trained with.
		sent := norm.NFC.String(named.Name)
		if !named.Builtin {
			add(table.sent, sent, named)
		}
		if !named.Builtin && spelled(sent) != "" {
			add(table.sent, spelled(sent), named)
			add(table.sent, spelled(named.Namespace+"."+sent), named)
		}

		// Of signs alone nothing is left to compare.
		if fold(name) == "" {
			continue
		}
		table.addName(table.whole, recipient, len(fold(space)), named)
		if len(s.byName[name]) == 1 && s.byName[name][0] == named {
			table.addName(table.alone, name, 0, named)
			add(table.alone, fold(item.FunctionsNamespace+name), named)
		}
	}

	for _, names := range []map[string][]item.ToolName{table.whole, table.alone} {
		for name := range names {
			table.longest = max(table.longest, len(name))
		}
	}

	slices.SortFunc(table.names, func(a, b spelledName) int { return strings.Compare(a.folded, b.folded) })
	return table
}

// spelled returns a name in the form in which recipients are compared: words with dots
// between them.
func spelled(name string) string { return strings.Join(recipientWords(name), ".") }

func (p *spellings) addName(to map[string][]item.ToolName, name string, space int, t item.ToolName) {
	folded := fold(name)
	add(to, folded, t)
	p.names = append(p.names, spelledName{name, folded, space, t})
}

func add(to map[string][]item.ToolName, spelling string, t item.ToolName) {
	if spelling != "" && !slices.Contains(to[spelling], t) {
		to[spelling] = append(to[spelling], t)
	}
}

// folded returns the tools whose names are equal if letter case and separators do not
// count.
func (p *spellings) folded(form string) []item.ToolName {
	return p.foldedName(fold(form))
}

func (p *spellings) foldedName(form string) []item.ToolName {
	if len(form) > p.longest {
		return nil
	}
	// Otherwise the recipient has a namespace, or is one.
	if found := p.whole[form]; len(found) > 0 {
		return found
	}
	return p.alone[form]
}

// withHeader returns the tools after whose folded name there are words of a header only.
// Of several names the longest counts. A word after _ or - is one of the name:
// delete_message is not delete.
func (p *spellings) withHeader(form string) []item.ToolName {
	builtin := false
	for {
		rest, more := cutGlued(form, gluedWords)
		if !more {
			rest, more = cutGlued(form, nameWords)
			builtin = builtin || more
		}
		if !more {
			return nil
		}

		// The model knows the names of built-in tools: nothing else is called as one with such a word.
		form = rest
		found := p.folded(form)
		isClients := func(t item.ToolName) bool { return !t.Builtin }
		if len(found) > 0 && (!builtin || !slices.ContainsFunc(found, isClients)) {
			return found
		}
	}
}

const (
	// leastCut is how many bytes of a name have to be there if it was cut.
	leastCut = 3
	// mostCut is how many names may begin with them: more are not looked at.
	mostCut = 8
)

// endings make another word of a word: delete_user is not delete_users.
var endings = map[string]bool{"s": true, "es": true, "d": true, "ed": true, "ing": true}

// cut returns the tools whose name begins with a spelling that ends inside of its last
// word, and has at least three quarters of it. A spelling that ends with a word is another
// name: delete is not delete_all.
func (p *spellings) cut(form string) (found []item.ToolName) {
	form = fold(form)
	first, _ := slices.BinarySearchFunc(p.names, form, func(n spelledName, form string) int {
		return strings.Compare(n.folded, form)
	})

	// Names are sorted: those that begin with the spelling stand together. More than a few fit nearly
	// any beginning.
	for i := first; i < min(first+mostCut, len(p.names)) && strings.HasPrefix(p.names[i].folded, form); i++ {
		n := &p.names[i]
		left, missing := len(form)-n.space, len(n.folded)-len(form)
		if left < leastCut || missing <= 0 || 3*missing > left {
			continue
		}
		if endsInside(n.name, form) && !endings[n.folded[len(form):]] && !slices.Contains(found, n.tool) {
			found = append(found, n.tool)
		}
	}

	if last := first + mostCut; last < len(p.names) && strings.HasPrefix(p.names[last].folded, form) {
		return nil
	}
	return found
}

// endsInside reports whether the folded beginning of a name ends inside of a word, and not of
// a number, which would be another one. In scripts without upper case letters, most of which
// write words without anything between them, nobody can tell where one ends.
func endsInside(name, folded string) bool {
	n, before := 0, rune(0)

	for _, r := range name {
		if n == len(folded) {
			return unicode.IsLower(r) || unicode.IsUpper(r) && unicode.IsUpper(before)
		}
		if isFolded(r) {
			n += utf8.RuneLen(unicode.ToLower(r))
		}
		before = r
	}
	return false
}

// headerWords are words of a message header that a malformed header can have in
// place of the recipient.
var headerWords = map[string]bool{
	"all": true, "assistant": true, "user": true, "system": true, "developer": true, "functions": true,
	"analysis": true, "commentary": true, "final": true, "json": true, "code": true, "to": true,
}

// gluedWords are words of a message header that a malformed header can have
// directly after the recipient.
var gluedWords = []string{"commentary", "analysis", "json", "assistant", "constrain"}

// nameWords are the others of them. They are words of names as well: archivechannel and run.code
// may be other tools than archive and run. After a space or a control token, where they can be
// nothing but words of the header, the parser has cut them off.
var nameWords = []string{"final", "code", "channel", "message"}

// cutGlued removes one of some words, and the dot before it, at the end of a text. None of
// them is the end of another.
func cutGlued(text string, words []string) (rest string, found bool) {
	for _, w := range words {
		at := len(text) - len(w)
		if at <= 0 || !strings.EqualFold(text[at:], w) || text[at-1] == '_' || text[at-1] == '-' {
			continue
		}
		// Otherwise it is a word of the name, as in deleteMessage.
		if rest, dotted := strings.CutSuffix(text[:at], "."); dotted || text[at] == w[0] {
			return rest, true
		}
	}
	return text, false
}

// fold reduces a name to its letters, in lower case, and digits.
func fold(name string) string {
	return strings.Map(func(r rune) rune {
		if isFolded(r) {
			return unicode.ToLower(r)
		}
		return -1
	}, name)
}

// isFolded reports whether a character is one of a folded name.
func isFolded(r rune) bool { return r != '_' && r != '-' && harmony.IsNameRune(r) }

// parallelName is the folded name of a tool with which models that have been trained on
// ChatGPT's tools make several calls in one.
const parallelName = "multitooluseparallel"

// IsParallel reports whether a recipient is that tool.
func IsParallel(recipient string) bool {
	for _, form := range (&spellings{}).forms(recipientWords(recipient)) {
		if fold(form) == parallelName {
			return true
		}
	}
	return false
}
