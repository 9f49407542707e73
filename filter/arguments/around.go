package arguments

import (
	"bytes"
	"encoding/json"
	"strings"
	"unicode"
	"unicode/utf8"
)

// byteOrderMark begins some files, and no JSON.
const byteOrderMark = "\ufeff"

// fence is the line around code in Markdown.
const fence = "```"

// readWhole reads arguments that do not begin as an object: one in a JSON string, one with
// something around it, or a bare text, if the tool takes one.
func readWhole(text []byte, parameter string) (object []byte, made Repairs, ok bool) {
	trimmed := bytes.TrimSpace(text)
	bare := string(text)

	if bytes.HasPrefix(trimmed, []byte{'"'}) {
		// What is in quotes is a JSON string, or damaged.
		if json.Unmarshal(text, &bare) != nil {
			return nil, made, false
		}
		inner := reading{text: []byte(strings.TrimSpace(bare)), parameter: parameter}
		whole := inner.object() && inner.at == len(inner.text) && !inner.made[MissingBracket]

		// Text in single quotes may have got quotes around it, and no other escapes.
		unsure := inner.made[SingleQuotes] && bytes.IndexByte(text, '\\') >= 0
		if whole && !unsure {
			inner.made[Nested] = true
			return inner.out, inner.made, true
		}
	} else if object, made, ok = readAround(trimmed, parameter); ok {
		return object, made, true
	}

	if parameter == "" || !isBare(bare, parameter) {
		return nil, Repairs{}, false
	}
	object = appendText(appendOpening(nil, parameter), []byte(bare))
	return append(object, textEnd...), Repairs{RawText: true}, true
}

// readAround reads an object with something around it: a byte order mark, an introduction,
// a code fence, remarks, or the brackets of arrays with nothing else.
func readAround(text []byte, parameter string) (object []byte, made Repairs, ok bool) {
	text, hasMark := bytes.CutPrefix(text, []byte(byteOrderMark))
	start := bytes.IndexByte(text, '{')
	if start < 0 {
		return nil, made, false
	}

	// The object is read first: without one it is not worth while to look at what is around it.
	found := reading{text: text[start:], parameter: parameter}
	if !found.object() {
		return nil, made, false
	}

	lists, ok := found.head(string(text[:start]))
	ok = ok && found.tail(lists)
	found.made[TextAround] = found.made[TextAround] || hasMark
	return found.out, found.made, ok
}

// head reads what is before an object: the brackets of lists, which stand next to it, and what
// introduces it. It returns how many lists the object is in.
func (r *reading) head(text string) (lists int, ok bool) {
	introduction := strings.TrimRight(text, "[ \n\t\r")
	lists = strings.Count(text[len(introduction):], "[")
	introduction = strings.TrimSpace(introduction)
	return lists, introduction == "" || r.introduction(introduction)
}

// tail reads what is after an object, up to the end of the text: closing brackets that are
// too many, those of the lists of one that the object is in, and a remark.
func (r *reading) tail(lists int) bool {
	rest := string(r.text[r.at:])
	remark := strings.TrimLeft(rest, "}] \n\t\r")
	brackets := strings.TrimRight(rest[:len(rest)-len(remark)], " \n\t\r")

	if (brackets != "" || lists > 0) && !r.brackets(brackets, lists) {
		return false
	}

	// A remark is a word of its own: nobody knows what 5 is in {"a":1}5.
	glued := remark != "" && remark[0] != '`' && len(brackets)+len(remark) == len(rest)
	return !glued && r.remark(strings.TrimSpace(remark))
}

// brackets reads closing brackets. Those of the lists are the last ones.
func (r *reading) brackets(text string, lists int) bool {
	r.made[ExtraBracket] = true
	text = strings.Map(func(c rune) rune {
		if unicode.IsSpace(c) {
			return -1
		}
		return c
	}, text)

	// The lists end last. What is before their ends is too many.
	extra, found := strings.CutSuffix(text, strings.Repeat("]", lists))
	if !found || !r.isSure() {
		return false
	}

	// {}} may be the end of something, and 'a'}} the string a'} without its last quote.
	return extra == "" ||
		r.shape.filled && r.shape.isExtra(extra) && !r.made[SingleQuotes] && !r.shape.text.mayHaveBracket()
}

// introduction reads the text before an object: a sentence, a fence, or both.
func (r *reading) introduction(text string) bool {
	sentence, info, fenced := strings.Cut(text, fence)
	if fenced {
		r.made[Fence] = true
		if strings.TrimFunc(info, unicode.IsLetter) != "" {
			return false
		}
	}

	if sentence = strings.TrimSpace(sentence); sentence == "" {
		return fenced
	}
	r.made[TextAround] = true

	if body, found := strings.CutSuffix(sentence, ":"); found {
		// One word or two may be a member's name without quotes.
		return isProse(body, "") && len(strings.Fields(body)) > 2
	}
	last := sentence[len(sentence)-1]
	return isProse(sentence, "") && (last == '.' || last == '!')
}

