package tools_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/envoy-harmony/envoy-harmony/filter/tools"
)

func Example() {
	server := mcp.NewServer(&mcp.Implementation{Name: "weather", Version: "1"}, nil)
	type place struct {
		City string `json:"city"`
	}

	mcp.AddTool(server, &mcp.Tool{Name: "forecast"}, func(_ context.Context, _ *mcp.CallToolRequest, p place) (*mcp.CallToolResult, any, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "Sunny in " + p.City}}}, nil, nil
	})

	at := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil))
	defer at.Close()

	client := tools.New(tools.Options{Servers: []tools.Server{{Label: "weather", URL: at.URL, Trusted: true}}})
	defer client.Close()
	weather, _ := client.Server("weather")
	listed := client.Do(context.Background(), tools.Job{Server: weather})
	fmt.Println(listed.Tools[0].Name)
	result := client.Do(context.Background(), tools.Job{Server: weather, Tool: "forecast", Arguments: `{"city": "Oslo"}`})
	fmt.Println(result.Text, result.Error)
	// Output:
	// forecast
	// Sunny in Oslo
}
