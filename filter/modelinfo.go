package filter

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// modelsRefresh is how often engines that have told their models are asked again.
const modelsRefresh = 10 * time.Minute

// ReadModels asks the engines for the context lengths of their models, which count
// where the configuration has none. Before the first answer, and for models that
// no engine tells, gpt-oss's own length counts. Without a loopback listener nobody
// can be asked.
func (s *Server) ReadModels(ctx context.Context) error {
	if s.loopback == nil {
		return nil
	}
	errs := make([]error, len(s.cfg.Engines))
	var asked sync.WaitGroup
	for i, e := range s.cfg.Engines {
		asked.Go(func() {
			if told := s.engineModels(ctx, e.Name); told.err != nil {
				errs[i] = fmt.Errorf("engine %s: %w", e.Name, told.err)
			}
		})
	}
	asked.Wait()
	return errors.Join(errs...)
}

// FollowModels calls ReadModels until all engines have answered, and now and then
// after that. It returns when ctx ends.
func (s *Server) FollowModels(ctx context.Context) {
	for {
		wait := modelsRefresh
		if s.ReadModels(ctx) != nil { // it has been logged
			wait = modelsFresh
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}
