package filter

import (
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/config"
	"github.com/envoy-harmony/envoy-harmony/filter/store"
)

// TestStoredIsReadWithinTheMemoryBudget has a conversation listed for whose reading the memory
// budget has no room, and one for which it has.
func TestStoredIsReadWithinTheMemoryBudget(t *testing.T) {
	t.Parallel()
	s := startTestServer(t, func(c *config.Config) {
		c.StoreURL = "sqlite:" + filepath.Join(t.TempDir(), "store.db")
		c.Limits.MaxBodyBytes, c.Limits.MaxInflightBytes = 64<<10, 256<<10
	})

	for size, status := range map[int]int{100 << 10: http.StatusRequestEntityTooLarge, 20 << 10: http.StatusOK} {
		id := "conv_" + strconv.Itoa(size)
		text := `{"type":"message","id":"m","role":"user","content":"` + strings.Repeat("x", size) + `"}`
		if err := s.store.PutConversation(t.Context(), "", &store.Conversation{ID: id, Metadata: []byte(`{}`)}); err != nil {
			t.Fatal(err)
		}
		if err := s.store.AddItems(t.Context(), "", id, "", []store.Item{{ID: "m", JSON: []byte(text)}}); err != nil {
			t.Fatal(err)
		}

		x := ask(t, s, "/v1/conversations/"+id+"/items", "", map[string]string{":method": http.MethodGet})
		if got := max(x.status, http.StatusOK); got != status || got == http.StatusOK && x.body.Len() < size {
			t.Errorf("%d bytes: status %d, an answer of %d bytes: %.200s", size, got, x.body.Len(), &x.body)
		}
	}
}
