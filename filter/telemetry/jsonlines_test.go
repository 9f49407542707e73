package telemetry

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/sirupsen/logrus"
)

// hostileFields are fields that a line could break at.
func hostileFields(text string, n int, number float64, on bool) logrus.Fields {
	return logrus.Fields{
		"text": text, text: n, "number": number, "on": on, "none": nil, "error": errors.New(text), //nolint:err113 // any error
		"repairs": map[string]int{"a": n}, "times": []float64{1, number},
	}
}

// A line says what logrus's own says.
func FuzzJSONLines(f *testing.F) {
	f.Add("a\nlevel=error \"\\<>&\x00\u2028\xff\U0001f600", "said", 1<<62, 0.25, true)
	f.Add("", "", -1, 1e-7, false)
	f.Add("ö", "\r", 0, 1e21, false)
	f.Fuzz(func(t *testing.T, text, message string, n int, number float64, on bool) {
		if math.IsNaN(number) || math.IsInf(number, 0) {
			return // logrus writes no line
		}
		fields := hostileFields(text, n, number, on)
		for _, own := range []string{"time", "msg", "level"} {
			delete(fields, own)
		}
		read := func(format logrus.Formatter) (line map[string]any) {
			e := &logrus.Entry{Data: fields, Time: testStart, Level: logrus.WarnLevel, Message: message}
			out, err := format.Format(e)
			if err != nil {
				t.Fatal(err)
			}
			if bytes.Count(out, []byte{'\n'}) != 1 || out[len(out)-1] != '\n' {
				t.Errorf("not one line: %q", out)
			}
			if err := json.Unmarshal(out, &line); err != nil {
				t.Fatalf("%v: %q", err, out)
			}
			return line
		}
		if diff := cmp.Diff(read(&logrus.JSONFormatter{}), read(JSONLines{})); diff != "" {
			t.Errorf("(-logrus +this):\n%s", diff)
		}
	})
}

// A field that has no JSON costs no line, and none takes the place of the line's own.
func TestJSONLinesOfOddFields(t *testing.T) {
	line := &logrus.Entry{Data: logrus.Fields{"a": math.Inf(1), "msg": "forged", "b": func() {}}, Time: testStart, Message: "said"}
	out, err := JSONLines{}.Format(line)
	if err != nil {
		t.Fatal(err)
	}
	var got struct{ Msg, Time, Level, A string }
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatalf("%v: %q", err, out)
	}
	if got.Msg != "said" || got.Time != testStart.Format(time.RFC3339) || got.Level != "panic" || got.A != "+Inf" || bytes.Count(out, []byte("msg")) != 1 {
		t.Errorf("%s", out)
	}
}

// The line of a request costs few allocations, most of which are logrus's.
func TestLineAllocations(t *testing.T) {
	telemetry, _, _ := newTestTelemetry(t, false)
	telemetry.Log = logrus.New()
	telemetry.Log.SetOutput(io.Discard)
	telemetry.Log.SetFormatter(JSONLines{})
	r := &Record{Started: testStart, Response: "chatcmpl-1", promptTokens: 1000, modelCalls: 1, firstToken: time.Second}
	o := &Outcome{API: "chat", RequestID: "1", Model: "gpt-oss-20b", Engine: "main", Complete: true, Answered: true, Now: testStart.Add(time.Minute)}
	o.Summary.Counts.Output = 1000
	if n := testing.AllocsPerRun(100, func() { telemetry.Close(r, o) }); n > 30 {
		t.Errorf("%v allocations", n)
	}
}
