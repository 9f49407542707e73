package models

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// refreshEvery is how often engines that have answered are asked again.
const refreshEvery = 10 * time.Minute

// Refresh asks the engines for the context lengths of their models, which count
// where the configuration has none. Before the first answer, and for models that
// no engine reports, gpt-oss's own length counts. Without a loopback listener it
// does nothing. Its error names every engine that has not answered.
func (d *Directory) Refresh(ctx context.Context) error {
	if d.o.Client == nil {
		return nil
	}

	// Each goroutine has an element of its own.
	errs := make([]error, len(d.o.Config.Engines))
	var asked sync.WaitGroup
	for i, e := range d.o.Config.Engines {
		asked.Go(func() {
			if m := d.engineModels(ctx, e.Name); m.err != nil {
				errs[i] = fmt.Errorf("engine %s: %w", e.Name, m.err)
			}
		})
	}
	asked.Wait()
	return errors.Join(errs...)
}

// KeepFresh calls Refresh until all engines have answered, and every ten minutes
// after that. It returns when ctx ends.
func (d *Directory) KeepFresh(ctx context.Context) {
	for {
		// Before an engine has answered, gpt-oss's own length counts, which may be too long for it.
		wait := refreshEvery
		if d.Refresh(ctx) != nil { // the error has been logged
			wait = fresh
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}
