package toolset_test

import (
	"fmt"

	"github.com/envoy-harmony/envoy-harmony/filter/turn/request"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/toolset"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// The model sees names that it can write, and writes them in its own ways.
func Example() {
	rc := &request.Context{Env: &request.Env{Limits: request.DefaultLimits()}, Model: &request.Model{}}
	tools, err := toolset.New(rc, &request.Input{
		Tools: []harmony.Namespace{{Name: "docs", Tools: []harmony.Tool{{Name: "read.page"}, {Name: "list"}}}},
	}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, tool := range tools.Namespaces[0].Tools {
		fmt.Println("the model sees", tool.Name)
	}

	for _, recipient := range []string{"docs.list", "docs::read_page", "docs.write"} {
		called, found := tools.Addressee(&harmony.Header{Role: harmony.RoleAssistant, Recipient: recipient})
		fmt.Println(recipient, "calls", called.Name, found == toolset.Offered || found == toolset.Respelled)
	}
	// Output:
	// the model sees read_page
	// the model sees list
	// docs.list calls list true
	// docs::read_page calls read.page true
	// docs.write calls docs_write false
}
