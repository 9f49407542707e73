package models

import (
	"context"

	"github.com/envoy-harmony/envoy-harmony/filter/config"
)

// Serves reports whether a model's engine serves it, for requests that no engine gets. Where
// nothing is known, and where the engine takes every name, it does.
func (d *Directory) Serves(ctx context.Context, m *config.Model) bool {
	e, known := d.engines[m.Engine]
	dialect := d.o.Dialects[m.Engine]
	if d.o.Client == nil || !known || dialect == nil || !dialect.Traits().NamesModel || e.lists(m.UpstreamModel) {
		return true
	}

	// An adapter may have been loaded since the list was made.
	if answer := d.engineModels(ctx, m.Engine); answer.err != nil {
		return true
	}
	return e.lists(m.UpstreamModel)
}

// lists reports whether the engine's last list has a model. One that is empty says nothing.
func (e *engineList) lists(model string) bool {
	lengths := e.lengths.Load()
	if lengths == nil || len(*lengths) == 0 {
		return lengths != nil
	}
	for _, m := range *lengths {
		if m.id == model {
			return true
		}
	}
	return false
}
