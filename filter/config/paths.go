package config

import (
	"fmt"
	"regexp"
	"strings"
)

// openPath is an entry of routing.open_paths: a path, or a beginning of paths that
// ends with /*.
var openPath = regexp.MustCompile(`^(/[A-Za-z0-9._~@:-]+)*(/\*)?$`)

// Opens reports whether routing.open_paths has a path.
func (r Routing) Opens(path string) bool {
	for _, entry := range r.OpenPaths {
		prefix, below := strings.CutSuffix(entry, "/*")
		if path == prefix || below && strings.HasPrefix(path, prefix+"/") {
			return true
		}
	}
	return false
}

func (r Routing) checkOpenPaths() (errs []error) {
	for i, entry := range r.OpenPaths {
		if entry == "" || !openPath.MatchString(entry) || strings.Contains(entry, "/./") || strings.Contains(entry, "/..") {
			errs = append(errs, fmt.Errorf("routing.open_paths[%d]: %q is not a path: write such as /v1/batches, /v1/files/* for it and all below, or /* for all", i, entry))
		}
	}
	return errs
}
