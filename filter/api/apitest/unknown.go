package apitest

import (
	"slices"
	"strings"
	"testing"
)

// HandlesUnknown shows what becomes of an object of a type that no API has, in a place of a
// conversation: its text is read, other content is refused by position and type, and what has none
// is ignored under a name. body has %s where the object stands, at is its path. ignored is "" where
// every object is content.
func (a *API) HandlesUnknown(t *testing.T, body, at, ignored string) {
	t.Helper()
	const words = "some plain words"
	send := func(members string) (prompt, message string, listed bool) {
		r, err := a.Decode([]byte(strings.Replace(body, "%s", `{"type":"new_kind"`+members+`}`, 1)), NewContext())
		switch {
		case err == nil:
			return Spell(t, r.Engine().Prompt), "", slices.Contains(r.Ignored(), ignored)
		case err.Status != 400 || err.Param != at+".type" || !strings.Contains(err.Message, `"new_kind"`):
			t.Errorf("%s: %v", members, err)
		}
		return "", err.Message, false
	}

	for _, members := range []string{
		`,"text":"` + words + `"`, `,"id":"a","text":"` + words + `","status":"completed"`,
	} {
		if prompt, message, _ := send(members); !strings.Contains(prompt, words) {
			t.Errorf("%s: %s%s", members, prompt, message)
		}
	}
	for _, members := range []string{
		`,"id":"a","encrypted_content":"gAAA"`, `,"data":"AAAA"`, `,"source":{"type":"url","url":"u"}`,
		`,"file_id":"f"`, `,"content":[{"type":"x","data":"A"}]`,
	} {
		if prompt, message, _ := send(members); message == "" {
			t.Errorf("%s is accepted:\n%s", members, prompt)
		}
	}

	const nothing = `,"id":"a","mode":"fast","at":7,"content":[],"data":"","source":{},"encrypted_content":null`
	if _, message, listed := send(nothing); listed != (ignored != "") || listed == (message != "") {
		t.Errorf("%s: listed %t, %s", nothing, listed, message)
	}
}
