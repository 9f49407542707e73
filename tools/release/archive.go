package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"time"
)

// entry is a file of an archive.
type entry struct {
	// name has its folder.
	name       string
	text       []byte
	executable bool
}

// tarball returns a tar.gz archive of the entries, in their order. All have one time
// and no owner.
func tarball(entries []entry, modified time.Time) ([]byte, error) {
	var b bytes.Buffer
	// The header of gzip stays empty: it would have the time and the name of a file.
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return nil, err
	}

	w := tar.NewWriter(z)

	for _, e := range entries {
		mode := int64(0o644)
		if e.executable {
			mode = 0o755
		}

		// USTAR has no further times and owners, and every tar reads it.
		header := &tar.Header{
			Typeflag: tar.TypeReg, Name: e.name, Size: int64(len(e.text)), Mode: mode,
			ModTime: modified, Format: tar.FormatUSTAR,
		}
		if err := w.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := w.Write(e.text); err != nil {
			return nil, err
		}
	}

	// In this order: the end of the archive goes into the compressed stream.
	if err := w.Close(); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}

	return b.Bytes(), nil
}
