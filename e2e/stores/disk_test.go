package stores

import (
	"context"
	"database/sql"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
)

// smallDatabase makes a database in the tablespace "small", whose disk is the folder
// STORE_TEST_POSTGRES_SMALL.
func smallDatabase(t *testing.T) (storeURL, disk string) {
	t.Helper()
	disk = os.Getenv("STORE_TEST_POSTGRES_SMALL")
	u, err := url.Parse(os.Getenv("STORE_TEST_POSTGRES"))
	if disk == "" || err != nil || u.Host == "" {
		t.Skip("STORE_TEST_POSTGRES_SMALL is not set: run make test-stores as root")
	}

	admin, err := sql.Open("pgx", u.String())
	if err != nil {
		t.Fatal(err)
	}

	name := "disk_" + strconv.FormatInt(time.Now().UnixNano(), 10)
	ctx := context.WithoutCancel(t.Context())
	if _, err := admin.ExecContext(ctx, "CREATE DATABASE "+name+" TABLESPACE small"); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if _, err := admin.ExecContext(ctx, "DROP DATABASE "+name+" WITH (FORCE)"); err != nil {
			t.Error(err)
		}
		_ = admin.Close()
	})

	u.Path = name
	return u.String(), disk
}

// fillDisk fills the disk of a folder with a file of its own, which empty removes.
func fillDisk(t *testing.T, folder string) (empty func()) {
	t.Helper()
	path := filepath.Join(folder, "ballast")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	t.Cleanup(func() { _ = os.Remove(path) })
	for written := 0; err == nil; written += 4096 {
		if written > 1<<30 {
			t.Fatalf("%s is not on a small disk", folder)
		}
		_, err = file.Write(make([]byte, 4096))
	}
	return func() {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}

// The disk of PostgreSQL's tables is full: replies go on, and what is stored can be
// read and deleted. When there is room, responses are stored again.
func TestStoresPostgresFullDisk(t *testing.T) {
	storeURL, disk := smallDatabase(t)
	f := startFaulty(t, storeURL)
	other := f.respond("", true)
	filler := `,"instructions":"` + strings.Repeat("Be brief. ", 500) + `"`
	empty := fillDisk(t, disk)

	f.eventually("the pages that the tables have are full", func() bool {
		status, text := f.post(filler)
		if status != http.StatusOK || gjson.Get(text, "status").Str != "completed" {
			t.Fatalf("response: %d %s", status, text)
		}
		return !gjson.Get(text, "store").Bool()
	})

	f.chats()
	f.respond(`,"store":false`, false)
	f.respond(filler, false)
	if err := f.reads(f.stored); err != nil {
		t.Errorf("read a response: %v", err)
	}
	if err := f.client.Responses.Delete(t.Context(), other); err != nil {
		t.Errorf("delete a response: %v", err)
	}

	stack.WantError(t, "a deleted response", f.reads(other), http.StatusNotFound, "response_not_found", "response_id")
	if f.hangs() {
		t.Error("the store counts as hanging")
	}
	if log := f.Logs.String(); !strings.Contains(log, "SQLSTATE 53100") {
		t.Errorf("the log does not name PostgreSQL's error of a full disk:\n%s", log)
	}

	failed := 0.0
	for series, value := range stack.Gather(t, f.metrics) {
		if strings.HasPrefix(series, "harmony_store_errors_total{") {
			failed += value
		}
	}
	if failed == 0 {
		t.Error("harmony_store_errors_total does not count the writes that failed")
	}

	empty()
	f.recovers()
}
