package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"strings"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/envoy-harmony/envoy-harmony/filter/config"
)

// nextSteps returns what people at a terminal may want to know once run is ready: where
// everything is, and what to do. address is that of the clients, the others are of the
// filter's admin port and Envoy's.
func (p program) nextSteps(cfg *config.Config, address, admin, envoyAdmin string) string {
	name := cmp.Or(p.name, "envoy-harmony")
	base := "http://" + dialable(address)
	ask := name + " ask Hello"
	if url := base + "/v1"; url != defaultAskURL {
		ask = name + " ask --url " + url + " Hello"
	}

	inspector := "http://" + dialable(admin) + "/inspector/"
	switch {
	case !cfg.Inspector.Enabled:
		inspector = "off; --set inspector.enabled=true --set record.percent=100 --set record.content=true"
	case cfg.Inspector.Token != "":
		inspector += " (it asks for inspector.token)"
	}

	var out strings.Builder
	for _, step := range []struct{ name, text string }{
		{"ask", ask},
		{"clients", "OPENAI_BASE_URL=" + base + "/v1  ANTHROPIC_BASE_URL=" + base},
		{"inspector", inspector},
		{"metrics", "http://" + dialable(admin) + "/metrics"},
		{"envoy", "http://" + dialable(envoyAdmin) + "/"},
		{"stop", "Ctrl-C"},
	} {
		fmt.Fprintf(&out, "  %-9s  %s\n", step.name, step.text)
	}
	return out.String()
}

// dialable returns an address that a client on this machine can use: a listener at 0.0.0.0
// is at every address, and browsers of some systems take none of that name.
func dialable(address string) string {
	host, port, err := net.SplitHostPort(address)
	if ip := net.ParseIP(host); err != nil || ip == nil || !ip.IsUnspecified() {
		return address
	}
	return net.JoinHostPort("127.0.0.1", port)
}

// fromEnvoy is the value of the field from in the lines of Envoy.
const fromEnvoy = "envoy"

// logOfEnvoy returns what takes Envoy's log: its warnings, and with --access-log an object
// for each request.
func logOfEnvoy(log *logrus.Logger) func(line string) {
	entry := log.WithField("from", fromEnvoy)
	return func(line string) {
		if access := accessEntry(entry, line); access != nil {
			access.Info("access")
			return
		}
		entry.Warn(line)
	}
}

// accessEntry returns the entry of a line of the access log, with its fields; nil: the line
// is another one.
func accessEntry(entry *logrus.Entry, line string) *logrus.Entry {
	var members logrus.Fields
	if !strings.HasPrefix(line, "{") || json.Unmarshal([]byte(line), &members) != nil {
		return nil
	}

	// What is not known of a request is null: all of the metadata, if it was not the filter's.
	unknown := func(_ string, value any) bool { return value == nil }
	maps.DeleteFunc(members, unknown)
	if metadata, ok := members["harmony"].(map[string]any); ok {
		maps.DeleteFunc(metadata, unknown)
		if len(metadata) == 0 {
			delete(members, "harmony")
		}
	}

	// The time is that of the request: Envoy writes its log every ten seconds.
	if text, ok := members[logrus.FieldKeyTime].(string); ok {
		if began, err := time.Parse(time.RFC3339, text); err == nil {
			entry = entry.WithTime(began)
		}
	}
	delete(members, logrus.FieldKeyTime)
	return entry.WithFields(members)
}
