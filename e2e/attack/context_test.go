//go:build attack

package attack

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/tidwall/gjson"
)

// contextArea has small requests that name much that is stored.
func contextArea() area {
	words := func(bytes int) string { return strings.Repeat("word ", bytes/5) }

	// storedItem stores a response and returns the id of its message.
	storedItem := func(a *attempt, bytes int) string {
		a.Helper()
		r := a.post("/v1/conversations", `{"items":[{"type":"message","role":"user","content":`+jsonText(words(bytes))+`}]}`)
		list := a.send(http.MethodGet, "/v1/conversations/"+gjson.Get(r.text, "id").Str+"/items", http.NoBody)
		id := gjson.Get(list.text, "data.0.id").Str
		if id == "" {
			a.Fatalf("no item is stored: %s, %s", r.brief(), list.brief())
		}
		return id
	}

	references := func(bytes, n int) func(*attempt) {
		return func(a *attempt) {
			item := fmt.Sprintf(`{"type":"item_reference","id":%q},`, storedItem(a, bytes))
			a.check(a.post(responsesPath, responsesBody("["+strings.Repeat(item, n)+`{"role":"user","content":"x"}]`, "")))
		}
	}

	big := func(a *attempt) string {
		id := ""
		for i := range 3 {
			item := `{"type":"message","role":"user","content":` + jsonText(words(30<<20)) + `}`
			if i == 0 {
				r := a.post("/v1/conversations", `{"items":[`+item+`]}`)
				id = gjson.Get(r.text, "id").Str
				continue
			}
			a.post("/v1/conversations/"+id+"/items", `{"items":[`+item+`]}`) // refused, if it is full
		}

		if id == "" {
			id = "conv_that_was_refused"
		}
		return id
	}

	return area{name: "context", attacks: []attack{
		{name: "19,000 references to an item of 20 KB", want: "4xx", fresh: true, run: references(20_000, 19_000)},
		{name: "19,900 references to an item of 480 KB", want: "4xx", run: references(480_000, 19_900)},
		{name: "500 references to an item of 60 KB", want: "4xx", run: references(60_000, 500)},
		{name: "a conversation with three items of 30 MB", want: "4xx", run: func(a *attempt) {
			a.check(a.post(responsesPath, responsesBody(simple, `,"conversation":`+jsonText(big(a)))))
		}},
		{name: "such a conversation, three times at once", want: "4xx 503", heavy: true, grow: 2 << 30, run: func(a *attempt) {
			body := responsesBody(simple, `,"conversation":`+jsonText(big(a)))
			a.check(a.atOnce(3, func() answerOf { return a.post(responsesPath, body) }))
		}},
		{name: "21,000 items for one conversation", want: "4xx", run: func(a *attempt) {
			items := strings.Repeat(`{"type":"message","role":"user","content":"x"},`, 20)
			r := a.post("/v1/conversations", `{"items":[`+items[:len(items)-1]+`]}`)
			path := "/v1/conversations/" + gjson.Get(r.text, "id").Str + "/items"
			for range 1100 {
				if r = a.post(path, `{"items":[`+items[:len(items)-1]+`]}`); r.status != http.StatusOK {
					break
				}
			}
			a.check(r)
		}},
		{name: "a chain of 40 turns of 40 KB", want: "400", run: func(a *attempt) {
			previous, last := "", answerOf{}
			for range 40 {
				last = a.post(responsesPath, responsesBody(jsonText(words(40_000)+"\nNOTHINK\nSAY hi"), previous))
				if last.status != http.StatusOK {
					break
				}
				previous = `,"previous_response_id":` + gjson.Get(last.text, "id").Raw
			}
			a.check(last)
		}},
		{name: "a chain that names itself", want: "4xx", run: func(a *attempt) {
			a.check(a.post(responsesPath, responsesBody(simple, `,"previous_response_id":"resp_0"`)))
		}},
	}}
}
