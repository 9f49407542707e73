package record

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// kept is a sink that keeps all.
type kept struct{ records []*Record }

func (k *kept) Keep(r *Record) { k.records = append(k.records, r) }

func TestRecorder(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name                          string
		o                             Options
		tenant, model, asked, outcome string
		want                          bool
	}{
		{"all", Options{Percent: 100}, "a", "m", "", "ok", true},
		{"none", Options{}, "a", "m", "", "ok", false},
		{"drawn", Options{Percent: 8}, "a", "m", "", "ok", true},
		{"not drawn", Options{Percent: 7}, "a", "m", "", "ok", false},
		{"asked for", Options{Header: "x-record"}, "a", "m", "ON", "ok", true},
		{"asked for without the operator's switch", Options{}, "a", "m", "on", "ok", false},
		{"declined", Options{Percent: 100, Header: "x-record"}, "a", "m", "off", "ok", false},
		{"another tenant", Options{Percent: 100, Tenants: []string{"b"}}, "a", "m", "", "ok", false},
		{"another tenant, asked for", Options{Header: "x-record", Tenants: []string{"b"}}, "a", "m", "on", "ok", false},
		{"the model", Options{Percent: 100, Models: []string{"M"}}, "a", "m", "", "ok", true},
		{"another model", Options{Percent: 100, Models: []string{"n"}}, "a", "m", "", "ok", false},
		{"the outcome", Options{Percent: 100, Outcomes: []string{"failed", "ok"}}, "a", "m", "", "ok", true},
		{"another outcome", Options{Percent: 100, Outcomes: []string{"failed"}}, "a", "m", "", "ok", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			sink := &kept{}
			c.o.Sinks, c.o.Now, c.o.RecordBytes, c.o.LiveBytes, c.o.Draw = []Sink{sink}, clock(), 1000, 1000, func(int) int { return 7 }
			var before *Recorder
			recorder := before.With(c.o)
			tape := recorder.Begin(c.tenant, c.model, c.asked, func() Record { return Record{ID: "r", Started: started} })
			if live := recorder.Live(0); len(live) != min(1, len(live)) || (tape != nil) != (len(live) == 1) {
				t.Errorf("%d are live", len(live))
			}
			recorder.With(c.o).End(tape, Result{Outcome: c.outcome}) // after a reload
			if got := len(sink.records) == 1; got != c.want {
				t.Errorf("recorded: %t", got)
			}
			if c.want && !sink.records[0].Redacted {
				t.Error("content that is not asked for is kept")
			}
			if len(recorder.Live(0)) != 0 {
				t.Error("it is live after its end")
			}
		})
	}
}

// The records of exchanges that go on are bounded together; what one has taken is there
// for others after its end.
func TestLiveBytes(t *testing.T) {
	t.Parallel()
	sink := &kept{}
	recorder := New(Options{Percent: 100, Content: true, Sinks: []Sink{sink}, Now: clock(), RecordBytes: 1000, LiveBytes: 1000, Draw: func(int) int { return 0 }})
	begin := func() *Tape {
		return recorder.Begin("", "", "", func() Record { return Record{Started: started} })
	}
	a, b := begin(), begin()
	a.Sent(make([]byte, 600))
	b.Sent(make([]byte, 600))
	recorder.End(a, Result{})
	c := begin()
	c.Sent(make([]byte, 600))
	recorder.Drop(c)
	d := begin()
	d.Sent(make([]byte, 600))
	recorder.End(b, Result{})
	recorder.End(d, Result{})
	for i, want := range []bool{false, true, false} {
		if sink.records[i].Cut != want {
			t.Errorf("record %d: cut %t", i, sink.records[i].Cut)
		}
	}
	if n := recorder.live.bytes.Load(); n != 0 {
		t.Errorf("%d bytes are lost", n)
	}
}

// What the records of exchanges that go on take is what it takes in memory, with the bodies
// of their requests and each of many small events.
func TestLiveMemory(t *testing.T) {
	t.Parallel()
	const limit = 100 << 10
	begin := func(body int) (*Recorder, *Tape) {
		recorder := New(Options{Percent: 100, Content: true, Now: clock(), RecordBytes: 1 << 30, LiveBytes: limit, Draw: func(int) int { return 0 }})
		return recorder, recorder.Begin("", "", "", func() Record { return Record{Started: started, Request: Request{Body: NewText(make([]byte, body))}} })
	}
	recorder, tape := begin(0)
	for range 10_000 {
		tape.Chunks([]engine.Chunk{{Tokens: []harmony.Token{1}}})
		tape.Sent([]byte("x"))
	}
	if live := recorder.Live(0); live[0].size() > recordBytes+limit || !live[0].Cut {
		t.Errorf("the events of a record take %d bytes of %d", live[0].size(), limit)
	}
	recorder.End(tape, Result{})
	if n := recorder.live.bytes.Load(); n != 0 {
		t.Errorf("%d bytes are lost", n)
	}
	if recorder, tape := begin(limit + 1); tape != nil || len(recorder.Live(0)) > 0 || recorder.live.bytes.Load() != 0 {
		t.Error("the body of a request for which there is no room is held")
	}
}

// New records take the place of old ones.
func TestRing(t *testing.T) {
	t.Parallel()
	g := NewRing(3 * (recordBytes + 10))
	for _, id := range []string{"a", "b", "c", "d"} {
		g.Keep(&Record{ID: id, Config: "0123456789"})
	}
	var ids strings.Builder
	for _, r := range g.Records() {
		ids.WriteString(r.ID)
	}
	if ids.String() != "bcd" || g.Find("a") != nil || g.Find("d") == nil {
		t.Errorf("records %q", ids.String())
	}
	if g.Keep(&Record{ID: "large", Config: string(make([]byte, 4*recordBytes))}); g.Find("large") != nil || len(g.Records()) != 3 {
		t.Error("a record that is larger than the ring has taken its place")
	}
}

