package replies

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
)

// Clients that write the whole body before they read have the 413 of one that is a little too large, with a
// length and in chunks.
func TestTooLargeForOneWhoWritesFirst(t *testing.T) {
	s := startSockets(t, "--set", "limits.max_body_bytes=4MiB")
	body := `{"model":"gpt-oss-20b","messages":[{"role":"user","content":"` + strings.Repeat("x", 7<<20) + `"}]}`
	for name, sent := range map[string]string{
		"with a length": fmt.Sprintf("content-length: %d\r\n\r\n%s", len(body), body),
		"in chunks":     fmt.Sprintf("transfer-encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", len(body), body),
	} {
		conn, err := net.Dial("tcp", strings.TrimPrefix(s.d.URL, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(stack.Patience))
		_, err = io.WriteString(conn, "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"+sent)
		if err != nil {
			t.Fatalf("%s: it is not written: %v", name, err)
		}

		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		text, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusRequestEntityTooLarge || gjson.GetBytes(text, "error.code").Str != "request_too_large" {
			t.Errorf("%s: %s %v %s", name, resp.Status, err, text)
		}
		_ = conn.Close()
	}
}
