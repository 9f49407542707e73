package telemetry

import (
	"bytes"
	"strings"
	"testing"

	"github.com/sirupsen/logrus"

	"github.com/envoy-harmony/envoy-harmony/filter/apierror"
)

// What clients choose neither makes a line long nor breaks it, in both formats.
func TestLineOfHostileTexts(t *testing.T) {
	for name, format := range map[string]logrus.Formatter{"json": JSONLines{}, "text": &logrus.TextFormatter{FullTimestamp: true}} {
		t.Run(name, func(t *testing.T) {
			telemetry, _, _ := newTestTelemetry(t, false)
			var out bytes.Buffer
			telemetry.Log.SetOutput(&out)
			telemetry.Log.SetFormatter(format)
			odd := "a\nlevel=error msg=forged\r\x1b[31m\x00" + strings.Repeat("ö", 50_000)
			r := &Record{Started: testStart, Response: odd}
			r.Failed(apierror.New(400, "", "", "%s", odd))
			telemetry.Close(r, &Outcome{RequestID: odd, Tenant: odd, Model: odd, Now: testStart})
			line := out.String()
			if strings.Count(line, "\n") != 1 || strings.ContainsAny(line, "\r\x1b\x00") {
				t.Errorf("the line is broken: %.300q", line)
			}
			if len(line) > 2*(maxLogged+5*maxLoggedID) {
				t.Errorf("the line has %d bytes", len(line))
			}
		})
	}
}
