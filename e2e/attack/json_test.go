//go:build attack

package attack

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// Paths of the APIs.
const (
	chatPath      = "/v1/chat/completions"
	responsesPath = "/v1/responses"
	messagesPath  = "/v1/messages"
)

// chatBody is a chat request with a user message and further members, each after a
// comma.
func chatBody(content, more string) string {
	return `{"model":"gpt-oss-20b","messages":[{"role":"user","content":` + content + `}]` + more + `}`
}

// responsesBody is the same of Responses.
func responsesBody(input, more string) string {
	return `{"model":"gpt-oss-20b","input":` + input + more + `}`
}

// messagesBody is the same of Messages.
func messagesBody(content, more string) string {
	return `{"model":"gpt-oss-20b","max_tokens":50,"messages":[{"role":"user","content":` + content + `}]` + more + `}`
}

const simple = `"NOTHINK\nSAY hi"`

// posting is an attack of one request. The body is made when it is sent.
func posting(name, want, path string, body func() string) attack {
	return attack{name: name, want: want, run: func(a *attempt) { a.check(a.post(path, body())) }}
}

// inAllAPIs makes the attack for each API with a function that places a value where
// the text of the user stands.
func inAllAPIs(name, want string, value func() string) []attack {
	return []attack{
		posting(name+", chat", want, chatPath, func() string { return chatBody(value(), "") }),
		posting(name+", Responses", want, responsesPath, func() string { return responsesBody(value(), "") }),
		posting(name+", Messages", want, messagesPath, func() string { return messagesBody(value(), "") }),
	}
}

func repeated(text string, n int) func() string {
	return func() string { return strings.Repeat(text, n) }
}

func fixed(text string) func() string { return func() string { return text } }

const million = 1_000_000

func jsonArea() area {
	var all []attack
	add := func(some ...attack) { all = append(all, some...) }

	add(inAllAPIs("16 million levels of arrays", "4xx", repeated("[", 16*million))...)
	add(inAllAPIs("32 MB of [{", "4xx", repeated("[{", 16*million))...)
	add(inAllAPIs("16 million closed levels", "4xx", func() string { return strings.Repeat("[", 8*million) + strings.Repeat("]", 8*million) })...)
	add(inAllAPIs("10,000 nested objects", "4xx", func() string { return strings.Repeat(`{"a":`, 10_000) + "1" + strings.Repeat("}", 10_000) })...)
	add(inAllAPIs("invalid UTF-8", "2xx 400", fixed("\"a\xff\xfe b\""))...)
	add(inAllAPIs("overlong UTF-8", "2xx 400", fixed("\"a\xc0\xaf b\""))...)
	add(inAllAPIs("a lone surrogate", "2xx 400", fixed(`"a\ud800b"`))...)
	add(inAllAPIs("NUL as escape", "2xx 400", fixed(`"a\u0000b"`))...)
	add(inAllAPIs("NUL as byte", "2xx 400", fixed("\"a\x00b\""))...)
	add(inAllAPIs("a wrong escape", "2xx 400", fixed(`"a\x41b"`))...)
	add(inAllAPIs("1.1 million empty parts", "4xx", func() string { return "[" + strings.Repeat(`{},`, 1_100_000) + "{}]" })...)
	add(inAllAPIs("1 million text parts", "2xx 4xx", func() string {
		return "[" + strings.Repeat(`{"type":"text","text":""},`, million) + `{"type":"text","text":"x"}]`
	})...)

	for _, n := range []struct{ name, value, want string }{
		{"a number of 10 MB", strings.Repeat("9", 10*million), "400"},
		{"1e999999", "1e999999", "400"},
		{"NaN", "NaN", "400"},
		{"-0", "-0", "2xx"},
		{"a number with leading zeros", "0001", "2xx 400"},
		{"a string as number", `"1"`, "400"},
		{"an array as number", `[1]`, "400"},
	} {
		add(posting("temperature: "+n.name, n.want, chatPath, func() string { return chatBody(simple, `,"temperature":`+n.value) }))
	}

	for _, n := range []struct{ name, body, want string }{
		{"an empty body", "", "4xx"},
		{"null", "null", "4xx"},
		{"an array", "[]", "4xx"},
		{"a string", `"gpt-oss-20b"`, "4xx"},
		{"a number", "17", "4xx"},
		{"two objects", chatBody(simple, "") + chatBody(simple, ""), "400"},
		{"a byte order mark", "\ufeff" + chatBody(simple, ""), "2xx 4xx"},
		{"a comma at the end", chatBody(simple, ","), "400"},
		{"a comment", chatBody(simple, "/* x */"), "400"},
		{"an object that does not end", chatBody(simple, "")[:60], "400"},
		{"duplicate keys", chatBody(simple, `,"temperature":1,"temperature":2`), "2xx 400"},
		{"duplicate keys in a message", `{"model":"gpt-oss-20b","messages":[{"role":"user","role":"system","content":"a","content":"b"}]}`, "2xx 400"},
		{"the model is an object", `{"model":{"gpt-oss-20b":1},"messages":[]}`, "4xx"},
		{"the model is escaped", strings.Replace(chatBody(simple, ""), "gpt-oss", `\u0067pt-oss`, 1), "2xx 400"},
		{"no messages", `{"model":"gpt-oss-20b","messages":[]}`, "400"},
		{"messages are null", `{"model":"gpt-oss-20b","messages":null}`, "400"},
	} {
		add(posting("the body is "+n.name, n.want, chatPath, fixed(n.body)))
	}

	add(
		posting("1 million keys", "2xx 400", chatPath, func() string {
			var b strings.Builder
			for i := range million {
				fmt.Fprintf(&b, `,"k%d":0`, i)
			}
			return chatBody(simple, b.String())
		}),
		posting("a key of 10 MB", "2xx 400", chatPath, func() string { return chatBody(simple, `,"`+strings.Repeat("k", 10*million)+`":1`) }),
		posting("a model name of 10 MB", "4xx", chatPath, func() string {
			return `{"model":"gpt-oss-` + strings.Repeat("x", 10*million) + `","messages":[]}`
		}),
		posting("a tool name of 1 MB", "400", chatPath, func() string {
			return chatBody(simple, `,"tools":[{"type":"function","function":{"name":"`+strings.Repeat("n", million)+`"}}]`)
		}),
		posting("1.1 million messages", "4xx", chatPath, func() string {
			return `{"model":"gpt-oss-20b","messages":[` + strings.Repeat(`{"role":"user"},`, 1_100_000) + `{"role":"user","content":"x"}]}`
		}),
		posting("1.1 million items", "4xx", responsesPath, func() string {
			return responsesBody(`[`+strings.Repeat(`{"role":"user"},`, 1_100_000)+`{"role":"user","content":"x"}]`, "")
		}),
		posting("700,000 references", "4xx", responsesPath, func() string {
			return responsesBody(`[`+strings.Repeat(`{"type":"item_reference","id":"m"},`, 700_000)+`{"role":"user","content":"x"}]`, "")
		}),
		posting("200,000 messages of one letter", "4xx", chatPath, func() string {
			return `{"model":"gpt-oss-20b","messages":[` + strings.Repeat(`{"role":"user","content":"x"},`, 200_000) + `{"role":"user","content":"x"}]}`
		}),
	)

	return area{name: "json", attacks: all}
}

