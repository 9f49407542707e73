package main

import (
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/api/apitest"
)

var (
	changedWhy  = flag.String("reason", "", "with -update: why verdicts change")
	changedRows = flag.String("rows", "", "with -update: the rows that change, a regular expression of CLIENT/ROW; empty: all")
)

// TestCorpus reads each request of the corpus through the filter's door. Its verdict, and what the model
// would be asked, are those of verdicts/CLIENT.txt. A row changes on purpose only:
//
//	go test ./e2e/corpus -update -reason "why" [-rows "claude-code/(3|17)"]
//
// writes the new verdicts, with the reason in the row. So does a request that is refused from the
// beginning. A request that is new and accepted needs no reason.
func TestCorpus(t *testing.T) {
	clients, err := clientsOf("requests")
	if err != nil || len(clients) == 0 {
		t.Fatalf("no client has requests: %v", err)
	}
	bytes := 0
	for _, client := range clients {
		if file, err := os.Stat(rowsFile("requests", client)); err == nil {
			bytes += int(file.Size())
		}
	}
	if bytes > maxBytes {
		t.Errorf("the requests have %d bytes, more than %d: leave rows out that differ in nothing which matters", bytes, maxBytes)
	}

	for _, client := range clients {
		t.Run(client, func(t *testing.T) {
			t.Parallel()
			rows, err := readRows("requests", client)
			if err != nil {
				t.Fatal(err)
			}
			compareVerdicts(t, client, rows, verdictsOf(t, rows))
		})
	}
}

// maxBytes is how large the requests may be: people read them.
const maxBytes = 1 << 20

// verdictsOf returns the verdicts of a client's requests, which are made in their order: later ones have
// ids of earlier replies.
func verdictsOf(t *testing.T, rows []*row) []*verdict {
	t.Helper()
	d := openDoor(t)
	replies := map[int]map[string][]string{}
	verdicts := make([]*verdict, 0, len(rows))
	for _, r := range rows {
		var missing []string
		resolve := func(text string) string {
			return strings.ReplaceAll(resolved(text, replies, &missing), "//"+localHost, "//"+d.tools)
		}
		d.engine.answers(r.Output)

		var a answered
		switch {
		case r.Socket != 0:
			a = d.tell(t, r, resolve(string(r.Body)+r.Text))
		case r.Recorded == http.StatusSwitchingProtocols:
			a = d.connect(t, r)
		default:
			a = d.ask(t, r.Method, resolve(r.Path), r.Header, resolve(string(r.Body)+r.Text))
		}

		d.settle(t, a)
		replies[r.Number] = given(a.body)
		verdicts = append(verdicts, newVerdict(r, a, d.engine.called(), missing))
	}
	return verdicts
}

// resolved returns a text with what replies have given in place of references. One that the reply has
// nothing for stays, and is missing.
func resolved(text string, replies map[int]map[string][]string, missing *[]string) string {
	return reference.ReplaceAllStringFunc(text, func(of string) string {
		match := reference.FindStringSubmatch(of)
		number, _ := strconv.Atoi(match[1])
		index, _ := strconv.Atoi(match[3])
		if values := replies[number][match[2]]; index < len(values) {
			return values[index]
		}
		*missing = append(*missing, of)
		return of
	})
}

