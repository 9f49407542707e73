//go:build attack

package attack

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
)

// replicaArea restarts filters behind one Envoy.
func replicaArea() area {
	return area{name: "replicas", attacks: []attack{
		{name: "two filters are restarted one after the other", want: "no request fails", alone: true, run: func(a *attempt) {
			d, filters := stack.Restartable(a.T, 2)
			done, failed := d.RollingRestart(a.T, filters)
			a.see("%d of %d requests failed", len(failed), done)
			if len(failed) > 0 {
				a.Errorf("%s, the first with: %s", a.seen, failed[0])
			}
		}},
		{name: "one of two filters is killed", want: "the other one serves", alone: true, run: replicaKilled},
	}}
}

// simulatorArea has output formats without a small instance, which the filter passes
// to the engine. The simulator makes an instance of a format, and must not hang.
func simulatorArea() area {
	format := func(name string, schema func() string) attack {
		return posting(name, "200 400 502", chatPath, func() string { return chatBody(`"NOTHINK"`, formatWith(schema())) })
	}

	required := func(refs []string) string {
		var names strings.Builder
		for i := range refs {
			fmt.Fprintf(&names, `,"p%d"`, i)
		}
		text := asProperties(refs)
		return text[:len(text)-1] + `,"required":[` + names.String()[1:] + `]}`
	}

	return area{name: "simulator", attacks: []attack{
		format("an instance of 8^12 properties", func() string { return doubling(12, 8, required) }),
		format("an instance of 2^30 items", func() string {
			return doubling(30, 2, func(refs []string) string {
				return `{"type":"array","minItems":2,"items":` + refs[0] + `}`
			})
		}),
		format("allOf with 8^12 members", func() string { return doubling(12, 8, keyword("allOf")) }),
		format("anyOf with 8^12 members", func() string { return doubling(12, 8, keyword("anyOf")) }),
		format("a reference to itself", func() string {
			return `{"$defs":{"a":{"$ref":"#/$defs/a"}},"type":"object","properties":{"x":{"$ref":"#/$defs/a"}},"required":["x"]}`
		}),
	}}
}

// diskArea has a store on a disk that is full.
func diskArea() area {
	var dir string
	return area{name: "disk", config: func(t *testing.T, c *stackConfig) {
		dir = t.TempDir()
		if err := syscall.Mount("none", dir, "tmpfs", 0, "size=40m"); err != nil {
			t.Skipf("no file system can be mounted here, which needs root: %v", err)
		}
		t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
		c.set("store_url", "sqlite:"+filepath.Join(dir, "store.db"))
		c.set("responses.store_bytes", 1<<30)
	}, attacks: []attack{
		{name: "SQLite with a full disk", want: "replies go on, room can be made", run: func(a *attempt) {
			stored := a.fillDisk(dir)
			if r := a.post(chatPath, chatBody(simple, "")); r.status != http.StatusOK {
				a.Errorf("chat: %s", r.brief())
			}

			r := a.post(responsesPath, diskBody())
			if r.status != http.StatusOK || gjson.Get(r.text, "store").Bool() {
				a.Errorf("a response that cannot be stored: %s, store %s", r.brief(), gjson.Get(r.text, "store").Raw)
			}

			if r := a.send(http.MethodGet, responsesPath+"/"+stored[len(stored)-1], http.NoBody); r.status != http.StatusOK {
				a.Errorf("GET of what is stored: %s", r.brief())
			}

			for i, id := range stored[:len(stored)/2] {
				if r := a.send(http.MethodDelete, responsesPath+"/"+id, http.NoBody); r.status != http.StatusOK {
					a.Fatalf("DELETE of response %d of %d: %s", i, len(stored), r.brief())
				}
			}

			r = a.post(responsesPath, diskBody())
			if r := a.send(http.MethodGet, responsesPath+"/"+gjson.Get(r.text, "id").Str, http.NoBody); r.status != http.StatusOK {
				a.Errorf("a response after %d were deleted: %s", len(stored)/2, r.brief())
			}

			a.see("%d responses filled it, %d were deleted", len(stored), len(stored)/2)
		}},
	}}
}

// diskBody is a response of which about 70 fill the disk.
func diskBody() string {
	return responsesBody(jsonText(strings.Repeat("word ", 60_000)+"\nNOTHINK\nSAY hi"), "")
}

// fillDisk stores responses until the store has no room, fills what is left of the
// disk, and returns the ids of the responses that are stored.
func (a *attempt) fillDisk(dir string) (stored []string) {
	a.Helper()
	other, err := os.Create(filepath.Join(dir, "other"))
	if err != nil {
		a.Fatal(err)
	}
	defer other.Close()

	for range 1000 {
		r := a.post(responsesPath, diskBody())
		if r.status != http.StatusOK {
			a.Fatalf("response %d: %s", len(stored), r.brief())
		}
		if !gjson.Get(r.text, "store").Bool() {
			for err == nil {
				_, err = other.Write(make([]byte, 4096)) // what SQLite could not use
			}
			break
		}
		stored = append(stored, gjson.Get(r.text, "id").Str)
	}

	if err == nil || len(stored) < 10 {
		a.Fatalf("%d responses were stored before the disk was full: %v", len(stored), err)
	}
	return stored
}
