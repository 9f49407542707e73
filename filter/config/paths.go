package config

import (
	"fmt"
	"path"
	"regexp"
	"strings"
)

// openPath is an entry of routing.open_paths: a path, or a beginning of paths that
// ends with /*.
var openPath = regexp.MustCompile(`^(/[A-Za-z0-9._~@:-]+)*(/\*)?$`)

// Opens reports whether routing.open_paths has a path.
func (r Routing) Opens(name string) bool {
	for _, entry := range r.OpenPaths {
		prefix, below := strings.CutSuffix(entry, "/*")
		if name == prefix || below && strings.HasPrefix(name, prefix+"/") {
			return true
		}
	}
	return false
}

// ownPaths are those of the filter that cannot be opened, nor can those below: the
// routes of a gateway and those of the bootstrap would not mean the same.
var ownPaths = []string{"/v1/chat/completions", "/v1/responses", "/v1/conversations", "/v1/messages", "/v1/models"}

func (r Routing) checkOpenPaths() (errs faults) {
	for i, entry := range r.OpenPaths {
		if err := checkOpenPath(entry); err != nil {
			errs.add("routing.open_paths[%d]: %w", i, err)
		}
	}
	return errs
}

func checkOpenPath(entry string) error {
	// A path with dots or two slashes would never match: Envoy normalizes those of requests.
	plain := strings.TrimSuffix(entry, "/*")
	if entry == "" || !openPath.MatchString(entry) || plain != "" && path.Clean(plain) != plain {
		return fmt.Errorf(
			"%q is not a path: write such as /v1/batches, /v1/files/* for it and all below, or /* for all", entry)
	}
	for _, own := range ownPaths {
		if plain == own || strings.HasPrefix(plain, own+"/") {
			return fmt.Errorf(
				"%q is a path of the filter, or below one: leave it out, or open all paths with /*", entry)
		}
	}
	return nil
}