// remark reads the text after an object: nothing, a fence, a sentence, or both.
func (r *reading) remark(text string) bool {
	text, fenced := strings.CutPrefix(text, fence)
	if fenced {
		r.made[Fence] = true
	}
	if text = strings.TrimSpace(text); text == "" {
		return true
	}
	r.made[TextAround] = true
	return isRemark(text)
}

// inSentences stands in sentences about code too. A colon and an equals sign do not belong
// here: what they are in may be a member whose quotes are lost.
const inSentences = ";-–—_()/%`"

// isRemark reports whether a text after an object is about it, and no part of it or another
// value.
func isRemark(text string) bool {
	if isProse(text, "") {
		_, isWord := pythonWords[text]
		return !isWord && !json.Valid([]byte(text))
	}

	// One word or two of this kind may be more of something.
	first, _ := utf8.DecodeRuneInString(text)
	return unicode.IsLetter(first) && len(strings.Fields(text)) > 2 && isProse(text, inSentences)
}

// isProse reports whether a text is words and what stands between words, which may be some
// more characters, and nothing that JSON or code could have there.
func isProse(text, more string) bool {
	words := false
	var before rune

	for i, c := range text {
		switch {
		case unicode.IsLetter(c):
			words = true
		case c == '\'' || c == '’':
			// An apostrophe stands between letters, a quotation mark does not.
			following, _ := utf8.DecodeRuneInString(text[i+utf8.RuneLen(c):])
			if !unicode.IsLetter(before) || !unicode.IsLetter(following) {
				return false
			}
		// A comma that comes first may be the one before another member.
		case unicode.IsSpace(c), unicode.IsDigit(c), c == '.', c == '!', c == '?',
			c == ',' && i > 0, strings.ContainsRune(more, c):
		default:
			return false
		}
		before = c
	}

	return words
}

