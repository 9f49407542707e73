package store_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/store"
)

// diskVariable is set in the environment of the process that tests a full disk. Its
// value is a folder.
const diskVariable = "STORE_TEST_DISK"

// TestSQLiteFullDisk fills a small file system, which the test's process mounts in
// a namespace of its own. The store has to delete nevertheless, and to use the room
// of what it has deleted.
func TestSQLiteFullDisk(t *testing.T) {
	if dir := os.Getenv(diskVariable); dir != "" {
		if err := syscall.Mount("none", dir, "tmpfs", 0, "size=40m"); err != nil {
			t.Skipf("no file system can be mounted here: %v", err)
		}
		fullDisk(t, dir)
		return
	}
	t.Parallel()
	cmd := exec.Command(os.Args[0], "-test.run", "^TestSQLiteFullDisk$", "-test.v")
	cmd.Env = append(os.Environ(), diskVariable+"="+t.TempDir())
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
	}
	out, err := cmd.CombinedOutput()
	switch {
	case errors.Is(err, syscall.EPERM), errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EINVAL):
		t.Skipf("no namespace can be made here: %v", err)
	case err != nil:
		t.Errorf("%v\n%s", err, out)
	default:
		t.Logf("%s", out)
	}
}

// fullDisk tests a store on a disk that others fill.
func fullDisk(t *testing.T, dir string) {
	c := newFakeClock()
	o := testOptions
	o.Now, o.ResponseBytes = c.now, 1<<30
	s := openURL(t, "sqlite:"+filepath.Join(dir, "store.db"), o).(*store.SQL)
	n := 0
	fill := func() (err error) {
		for ; err == nil && n < 10_000; n++ {
			err = s.Put(t.Context(), "a", sized(strconv.Itoa(n)))
		}
		n--
		return err
	}
	put(t, s, sized("first"))
	other, err := os.Create(filepath.Join(dir, "other"))
	if err != nil {
		t.Fatal(err)
	}
	if err := fill(); err == nil {
		t.Fatal("the disk is not full")
	}
	for err == nil {
		_, err = other.Write(make([]byte, 4096)) // and so is what SQLite could not use
	}
	if _, err := s.Get(t.Context(), "a", "first"); err != nil {
		t.Errorf("Get: %v", err)
	}
	for i := range n / 2 {
		if err := s.Delete(t.Context(), "a", strconv.Itoa(i)); err != nil {
			t.Fatalf("delete response %d of %d: %v", i, n, err)
		}
	}
	before := n
	if err := fill(); err == nil || n-before < before/4 {
		t.Errorf("after %d responses were deleted there is room for %d: %v", before/2, n-before, err)
	}
	c.advance(2 * time.Hour)
	if err := s.Purge(t.Context()); err != nil {
		t.Fatalf("delete what has expired: %v", err)
	}
	if used, _, err := s.Used(t.Context()); err != nil || used > 1<<20 {
		t.Errorf("%d bytes are used after all has expired, %v", used, err)
	}
	put(t, s, sized("last"))
	reopened(t, dir, o)
}

// reopened opens the store of a full disk once more.
func reopened(t *testing.T, dir string, o store.Options) {
	s, err := store.Open(context.Background(), "sqlite:"+filepath.Join(dir, "store.db"), o)
	if err == nil {
		_, err = s.Get(t.Context(), "a", "last")
		err = errors.Join(err, s.Close())
	}
	if err != nil {
		t.Error(fmt.Errorf("open the store again: %w", err))
	}
}
