package stack

import (
	"net/url"
	"os"
	"strconv"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/filter/config"
	"github.com/envoy-harmony/envoy-harmony/filter/engine"
)

// Roles of simulated engines.
const (
	RolePrefill = "prefill"
	RoleDecode  = "decode"
)

// Part is a prefill or a decode engine of all kinds.
type Part struct {
	URL     string
	Process *os.Process
}

// Parts are two prefill and two decode engines.
type Parts map[string][]Part

// NewParts starts the engines.
func NewParts(t testing.TB, log *LogFile) Parts {
	p := Parts{}
	// Two of each: with one, every choice of an endpoint would look right.
	for _, role := range []string{RolePrefill, RolePrefill, RoleDecode, RoleDecode} {
		address, process := StartSimAs(t, log, "--role", role)
		p[role] = append(p[role], Part{address, process})
	}
	return p
}

// PrefillAt returns the configuration of a prefill endpoint. The simulator's
// bootstrap server is on its own port.
func PrefillAt(t testing.TB, kind, address string) config.Prefill {
	t.Helper()
	p := config.Prefill{URL: address}
	if bootstrapRoom, _ := engine.Disaggregates(kind); bootstrapRoom {
		u, err := url.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		if p.BootstrapPort, err = strconv.Atoi(u.Port()); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

// Serve configures a disaggregated engine of each kind that supports it, each with
// its own model.
func (p Parts) Serve(t testing.TB) func(*config.Config) {
	return func(c *config.Config) {
		c.Engines, c.Models = nil, nil
		for _, kind := range engine.Disaggregating() {
			e := config.Engine{Kind: kind}
			for _, one := range p[RolePrefill] {
				e.Prefill = append(e.Prefill, PrefillAt(t, kind, one.URL))
			}
			for _, one := range p[RoleDecode] {
				e.URLs = append(e.URLs, one.URL)
			}
			c.Engines = append(c.Engines, e)
			c.Models = append(c.Models, config.Model{
				Match: "=" + ModelOf(kind), Engine: kind,
				UpstreamModel: "gpt-oss-20b",
			})
		}
	}
}
