package enginesim

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/e2e/engines/probes"
)

// TestProbes: the simulator answers as real engines do, whose answers make test-engines has
// kept, but for the differences that their files explain.
func TestProbes(t *testing.T) {
	const dir = "../../../../e2e/engines/probes/testdata"
	for _, e := range probes.Engines {
		t.Run(e.Name, func(t *testing.T) {
			t.Parallel() // aborts take time
			file, err := probes.Newest(dir, e)
			if err != nil {
				t.Fatal(err)
			}
			if file == nil {
				t.Skip("make test-engines has kept no answers of it yet")
			}

			behavior, err := Behavior{}.With(e.Directives)
			if err != nil {
				t.Fatal(err)
			}
			sim := New(Options{
				Models: []string{probes.Model}, ContextLength: probes.ContextLength, BlockSize: e.Block, Behavior: behavior,
			})
			server := httptest.NewUnstartedServer(sim)
			server.Config.Protocols = new(http.Protocols)
			server.Config.Protocols.SetHTTP1(true)
			server.Config.Protocols.SetUnencryptedHTTP2(true)
			server.Start()
			t.Cleanup(server.Close)

			answers, err := probes.Run(t.Context(), e, server.URL)
			if err != nil {
				t.Fatal(err)
			}
			if err := file.Check(answers); err != nil {
				t.Error(err)
			}
			if *update {
				if err := file.Save(dir); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}
