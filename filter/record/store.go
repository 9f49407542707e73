package record

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/envoy-harmony/envoy-harmony/filter/store"
	"github.com/envoy-harmony/envoy-harmony/filter/work"
)

// Store returns s with the accesses that are made for recorded exchanges taken down.
// Others pass.
func Store(s store.Store) store.Store { return store.Intercept(s, takeDown) }

// takeDown is a [store.Interceptor]. In place of a store, the effects of the context may make
// the access, or replay it.
func takeDown(ctx context.Context, c *store.Call, do func(context.Context) error) error {
	effects := From(ctx)

	// Leases are the process's, not an exchange's. A charge depends on what others have taken,
	// and replays make none: they have no quotas.
	if effects == nil || c.Operation == store.OpRenew || c.Operation == store.OpCharge {
		return do(ctx)
	}

	key, err := json.Marshal(c.Arguments)
	if err != nil {
		return fmt.Errorf("record an access to the store: %w", err)
	}

	made := false
	result, err := effects.Access(string(c.Operation), key, func() (json.RawMessage, error) {
		made = true
		if err := do(ctx); err != nil {
			return nil, err
		}
		result, err := json.Marshal(c.Result)
		if err != nil {
			return nil, fmt.Errorf("record a result of the store: %w", err)
		}
		return result, nil
	})
	if made || err != nil {
		return err
	}

	// Nothing was made: this is the result that the exchange had when it was recorded.
	if err := json.Unmarshal(result, c.Result); err != nil {
		return fmt.Errorf("the recorded result of %s: %w", c.Operation, err)
	}
	return nil
}

// storeErrors are the errors of a store that works, by the names that records have for
// them.
var storeErrors = map[string]error{
	"not_found":  store.ErrNotFound,
	"conflict":   store.ErrConflict,
	"too_large":  store.ErrTooLarge,
	"too_costly": work.ErrExceeded,
	"canceled":   context.Canceled,
	"timeout":    context.DeadlineExceeded,
}

// errorName is the name of an error of a store. Other errors may have addresses.
func errorName(err error) string {
	for name, known := range storeErrors {
		if errors.Is(err, known) {
			return name
		}
	}
	return "failed"
}

// errStoreFailed is the error of a store that did not work.
var errStoreFailed = errors.New("the store failed when the exchange was recorded")

// storeError is the error with a name.
func storeError(name string) error {
	if err, ok := storeErrors[name]; ok {
		return err
	}
	return errStoreFailed
}

// Err returns the access's error as the exchange had it; nil if it had none.
func (a *Access) Err() error {
	if a.Error == "" {
		return nil
	}
	return storeError(a.Error)
}