func openTest(t *testing.T, change func(o *FolderOptions)) (*Folder, *bytes.Buffer) {
	t.Helper()
	var text bytes.Buffer
	log := logrus.New()
	log.SetOutput(&text)
	o := FolderOptions{Path: filepath.Join(t.TempDir(), "records"), Bytes: 1 << 20, Log: log, Now: time.Now}
	change(&o)
	f, err := OpenFolder(o)
	if err != nil {
		t.Fatal(err)
	}
	return f, &text
}

// namedRecord is a record whose file has about 1 KiB.
func namedRecord(id string, second int) *Record {
	return &Record{Format: Format, ID: id, Started: started.Add(time.Duration(second) * time.Second), Config: strings.Repeat(id, 10)}
}

func TestFolder(t *testing.T) {
	t.Parallel()
	f, _ := openTest(t, func(*FolderOptions) {})
	for i, id := range []string{"b", "../../etc/passwd", "c"} {
		f.Keep(namedRecord(id, i))
	}
	f.Close()
	files, err := Files([]string{f.o.Path})
	if err != nil || len(files) != 3 {
		t.Fatalf("%v, %v", files, err)
	}
	var ids []string
	for _, file := range files {
		if filepath.Dir(file) != f.o.Path {
			t.Errorf("a file outside of the folder: %s", file)
		}
		if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("others can read it: %v, %v", info.Mode(), err)
		}
		if err := ReadFile(file, func(r *Record) { ids = append(ids, r.ID) }); err != nil {
			t.Error(err)
		}
	}
	if strings.Join(ids, " ") != "b ../../etc/passwd c" {
		t.Errorf("ids %v", ids)
	}
}

// The oldest files make room, also those of a process before, and those that are too old.
func TestFolderBounds(t *testing.T) {
	t.Parallel()
	f, _ := openTest(t, func(*FolderOptions) {})
	f.Keep(namedRecord("a", 0))
	f.Close()
	one := f.bytes
	begun := filepath.Join(f.o.Path, "20261123T120000.000000-x"+suffix+part) // by a process that has ended
	if err := os.WriteFile(begun, make([]byte, 100), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := OpenFolder(FolderOptions{Path: f.o.Path, Bytes: 2*one + one/2, Log: f.o.Log, Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	for i, id := range []string{"b", "c", "d"} {
		f.Keep(namedRecord(id, i+1))
	}
	f.Close()
	if _, err := os.Stat(begun); !os.IsNotExist(err) {
		t.Errorf("a file that is not complete stays: %v", err)
	}
	if files, err := Files([]string{f.o.Path}); err != nil || len(files) != 2 || !strings.Contains(files[0], "-c.") {
		t.Errorf("%v, %v", files, err)
	}
	f, err = OpenFolder(FolderOptions{Path: f.o.Path, Bytes: 1 << 20, Age: time.Hour, Log: f.o.Log, Now: func() time.Time { return time.Now().Add(2 * time.Hour) }})
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	if files, err := Files([]string{f.o.Path}); err != nil || len(files) != 0 {
		t.Errorf("old files stay: %v, %v", files, err)
	}
}

// A disk that is full loses records, and says so once.
func TestFolderFull(t *testing.T) {
	t.Parallel()
	lost := 0
	f, text := openTest(t, func(o *FolderOptions) {
		o.Create = func(string) (io.WriteCloser, error) { return nil, errors.New("no space left on device") }
		o.Lost = func() { lost++ }
	})
	for i := range 3 {
		f.Keep(namedRecord("a", i))
	}
	f.Close()
	if lost != 3 || strings.Count(text.String(), "records of exchanges are lost") != 1 {
		t.Errorf("%d lost: %s", lost, text)
	}
}

// slow is a file on a disk that does not answer.
type slow struct{ release chan struct{} }

func (s slow) Write(p []byte) (int, error) {
	<-s.release
	return len(p), nil
}
func (s slow) Close() error { return nil }

// A record that ends after the folder, such as of a response that the store has held up, is
// lost, and nothing else is.
func TestFolderClosed(t *testing.T) {
	lost := 0
	f, _ := openTest(t, func(o *FolderOptions) { o.Lost = func() { lost++ } })
	f.Close()
	f.Keep(namedRecord("late", 1))
	f.Close()
	if lost != 1 {
		t.Errorf("%d records are lost", lost)
	}
}

// A disk that hangs does not hold exchanges back.
func TestFolderHangs(t *testing.T) {
	t.Parallel()
	s := slow{make(chan struct{})}
	lost := 0
	f, _ := openTest(t, func(o *FolderOptions) {
		o.Create = func(string) (io.WriteCloser, error) { return s, nil }
		o.Lost = func() { lost++ }
	})
	for i := range 10 * queued {
		f.Keep(namedRecord("a", i)) // returns, or this test never ends
	}
	if lost < 8*queued {
		t.Errorf("%d lost", lost)
	}
	close(s.release)
	f.Close()
}

// FuzzRead reads arbitrary files.
func FuzzRead(f *testing.F) {
	r := testRecord()
	var file bytes.Buffer
	if err := Write(&file, &r); err != nil {
		f.Fatal(err)
	}
	f.Add(file.Bytes())
	f.Add([]byte(`{"format":1,"events":[{"kind":"sent","text":{"bytes":5}},{"kind":"tokens","tokens":{"ids":[1]}}]}{"format":1}`))
	f.Fuzz(func(_ *testing.T, text []byte) {
		_ = Read(bytes.NewReader(text), func(r *Record) {
			redacted := Redact(r)
			_ = redacted.size()
		})
	})
}
