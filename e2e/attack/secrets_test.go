//go:build attack

package attack

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
)

// secretArea looks for markers of secrets in logs, replies and metrics.
func secretArea() area {
	const (
		operatorHeader = "marker-operator-header-1"
		urlKey         = "marker-url-key-2"
		ownToken       = "marker-own-token-3"
		ownHeader      = "marker-own-header-4"
		clientKey      = "marker-client-key-5"
		cookie         = "marker-cookie-6"
		prompt         = "marker-prompt-7"
		thought        = "marker-thought-8"
		sealKey        = "bWFya2VyLXNlYWwta2V5LTkgMzIgYnl0ZXMgbG9uZyE="
		apiKey         = "marker-api-key-10"
		toolOutput     = "marker-tool-output-11"
		image          = "bWFya2VyLWltYWdlLTEy"
		environment    = "marker-environment-13"
		storePassword  = "marker-store-password-14"
	)

	never := []string{operatorHeader, urlKey, sealKey, clientKey, cookie, apiKey, ownToken, ownHeader, environment, storePassword}
	inLogs := append([]string{prompt, thought, toolOutput, image}, never...)
	var echo *stack.FixedServer

	look := func(name string, send func(a *attempt) answerOf) attack {
		return attack{name: name, want: "no marker", run: func(a *attempt) {
			before := len(a.Logs.String())
			r := send(a)
			time.Sleep(100 * time.Millisecond) // the last line of the log
			a.see("%d", r.status)

			logs := a.Logs.String()[before:]
			for _, line := range strings.Split(logs, "\n") {
				if strings.HasPrefix(line, "engine") {
					continue // not ours
				}
				for _, m := range inLogs {
					if strings.Contains(line, m) {
						a.Errorf("the log has %s: %.400s", m, line)
					}
				}
			}

			for _, m := range never {
				if strings.Contains(r.text, m) || strings.Contains(fmt.Sprint(r.header), m) {
					a.Errorf("the reply has %s: %.400s", m, r.text)
				}
			}
		}}
	}

	headers := []string{"Authorization", "Bearer " + clientKey, "Cookie", "a=" + cookie, "X-Api-Key", apiKey}
	post := func(path, body string) func(*attempt) answerOf {
		return func(a *attempt) answerOf { return a.post(path, body, headers...) }
	}

	script := jsonText("THINK " + thought + "\nSAY " + prompt)
	call := jsonText("THINK " + thought + "\nCALL LABEL.tool {\"a\":\"" + prompt + "\"}")

	all := []attack{
		look("chat", post(chatPath, chatBody(script, ""))),
		look("chat, streamed", post(chatPath, chatBody(script, `,"stream":true`))),
		look("Responses", post(responsesPath, responsesBody(script, `,"include":["reasoning.encrypted_content"]`))),
		look("Messages", post(messagesPath, messagesBody(script, ""))),
		look("a configured server that repeats headers", post(responsesPath, responsesBody(strings.Replace(call, "LABEL", "echo", 1), `,"tools":[{"type":"mcp","server_label":"echo"}]`))),
		look("a program that repeats its environment", post(responsesPath, responsesBody(strings.Replace(call, "LABEL", "program", 1), `,"tools":[{"type":"mcp","server_label":"program"}]`))),
		look("a response that is not stored, since the store is down", post(responsesPath, responsesBody(script, ""))),
		look("a response of a store that is down", func(a *attempt) answerOf {
			return a.send(http.MethodGet, responsesPath+"/resp_1", http.NoBody, headers...)
		}),
		look("an own server that repeats headers", func(a *attempt) answerOf {
			return a.post(responsesPath, responsesBody(strings.Replace(call, "LABEL", "own", 1), ownServer(echo.URL, `,"authorization":"`+ownToken+`","headers":{"X-Own":"`+ownHeader+`"}`)), headers...)
		}),
		look("a configured server that is down", post(responsesPath, responsesBody(strings.Replace(call, "LABEL", "down", 1), `,"tools":[{"type":"mcp","server_label":"down"}]`))),
		look("an error in the prompt's JSON", post(chatPath, `{"model":"gpt-oss-20b","messages":[{"role":"user","content":"`+prompt+`","x":}]}`)),
		look("an error of a member", post(chatPath, chatBody(script, `,"temperature":"`+prompt+`"`))),
		look("an engine's error with words of the prompt", post(chatPath, chatBody(jsonText(prompt+" "+prompt+"\nSIM status=400 body=detail"), ""))),
		look("an engine that breaks off", post(chatPath, chatBody(jsonText("THINK "+thought+"\nSAY "+prompt+"\nSIM fault=cut@8"), ""))),
		look("an engine's garbage", post(chatPath, chatBody(jsonText("THINK "+thought+"\nSAY "+prompt+"\nSIM fault=garbage@8"), ""))),
		look("a picture", post(chatPath, chatBody(`[{"type":"image_url","image_url":{"url":"data:image/png;base64,`+image+`"}},{"type":"text","text":"x"}]`, ""))),
		look("a server URL with a key", post(responsesPath, responsesBody(script, ownServer("http://user:"+ownToken+"@localhost:1/?k="+ownToken, "")))),
		look("the metrics", func(a *attempt) answerOf {
			resp, err := http.Get(a.program.Admin + "/metrics") //nolint:noctx // the filter's own port
			if err != nil {
				a.Fatal(err)
			}
			defer resp.Body.Close()
			text, _ := io.ReadAll(resp.Body)
			return answerOf{resp.StatusCode, string(text), resp.Header}
		}),
	}

	return area{name: "secrets", attacks: all, config: func(t *testing.T, c *stackConfig) {
		echo = stack.NewFixedServer(t, `[{"name":"tool",`+stack.AnyObject+`}]`, func(_ string, r *http.Request) string {
			return stack.ToolResult(fmt.Sprint(toolOutput, r.Header, r.URL), false)
		})

		c.set("log.level", "trace")
		c.set("store_url", "redis://user:"+storePassword+"@127.0.0.1:1/0")
		c.set("responses.seal_keys", []string{sealKey})
		c.set("tools.allowed_hosts", []string{echo.URL})
		c.set("tools.allowed_networks", []string{"127.0.0.1/32"})
		c.set("tools.servers", []any{
			map[string]any{"label": "echo", "url": echo.URL + "?key=" + urlKey, "headers": map[string]string{"X-Operator": operatorHeader}},
			map[string]any{"label": "program", "command": []string{"/bin/sh", "-c", "env; env >&2; cat"}, "env": map[string]string{"KEY": environment}},
			map[string]any{"label": "down", "url": "http://127.0.0.1:1/?key=" + urlKey, "headers": map[string]string{"X-Operator": operatorHeader}},
		})
	}}
}