// compareVerdicts compares verdicts with the file of a client, or writes it.
func compareVerdicts(t *testing.T, client string, rows []*row, verdicts []*verdict) {
	t.Helper()
	path := filepath.Join("verdicts", client+".txt")
	text, err := os.ReadFile(path)
	if err != nil && (!apitest.Updating() || !errors.Is(err, os.ErrNotExist)) {
		t.Fatal(err)
	}
	chosen, err := regexp.Compile("^(" + *changedRows + ")$")
	if err != nil {
		t.Fatalf("-rows: %v", err)
	}

	known := readVerdicts(string(text))
	var written []*verdict
	more := map[string][]string{}
	for i, v := range verdicts {
		before, r := known[v.number], rows[i]
		accepted := apitest.Updating() && *changedWhy != "" &&
			(*changedRows == "" || chosen.MatchString(client+"/"+strconv.Itoa(v.number)))

		switch {
		case before != nil && before.same(v) && (len(before.reasons) > 0 || !v.refused()):
			v.reasons = before.reasons
		case before == nil && apitest.Updating() && !v.refused():
		case accepted:
			v.accept(before, *changedWhy)
			if v.refused() && (before == nil || !before.refused()) {
				t.Logf("a new refusal, for the changelog: %s: %s: %s", sender(client, r), request(r), v.status)
			}
		default:
			// What is common to many rows would be shown for each of them.
			kind := "the prompt changes"
			if before == nil || before.status != v.status {
				kind = v.status
			}
			if more[kind] = append(more[kind], strconv.Itoa(v.number)); len(more[kind]) <= shownAlike {
				t.Error(changed(client, r, before, v))
			}
			v = before
		}
		if v != nil {
			written = append(written, v)
		}
	}
	for kind, numbers := range more {
		if len(numbers) > shownAlike {
			t.Errorf("%s: so it is with %d more rows: %s. If all is meant: %s", kind, len(numbers)-shownAlike,
				strings.Join(numbers[shownAlike:], ", "), acceptAll(client))
		}
	}

	if apitest.Updating() {
		if err := os.WriteFile(path, []byte(writeVerdicts(rows, written)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// shownAlike is how many rows are shown of those that change in the same way.
const shownAlike = 3

// acceptAll is how all changes of a client are accepted.
func acceptAll(client string) string {
	return "go test ./e2e/corpus -run 'TestCorpus/^" + client + "$' -update -reason 'WHY'"
}

// accept gives a verdict the reasons of the one before, and why it is another now.
func (v *verdict) accept(before *verdict, why string) {
	switch {
	case before == nil:
		v.reasons = []string{"from the beginning: " + why}
	case before.status == v.status && !v.refused():
		v.reasons = append(before.reasons, "another prompt: "+why)
	default:
		v.reasons = append(before.reasons, before.status+" → "+v.status+": "+why)
	}
}

// sender names who sends a row.
func sender(client string, r *row) string {
	return client + " " + strings.Join(r.Versions, ", ") + " (row " + strconv.Itoa(r.Number) + ", " + r.Test + ")"
}

// request names what a row asks for.
func request(r *row) string {
	if r.Socket != 0 {
		return "over WebSocket " + gjson.GetBytes(r.Body, "type").Str
	}
	return r.Method + " " + r.Path
}

// changed says what changes for a row, and how that is accepted.
func changed(client string, r *row, before, now *verdict) string {
	accept := fmt.Sprintf("\nIf that is meant: %s -rows '%s/%d'", acceptAll(client), client, r.Number)
	who := sender(client, r) + ", sends " + request(r)
	switch {
	case before == nil && now.refused():
		return fmt.Sprintf("REFUSED: a real client, %s (a %d when it was recorded): %s%s", who, r.Recorded, now.status, accept)
	case before == nil:
		return "NEW: " + who + ", which has no verdict yet: go test ./e2e/corpus -run 'TestCorpus/^" + client + "$' -update"
	case now.refused() && !before.refused():
		return "REFUSED: a real client, " + who + ": it was accepted (" + before.status + "), now it is a " + now.status + accept
	case before.status != now.status:
		return "VERDICT: " + who + ": it was " + before.status + ", now it is " + now.status + accept
	case before.same(now):
		return "REFUSED without a reason: " + who + ": " + now.status + accept
	}
	return "PROMPT: what the model gets changes for " + who + ":\n" + difference(before.calls, now.calls) + accept
}

// difference shows where two texts begin to differ.
func difference(before, now []string) string {
	for i := range max(len(before), len(now)) {
		a, b := "nothing", "nothing"
		if i < len(before) {
			a = before[i]
		}
		if i < len(now) {
			b = now[i]
		}
		if a == b {
			continue
		}
		at := 0
		for at < min(len(a), len(b)) && a[at] == b[at] {
			at++
		}
		from := max(0, at-80)
		return fmt.Sprintf("was …%.300q\nnow …%.300q", a[from:], b[from:])
	}
	return "the files differ in their order alone"
}