// tokenizerArea has long texts of each kind that the tokenizer splits in another way.
func tokenizerArea() area {
	const size = 30 << 20
	// White space alone would be no message of the prompt.
	fill := func(piece string) func() string {
		return func() string { return `"x` + strings.Repeat(piece, size/len(piece)) + `"` }
	}

	var all []attack
	for _, k := range []struct{ name, piece string }{
		{"one letter", "a"},
		{"spaces", " "},
		{"line feeds", `\n`},
		{"digits", "7"},
		{"punctuation", "!"},
		{"apostrophes", "'s"},
		{"emoji", "🙂"},
		{"combining marks", "\u0301"},
		{"CJK", "漢"},
		{"control tokens", "<|start|>"},
		{"escaped letters", `\u0061`},
		{"tabs and letters", `\ta`},
	} {
		all = append(all, posting("30 MB of "+k.name, "400 413", chatPath, func() string { return chatBody(fill(k.piece)(), "") }))
	}

	random := func() string {
		b := make([]byte, size)
		r := rand.New(rand.NewPCG(1, 2))
		for i := range b {
			b[i] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"[r.IntN(52)]
		}
		return `"` + string(b) + `"`
	}

	all = append(all, inAllAPIs("30 MB of random letters", "400 413", random)...)
	all = append(all,
		posting("30 MB of random letters, truncation auto", "2xx 400 413", responsesPath, func() string { return responsesBody(random(), `,"truncation":"auto"`) }),
		posting("30 MB of random letters, input_tokens", "2xx 400 413", responsesPath+"/input_tokens", func() string { return responsesBody(random(), "") }),
		attack{name: "30 MB of random letters, the client leaves", want: "idle again", run: func(a *attempt) {
			conn := a.dial()
			body := chatBody(random(), "")
			_, err := fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nhost: x\r\nx-tenant: attacker\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s", chatPath, len(body), body)
			_ = conn.Close()
			a.see("left, write error %v", err)
		}},
		attack{name: "30 MB of random letters, six at once", want: "400 413 503", heavy: true, grow: 2 << 30, run: func(a *attempt) {
			body := chatBody(random(), "")
			a.check(a.atOnce(6, func() answerOf { return a.post(chatPath, body) }))
		}},
	)

	return area{name: "tokenizer", attacks: all}
}

// atOnce sends a request n times at once and returns a reply that is not as expected,
// if there is one.
func (a *attempt) atOnce(n int, send func() answerOf) (worst answerOf) {
	replies := make(chan answerOf, n)
	for range n {
		go func() { replies <- send() }()
	}
	for i := range n {
		r := <-replies
		if i == 0 || !statusIs(r.status, a.attack.want) {
			worst = r
		}
	}
	return worst
}
