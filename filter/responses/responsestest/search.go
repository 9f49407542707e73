package responsestest

var (
	searchExecution = word("client", "server")

	searchCallItem = object(map[string]member{
		"type": must(name), "id": must(prefixed("tsc_")), "status": must(itemStatus),
		"execution": must(searchExecution), "call_id": must(nullable(name)), "arguments": must(anyObject),
	})
	searchOutputItem = object(map[string]member{
		"type": must(name), "id": must(prefixed("tso_")), "status": must(itemStatus),
		"execution": must(searchExecution), "call_id": must(nullable(name)), "tools": must(array(anyObject)),
	})
)
