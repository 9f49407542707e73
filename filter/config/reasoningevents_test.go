package config

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"
)

// TestReasoningEvents shows which clients get which names of the events of reasoning.
func TestReasoningEvents(t *testing.T) {
	t.Parallel()
	digest := func(key string) string {
		sum := sha256.Sum256([]byte(key))
		return hex.EncodeToString(sum[:])
	}
	c := testConfig(t, `tenant_header: x-tenant
responses:
  reasoning_events_for:
  - {tenant: acme, key: `+digest("k1")+`, events: reasoning_text}
  - {tenant: acme, events: reasoning}
  - {key: `+digest("k2")+`, events: reasoning}`)
	if !c.NeedsKey() || testConfig(t, "").NeedsKey() {
		t.Error("the keys of clients are not needed, or always")
	}

	for _, tt := range []struct{ tenant, key, want string }{
		{"acme", "", "reasoning"},
		{"acme", "k1", "reasoning_text"},
		{"acme", "k2", "reasoning"},
		{"other", "k1", "reasoning_text"},
		{"other", "k2", "reasoning"},
		{"other", "", "reasoning_text"},
	} {
		client := Client{Tenant: tt.tenant}
		if tt.key != "" {
			client.Key = digest(tt.key)[:32]
		}
		if got := c.TurnModel(&Model{}, 0, client).ReasoningEvents; got != tt.want {
			t.Errorf("tenant %q, key %q: %q", tt.tenant, tt.key, got)
		}
	}

	for text, want := range map[string]string{
		"{events: reasoning}":               "write a tenant or a key",
		"{tenant: a, events: reasoning}":    "there are no tenants",
		"{key: sk-mine, events: reasoning}": "must be the SHA-256",
		"{key: " + digest("k") + "}":        "events: must be one of reasoning_text, reasoning",
	} {
		c, err := Parse("config.yaml", []byte("engines: [{kind: vllm, urls: ['http://a:1']}]\nresponses: {reasoning_events_for: ["+text+"]}"))
		if err == nil {
			err = c.Validate()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
