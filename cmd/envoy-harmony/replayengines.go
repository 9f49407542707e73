package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"text/tabwriter"

	"github.com/envoy-harmony/envoy-harmony/filter/engine"
	"github.com/envoy-harmony/envoy-harmony/filter/record"
	"github.com/envoy-harmony/envoy-harmony/filter/replay"
)

// asked is an engine that is asked again, and what it has said.
type asked struct {
	engine *replay.Engine
	tally  replay.Tally
}

// newEngine reads KIND=URL.
func newEngine(text string) (*replay.Engine, error) {
	kind, address, _ := strings.Cut(text, "=")
	dialect, ok := engine.ByKind(kind)
	switch u, err := url.Parse(address); {
	case !ok:
		return nil, fmt.Errorf("%q is not one of %s", kind, strings.Join(engine.Kinds(), ", "))
	case engine.IsGRPC(kind):
		return nil, fmt.Errorf("%s is a gRPC service, which only Envoy asks: use the engine's HTTP API", kind)
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return nil, errors.New("write it as KIND=URL, such as vllm=http://10.0.0.1:8000")
	}
	return &replay.Engine{Name: text, URL: address, Dialect: dialect, Client: &http.Client{}}, nil
}

// ask asks the engines with the model calls of a record.
func (r *replayer) ask(_ string, rec *record.Record) {
	player, err := r.player(rec)
	if err != nil {
		r.skipped["its configuration: "+err.Error()]++
		return
	}

	calls, why := player.Calls(r.ctx, rec)
	if why != "" {
		r.skipped[why]++
		return
	}

	for i := range calls {
		// In turns, so that all have the same load.
		for _, a := range r.asked {
			is, err := a.engine.Ask(r.ctx, calls[i].Request)
			if err != nil {
				// That an engine fails is a result of the comparison, and no reason to end it.
				is.Refused = err.Error()
			}

			if is.Refused != "" && (r.show == 0 || r.shown < r.show) {
				r.shown++
				fmt.Fprintf(r.program.stderr, "%s: %s: %s\n", rec.ID, a.engine.Name, is.Refused)
			}
			a.tally.Add(&calls[i].Was, &is)
		}
	}
}

// compared writes the comparison of the engines. An error says that none has answered.
func (r *replayer) compared(w io.Writer) error {
	tallies := make([]*replay.Tally, len(r.asked))
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprint(table, "\trecorded")
	answered := 0
	for i, a := range r.asked {
		tallies[i] = &a.tally
		answered += a.tally.Asked - a.tally.Failed
		fmt.Fprint(table, "\t", a.engine.Name)
	}

	fmt.Fprintln(table)
	for _, row := range replay.Table(tallies) {
		fmt.Fprintf(table, "%s\t%s\n", row.Name, strings.Join(row.Values, "\t"))
	}

	if err := table.Flush(); err != nil {
		return fmt.Errorf("write the comparison: %w", err)
	}

	r.skips(w)
	if answered == 0 {
		return errors.New("no engine has answered")
	}
	return nil
}
