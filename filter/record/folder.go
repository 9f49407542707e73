package record

import (
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
)

// Folder is a [Sink] of files, one for each record: JSON, compressed. The oldest files
// make room for new ones. Records wait in a short queue for the disk: if it is full, they
// are dropped.
type Folder struct {
	o      FolderOptions
	queue  chan *Record
	mu     sync.RWMutex // held while the queue is closed, or a record put into it
	closed bool
	ended  chan struct{}

	// Of the writing goroutine: the files, the oldest first, and their bytes.
	files []fs.FileInfo
	bytes int64
	// failed says that the last file could not be written, and that this has been logged.
	failed bool
}

// FolderOptions are the bounds of a [Folder].
type FolderOptions struct {
	Path string
	// Bytes is the most that all files take.
	Bytes int64
	// Age is that after which a file is deleted; 0: never.
	Age time.Duration
	Log *logrus.Logger
	Now func() time.Time
	// Lost counts a record that is dropped; nil: nothing does.
	Lost func()
	// Create makes a file. Default: os.OpenFile, for the process's user alone.
	Create func(path string) (io.WriteCloser, error)
}

// pruned is the time between two looks for files that are too old.
const pruned = time.Minute

// queued is how many records wait for the disk.
const queued = 64

// suffix ends the names of a folder's files; part follows while they are not complete.
const (
	suffix = ".record.json.gz"
	part   = ".part"
)

// OpenFolder makes the folder, if there is none, and a sink that writes to it until
// [Folder.Close].
func OpenFolder(o FolderOptions) (*Folder, error) {
	if o.Create == nil {
		o.Create = func(path string) (io.WriteCloser, error) {
			return os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		}
	}
	if err := os.MkdirAll(o.Path, 0o700); err != nil {
		return nil, fmt.Errorf("make the folder of records: %w", err)
	}
	f := &Folder{o: o, queue: make(chan *Record, queued), ended: make(chan struct{})}
	go f.write()
	return f, nil
}

// Keep implements [Sink].
func (f *Folder) Keep(r *Record) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if f.closed {
		f.lost()
		return
	}
	// An exchange does not wait for the disk.
	select {
	case f.queue <- r:
	default:
		f.lost()
	}
}

func (f *Folder) lost() {
	if f.o.Lost != nil {
		f.o.Lost()
	}
}

// Close writes the records that wait, and ends the sink: records that come later are
// dropped. Shutdown waits only so long for exchanges, so they can come.
func (f *Folder) Close() {
	f.mu.Lock()
	if !f.closed {
		f.closed = true
		close(f.queue)
	}
	f.mu.Unlock()
	<-f.ended
}

// write writes the records of the queue until it is closed.
func (f *Folder) write() {
	defer close(f.ended)

	f.list()
	f.prune()
	old := time.NewTicker(pruned)
	defer old.Stop()

	for {
		select {
		case r, more := <-f.queue:
			if !more {
				return
			}
			f.writeOne(r)
		case <-old.C:
			f.prune()
		}
	}
}

// writeOne writes a record. That none can be written is logged once.
func (f *Folder) writeOne(r *Record) {
	err := f.keep(r)
	if err != nil {
		f.lost()
		// Once until a record can be written again: a full disk would fill the log too.
		if !f.failed {
			f.o.Log.WithError(err).Warn("records of exchanges are lost until the folder can be written to again")
		}
	}
	f.failed = err != nil
}

// keep writes a record under a name of its own, which it gets when it is complete.
func (f *Folder) keep(r *Record) (err error) {
	name := r.Started.UTC().Format("20060102T150405.000000") + "-" + fileName(r.ID) + suffix
	path := filepath.Join(f.o.Path, name)
	file, err := f.o.Create(path + part)
	if err != nil {
		return fmt.Errorf("make the file of a record: %w", err)
	}
	defer func() {
		if err != nil {
			// A part of a file is of no use; if it stays, the next process deletes it.
			_ = os.Remove(path + part)
		}
	}()

	// Under another name until it is complete: readers of the folder see whole records only.
	err = errors.Join(Write(file, r), file.Close())
	if err != nil {
		return fmt.Errorf("write a record: %w", err)
	}
	if err := os.Rename(path+part, path); err != nil {
		return fmt.Errorf("name a record: %w", err)
	}
	if info, err := os.Stat(path); err == nil {
		f.files, f.bytes = append(f.files, info), f.bytes+info.Size()
	}
	f.prune()
	return nil
}

// Write writes a record as a file has it.
func Write(w io.Writer, r *Record) error {
	z := gzip.NewWriter(w)
	if err := json.NewEncoder(z).Encode(r); err != nil {
		return fmt.Errorf("write a record: %w", err)
	}
	if err := z.Close(); err != nil {
		return fmt.Errorf("write a record: %w", err)
	}
	return nil
}

// fileName is an id as part of a file's name.
func fileName(id string) string {
	// Request ids come from clients, and names must not lead out of the folder.
	safe := func(r rune) rune {
		if r == '-' || r == '_' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' {
			return r
		}
		return '_'
	}
	return strings.Map(safe, id[:min(len(id), 80)])
}

// list finds the files that are there already.
func (f *Folder) list() {
	entries, err := os.ReadDir(f.o.Path)
	if err != nil {
		return
	}

	// They come by name, which begins with the time: the oldest first.
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), suffix+part) {
			// An earlier process has ended while it wrote the file.
			_ = os.Remove(filepath.Join(f.o.Path, e.Name()))
		}
		if info, err := e.Info(); err == nil && strings.HasSuffix(e.Name(), suffix) {
			f.files, f.bytes = append(f.files, info), f.bytes+info.Size()
		}
	}
}

// prune deletes the files that are too old, and the oldest ones until the rest have room.
func (f *Folder) prune() {
	for len(f.files) > 0 {
		oldest := f.files[0]
		if f.bytes <= f.o.Bytes && (f.o.Age <= 0 || f.o.Now().Sub(oldest.ModTime()) <= f.o.Age) {
			return
		}
		// What somebody else has deleted is gone too.
		_ = os.Remove(filepath.Join(f.o.Path, oldest.Name()))
		f.files, f.bytes = f.files[1:], f.bytes-oldest.Size()
	}
}
