module github.com/envoy-harmony/envoy-harmony/e2e/clients

go 1.26.0

require (
	github.com/openai/openai-go v1.12.0
	github.com/tidwall/gjson v1.20.1
)

require (
	github.com/tidwall/match v1.1.1 // indirect
	github.com/tidwall/pretty v1.2.1 // indirect
	github.com/tidwall/sjson v1.2.5 // indirect
)
