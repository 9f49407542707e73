package filter

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/tidwall/gjson"
)

const (
	modelInfoRetry   = time.Second      // while the engine has not answered
	modelInfoRefresh = 10 * time.Minute // once it has
	modelInfoTimeout = 10 * time.Second
	maxModelInfo     = 1 << 20
)

// modelInfo is what engines tell of the context lengths of their models.
type modelInfo struct {
	lengths atomic.Pointer[map[string]int]
}

// length is the context length of a model, 0 if the engine told none.
func (i *modelInfo) length(model string) int {
	if lengths := i.lengths.Load(); lengths != nil {
		return (*lengths)[model]
	}
	return 0
}

// readModels reads a reply to GET /v1/models. vLLM and SGLang add
// max_model_len to OpenAI's fields.
func readModels(body []byte) map[string]int {
	lengths := map[string]int{}
	gjson.GetBytes(body, "data").ForEach(func(_, m gjson.Result) bool {
		if n := m.Get("max_model_len").Int(); n > 0 {
			lengths[m.Get("id").String()] = int(n)
		}
		return true
	})
	return lengths
}

// ReadModels asks url, the engines' GET /v1/models behind Envoy, for the
// context lengths of models whose configuration has none. Before the first
// answer, and for models that none names, gpt-oss's own length counts.
func (s *Server) ReadModels(ctx context.Context, url string) error {
	lengths, err := fetchModels(ctx, url)
	if err != nil {
		return err
	}
	s.models.lengths.Store(&lengths)
	return nil
}

// FollowModels calls ReadModels until it succeeds and now and then after that.
// It returns when ctx ends.
func (s *Server) FollowModels(ctx context.Context, url string) {
	told := false
	for {
		wait := modelInfoRefresh
		if err := s.ReadModels(ctx, url); err != nil {
			wait = modelInfoRetry
			if !told && ctx.Err() == nil {
				told = true
				s.log.WithError(err).Info("the engine's model list cannot be read yet; context lengths are gpt-oss's own")
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

func fetchModels(ctx context.Context, url string) (map[string]int, error) {
	ctx, cancel := context.WithTimeout(ctx, modelInfoTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("ask for the model list: %w", err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("ask for the model list: %w", err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxModelInfo))
	if err != nil {
		return nil, fmt.Errorf("read the model list: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("ask for the model list: status %d", resp.StatusCode)
	}
	return readModels(body), nil
}
