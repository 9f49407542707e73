package api

import (
	"mime"
	"slices"
	"strings"
)

// jsonCharsets are the charset parameters of JSON that endpoints read as an
// upstream does: their structure is ASCII.
var jsonCharsets = []string{"", "utf-8", "utf8", "us-ascii", "ascii", "iso-8859-1"}

// IsJSON reports whether a request's content type can be that of a JSON body. An
// absent one can.
func IsJSON(contentType string) bool {
	if strings.TrimSpace(contentType) == "" {
		return true
	}

	mt, parameters, err := mime.ParseMediaType(contentType)
	if err != nil || !slices.Contains(jsonCharsets, strings.ToLower(parameters["charset"])) {
		return false
	}
	// RFC 6839: what ends in +json can be read as JSON.
	return mt == "application/json" || strings.HasSuffix(mt, "+json")
}
