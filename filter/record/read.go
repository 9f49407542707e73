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

// ReadFile calls each for every record of a file: JSON objects, one behind the other, which
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
		each(&rec)
	}
}
