package turn

import (
	"context"
	"sync"
)

// memory is a Memory in memory. It is safe for concurrent use.
type memory struct {
	mu sync.Mutex
	// By tenant and name.
	texts map[[2]string]string
	// Calls of Texts.
	reads int
	// Calls of PutTexts.
	writes int
	// That every call returns.
	fault error
	// No call returns before its context ends.
	hangs bool
}

func newMemory() *memory { return &memory{texts: map[[2]string]string{}} }

// bytes returns the size of the texts and their names.
func (m *memory) bytes() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := 0
	for k, text := range m.texts {
		n += len(k[1]) + len(text)
	}
	return n
}

// outcome returns the error of a call.
func (m *memory) outcome(ctx context.Context) error {
	if m.hangs {
		<-ctx.Done()
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return m.fault
}

func (m *memory) Texts(ctx context.Context, tenant string, names []string) (map[string]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reads++
	found := map[string]string{}
	for _, name := range names {
		if text, ok := m.texts[[2]string{tenant, name}]; ok {
			found[name] = text
		}
	}
	return found, m.outcome(ctx)
}

func (m *memory) PutTexts(ctx context.Context, tenant string, texts map[string]string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.writes++
	if err := m.outcome(ctx); err != nil {
		return err
	}
	for name, text := range texts {
		m.texts[[2]string{tenant, name}] = text
	}
	return nil
}

func (m *memory) PutTextIfAbsent(ctx context.Context, tenant, name, text string) (string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.outcome(ctx); err != nil {
		return "", err
	}
	if kept, ok := m.texts[[2]string{tenant, name}]; ok {
		return kept, nil
	}
	m.texts[[2]string{tenant, name}] = text
	return text, nil
}
