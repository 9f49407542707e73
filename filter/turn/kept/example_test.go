package kept_test

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/envoy-harmony/envoy-harmony/filter/turn/item"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/kept"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/request"
)

// texts is a memory of one tenant.
type texts map[string]string

func (t texts) Texts(context.Context, string, []string) (map[string]string, error) { return t, nil }

func (t texts) PutTexts(_ context.Context, _ string, more map[string]string) error {
	maps.Copy(t, more)
	return nil
}

func (t texts) PutTextIfAbsent(context.Context, string, string, string) (string, error) {
	return "", nil
}

// The reasoning that led to a call is there again when a client sends back the call alone.
func Example() {
	rc := &request.Context{Env: &request.Env{Now: time.Now, Memory: texts{}}, Model: &request.Model{}}
	keep := kept.New(rc, []*item.CalledTool{{ID: "call_1", Name: "forecast"}}, "I do not know the weather.", nil)
	if _, err := keep.Do(context.Background()); err != nil {
		fmt.Println(err)
		return
	}

	found, err := kept.Read(context.Background(), rc, nil, []item.Item{
		{Kind: item.User, Text: "Is it sunny?"},
		{Kind: item.Call, CallID: "call_1", Name: "forecast", Text: "{}"},
		{Kind: item.Result, CallID: "call_1", Text: "sunny"},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, it := range found.Items {
		fmt.Println(it.Kind, it.Text)
	}
	// Output:
	// user Is it sunny?
	// reasoning I do not know the weather.
	// call {}
	// result sunny
}