// isBare reports whether a text can be nothing but the value of a tool's only parameter. It
// is not if it may be, or may have, all or a part of an object, of another notation with
// the parameter's name, or of a string whose quotes are lost.
func isBare(text, parameter string) bool {
	trimmed := strings.TrimSpace(text)
	if trimmed == "" || !utf8.ValidString(text) {
		return false
	}

	// Numbers, literals and arrays, as JSON and Python write them, are other values.
	if literals[strings.ToLower(trimmed)] || json.Valid([]byte(trimmed)) {
		return false
	}

	// The first line of a code fence that has lost its back quotes.
	if line, _, more := strings.Cut(trimmed, "\n"); more && languages[strings.ToLower(strings.TrimSpace(line))] {
		return false
	}

	// A text begins with a word, a path or a variable, and not with a list's dash or a comment.
	first, _ := utf8.DecodeRuneInString(trimmed)
	if first == '-' || !isNameRune(first) && !strings.ContainsRune("/.~$@!*", first) {
		return false
	}
	if strings.HasPrefix(trimmed, "//") || strings.HasPrefix(trimmed, "/*") {
		return false
	}

	// At its end something may be missing.
	if strings.ContainsAny(trimmed[len(trimmed)-1:], "),:=") || strings.IndexFunc(text, unicode.IsLetter) < 0 {
		return false
	}

	// Brackets may be those of an object, and a quote within a word the end of a string.
	if strings.ContainsAny(text, "{}[]<>") || strings.Count(text, "(") != strings.Count(text, ")") ||
		!hasWholeQuotes(text) || !hasPairs(trimmed) || isAboutCode(trimmed) {
		return false
	}

	// \n is a line break if the quotes are lost, and two characters if they never were.
	if strings.Contains(text, `\`) || strings.Contains(text, fence) {
		return false
	}
	return !isAssigned(trimmed) && !hasMember(text) && !hasName(text, parameter)
}

// hasWholeQuotes reports whether each double quote of a text that opens stands before a word,
// and each that closes after one.
func hasWholeQuotes(text string) bool {
	opens := true
	for i := 0; i < len(text); i++ {
		if text[i] != '"' {
			continue
		}

		// The ends of the text are as good as white space.
		beside := byte(' ')
		switch {
		case opens && i > 0:
			beside = text[i-1]
		case !opens && i+1 < len(text):
			beside = text[i+1]
		}

		if !isSpace(beside) && !strings.ContainsRune("()=;,.", rune(beside)) {
			return false
		}
		opens = !opens
	}
	return opens
}

// literals are what languages write in place of a value, in lower case.
var literals = wordSet("true false none null nil nan undefined infinity inf")

// languages are the names behind the back quotes of a code fence, in lower case.
var languages = wordSet(`bash sh shell shellscript zsh fish console terminal powershell pwsh ps1 cmd bat batch
	python python3 py javascript js typescript ts jsx tsx json jsonc json5 yaml yml toml xml html css sql go golang
	rust c cpp c++ csharp java kotlin swift ruby rb php perl lua r scala dockerfile makefile diff patch markdown md
	text txt plaintext plain code`)

func wordSet(list string) map[string]bool {
	set := map[string]bool{}
	for word := range strings.FieldsSeq(list) {
		set[word] = true
	}
	return set
}

// hasPairs reports whether single quotes and back quotes come in pairs, and no back quote or
// quote of typography is last: it may be the end of a string or a sentence that has lost its
// beginning. An apostrophe is no quote, and a shell's command may end with a whole pair.
func hasPairs(text string) bool {
	single := 0
	var before rune
	for i, c := range text {
		behind, _ := utf8.DecodeRuneInString(text[i+utf8.RuneLen(c):])
		if c == '\'' && (!unicode.IsLetter(before) || !unicode.IsLetter(behind)) {
			single++
		}
		before = c
	}
	return single%2 == 0 && strings.Count(text, "`")%2 == 0 && !strings.ContainsRune("`“”‘’", before)
}

// isAboutCode reports whether a text may be a sentence with code in back quotes, which a shell
// would run.
func isAboutCode(text string) bool {
	parts := strings.Split(text, "`")
	if len(parts) == 1 {
		return false
	}

	// Back quotes come in pairs: each second part is code.
	var sentence strings.Builder
	for i := 0; i < len(parts); i += 2 {
		sentence.WriteString(parts[i])
	}
	return isProse(strings.TrimSpace(sentence.String()), inSentences+":\"")
}

// isAssigned reports whether a text begins with a name and : or =, as in f(a=1) and --a=1
// too. A URL does not.
func isAssigned(text string) bool {
	word, following, _ := strings.Cut(text, " ")

	// In the first word: name=1, or name:.
	at := strings.IndexAny(word, ":=")
	if at >= 0 && (!strings.HasPrefix(word[at:], "://") || strings.HasSuffix(word, "://")) {
		return true
	}

	// After it: name = 1.
	following = strings.TrimLeft(following, " ")
	if strings.HasPrefix(following, "=") || strings.HasPrefix(following, ":") {
		return true
	}

	// A name may have several words.
	following = strings.TrimLeftFunc(text, func(c rune) bool { return c == ' ' || isNameRune(c) })
	following, found := strings.CutPrefix(following, ":")
	return found && (following == "" || strings.ContainsAny(following[:1], " \n\t\"'{["))
}

// quotes are what may be around a member's name.
const quotes = "\"'`“”‘’"

// hasMember reports whether a text has a colon beside a quote, as members have.
func hasMember(text string) bool {
	for {
		before, following, found := strings.Cut(text, ":")
		if !found {
			return false
		}

		before = strings.TrimRight(before, " \n\t\r")
		last, _ := utf8.DecodeLastRuneInString(before)
		next, _ := utf8.DecodeRuneInString(strings.TrimLeft(following, " \n\t\r"))
		if strings.ContainsRune(quotes, last) || strings.ContainsRune(quotes, next) {
			return true
		}

		text = following
	}
}

// hasName reports whether a text has a name as a member's, in any notation: "name", name: …,
// name=…, <name>… or =name.
func hasName(text, name string) bool {
	const space = " \n\t\r"

	// A name of nothing is everywhere.
	if strings.Trim(name, space) == "" {
		return true
	}
	for at := 0; ; at += len(name) {
		n := strings.Index(text[at:], name)
		if n < 0 {
			return false
		}
		at += n
		before, following := text[:at], text[at+len(name):]

		// "name" and its kind: the quotes touch it.
		last, _ := utf8.DecodeLastRuneInString(before)
		next, _ := utf8.DecodeRuneInString(following)
		if strings.ContainsRune(quotes, last) || strings.ContainsRune(quotes, next) {
			return true
		}

		// name: 1, name = 1, <name>1, and =name, which is a parameter's too.
		before, following = strings.TrimRight(before, space), strings.TrimLeft(following, space)
		if strings.HasSuffix(before, "=") || following != "" && strings.ContainsAny(following[:1], ":=>") {
			return true
		}
	}
}

func isNameRune(c rune) bool {
	return unicode.IsLetter(c) || unicode.IsDigit(c) || c == '_' || c == '-'
}
