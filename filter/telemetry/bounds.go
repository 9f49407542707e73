package telemetry

import (
	"strings"

	"github.com/sirupsen/logrus"
)

const (
	// maxLogged is how much of a text stands in a log line, and maxLoggedID how much
	// of an id, a name or a path, in bytes: clients choose their lengths.
	maxLogged   = 2 << 10
	maxLoggedID = 256
)

// sentences are the fields that are no ids and no names.
var sentences = map[string]bool{"error": true, "cause": true, "fault": true}

// bounded cuts the texts of a line.
func bounded(fields logrus.Fields) logrus.Fields {
	for name, value := range fields {
		if text, ok := value.(string); ok && len(text) > maxLoggedID {
			fields[name] = limited(text, sentences[name])
		}
	}
	return fields
}

func limited(text string, sentence bool) string {
	most := maxLoggedID
	if sentence {
		most = maxLogged
	}
	if len(text) <= most {
		return text
	}
	// The cut may be in a character.
	return strings.ToValidUTF8(text[:most], "") + "…"
}
