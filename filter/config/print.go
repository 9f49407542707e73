package config

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// hidden stands in place of a secret.
const hidden = "[hidden]"

// YAML returns the configuration as a file has it, with secrets hidden: what is
// secret in store_url, seal keys, the inspector's token, and the headers and environments
// of tool servers.
// Of a seal key there is the beginning of a hash, by which replicas can be compared.
func (c *Config) YAML() ([]byte, error) {
	// A copy, and copies of the lists that change: requests are using the configuration.
	shown := *c
	shown.StoreURL = hideSecrets(c.StoreURL, false)
	if c.Inspector.Token != "" {
		shown.Inspector.Token = hidden
	}
	shown.Responses.SealKeys = slices.Clone(c.Responses.SealKeys)
	for i, key := range c.Responses.SealKeys {
		// A part of the hash shows whether replicas have the same keys, and is too little to tell a key.
		sum := sha256.Sum256([]byte(key))

		shown.Responses.SealKeys[i] = hidden + " sha256:" + hex.EncodeToString(sum[:4])
	}
	shown.Tools.Servers = slices.Clone(c.Tools.Servers)
	for i := range shown.Tools.Servers {
		s := &shown.Tools.Servers[i]
		s.URL, s.Env, s.Headers = hideSecrets(s.URL, true), hideValues(s.Env), hideValues(s.Headers)
	}

	text, err := yaml.Marshal(&shown)
	if err != nil {
		return nil, fmt.Errorf("write the configuration: %w", err)
	}
	return text, nil
}

// Hash returns a number of 48 bits that two configurations have in common if
// [Config.YAML] returns the same for both.
func (c *Config) Hash() (uint64, error) {
	text, err := c.YAML()
	sum := sha256.Sum256(text)
	// The metric of the hash is a float, which is exact up to 53 bits.
	return binary.BigEndian.Uint64(sum[:]) >> 16, err
}

// hideSecrets is a URL with its password hidden, and its parameters: all of them, or
// those whose name says password.
func hideSecrets(raw string, all bool) string {
	u, err := url.Parse(raw)
	if err != nil {
		return hidden
	}
	// The path of a SQLite file has no secret, and is what one looks for here.
	if u.Opaque != "" && u.Scheme != "sqlite" { // such as redis:user:password@host
		return u.Scheme + ":" + hidden
	}

	if _, set := u.User.Password(); set {
		u.User = url.UserPassword(u.User.Username(), "hidden")
	}

	parts := strings.Split(u.RawQuery, "&")
	for i, part := range parts {
		// Such as PostgreSQL's password and sslpassword.
		name, _, assigned := strings.Cut(part, "=")
		if assigned && strings.Contains(strings.ToLower(name), "pass") {
			parts[i] = name + "=hidden"
		}
	}
	query := strings.Join(parts, "&")
	if all && query != "" {
		query = "hidden"
	}

	// A URL without secrets stays as it was written, where another spelling would be a change of
	// the hash.
	if shown, set := u.User.Password(); shown == "hidden" && set || query != u.RawQuery {
		u.RawQuery = query
		return u.String()
	}
	return raw
}

// hideValues is a mapping with its values hidden, except the names of variables of
// the environment in them.
func hideValues(m map[string]string) map[string]string {
	shown := map[string]string{}
	for name, value := range m {
		shown[name] = strings.Join(append([]string{hidden}, variable.FindAllString(value, -1)...), " ")
	}
	return shown
}
