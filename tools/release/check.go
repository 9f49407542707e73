package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// check looks whether the folder is what the release says that it is, and writes out/notes.md, the release's section of
// the changelog. A dry run prints what is missing, and goes on.
func check(ctx context.Context, o *options) error {
	notes, problems := o.source.problems(ctx)
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(o.out, "notes.md"), []byte(notes), 0o644); err != nil {
		return err
	}

	if !o.dry {
		return errors.Join(problems...)
	}
	for _, problem := range problems {
		fmt.Fprintln(os.Stderr, "a release would stop here:", problem)
	}
	return nil
}

// problems returns the notes of the release, and the reasons why it cannot be made.
func (s *source) problems(ctx context.Context) (notes string, problems []error) {
	if strings.HasSuffix(s.commit, "-dirty") {
		problems = append(problems, errors.New("files are changed that are not committed"))
	}

	// A tag that is moved later must not get the files of another commit.
	tag := "v" + s.version
	commit, err := output(ctx, s.dir, nil, "git", "rev-parse", "--verify", "--quiet", "refs/tags/"+tag+"^{commit}")
	switch is := strings.TrimSpace(commit); {
	case err != nil:
		problems = append(problems, fmt.Errorf("there is no tag %s", tag))
	case is != strings.TrimSuffix(s.commit, "-dirty"):
		problems = append(problems, fmt.Errorf("the tag %s is commit %s, and the tree is %s", tag, is, s.commit))
	}

	text, err := os.ReadFile(filepath.Join(s.dir, "CHANGELOG.md"))
	if err != nil {
		return "", append(problems, err)
	}
	section := regexp.MustCompile(`(?m)^## ` + regexp.QuoteMeta(s.version) + ` - \d{4}-\d\d-\d\d\n`)
	at := section.FindIndex(text)
	if at == nil {
		return "", append(problems, fmt.Errorf("CHANGELOG.md has no section: ## %s - DATE", s.version))
	}
	notes, _, _ = strings.Cut(string(text[at[1]:]), "\n## ")
	return strings.TrimSpace(notes) + "\n", problems
}
