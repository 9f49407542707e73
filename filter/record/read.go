package record

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Files returns the files of records that paths name: files, and those in folders.
func Files(paths []string) (files []string, err error) {
	for _, path := range paths {
		err := filepath.WalkDir(path, func(name string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() && (name == path || strings.HasSuffix(name, suffix)) {
				files = append(files, name)
			}
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("look for records: %w", err)
		}
	}

	return files, nil
}

// ReadFile calls each for every record of a file: JSON objects, one after the other, which
// may be compressed with gzip.
func ReadFile(path string, each func(r *Record)) error {
	file, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("read records: %w", err)
	}
	defer file.Close()
	if err := Read(file, each); err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	return nil
}

// Read calls each for every record of r.
func Read(r io.Reader, each func(r *Record)) error {
	// Files are gzip; what people have unpacked or edited is read too.
	in := bufio.NewReader(r)
	var text io.Reader = in
	if head, err := in.Peek(2); err == nil && head[0] == 0x1f && head[1] == 0x8b {
		z, err := gzip.NewReader(in)
		if err != nil {
			return fmt.Errorf("it is not complete: %w", err)
		}
		text = z
	}

	for d := json.NewDecoder(text); ; {
		var rec Record
		switch err := d.Decode(&rec); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("it is no record: %w", err)
		case rec.Format == 0:
			return errors.New("it is no record: its field \"format\" is missing")
		case rec.Format > Format:
			return fmt.Errorf("its format is %d; this version reads up to %d: use a newer one", rec.Format, Format)
		}
		for i := range rec.Events {
			if err := rec.Events[i].check(); err != nil {
				return fmt.Errorf("it is damaged: event %d, %q: %w", i, rec.Events[i].Kind, err)
			}
		}
		each(&rec)
	}
}

// check checks that an event has what its kind names: files come from elsewhere.
func (e *Event) check() error {
	// Files can be edited or damaged: readers of an event may rely on what its kind names.
	missing := false
	switch e.Kind {
	case KindCall:
		missing = e.Call == nil
	case KindAnswer:
		missing = e.Answer == nil
	case KindTokens:
		missing = e.Tokens == nil
	case KindStore:
		missing = e.Store == nil
	case KindTool:
		missing = e.Tool == nil
	case KindFound:
		missing = e.Found == nil
	case KindBroken, KindFailed, KindRefused:
		missing = e.Error == nil
	}

	switch {
	case missing:
		return errors.New("what its kind names is missing")
	case e.Call != nil && (e.Call.Shared < 0 || e.Call.Count < 0),
		e.Tokens != nil && (e.Tokens.Choice < 0 || e.Tokens.Count < 0),
		e.Job < 0:
		return errors.New("a number in it is negative")
	}

	return nil
}
