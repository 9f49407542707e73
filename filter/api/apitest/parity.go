package apitest

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// parity is NVIDIA Dynamo's public table of cases for Harmony parsers, in a form of our own: what the
// model writes, and what its newest readable results say of Dynamo, vLLM and SGLang. The cases are
//
//	Copyright (c) 2026 NVIDIA CORPORATION & AFFILIATES, Apache-2.0
//
// from tests/parity/*/fixtures/harmony of ai-dynamo/dynamo (405da2ad4867ae525f79266141bed877e779f240
// and its fork wxsms/dynamo, 7d7090998ed380b3d2a591ca87279257c65f5ccc), and from
// conformance/toolcalling/fixtures/harmony of ai-dynamo/frontend-crates
// (cd82062406be8a0c1ffc6ce24487ff4307117c46, c16ef8452abe141737b5be0fc5439a314f5cf0a2; its pull request
// 47 of 2026-06-10 has the newest word on Dynamo's 5.a and 5.d). Each row says which of them is its source.
// "old" is a text that a newer one of the same name has replaced.
//
// docs/harmony.md shows the rows, beside the replies here.
//
//go:embed testdata/parity.jsonl
var parity string

// parityCase is a row of the table.
type parityCase struct {
	Case string
	// From is where the case and the results come from.
	From  string
	Tools []json.RawMessage
	// Output is the model's, with its control tokens as text.
	Output string
}

// Parity compares the replies to the cases with testdata/parity.txt of the API's package: one line a
// case and way to end. An output without a token that ends it is played twice: as one whose last token
// the engine keeps to itself, and as one that a limit has cut.
func (a *API) Parity(t *testing.T, members func(functions []string) string) {
	var replies strings.Builder
	for _, row := range jsonLines[parityCase](t, parity) {
		if row.From == "" {
			t.Errorf("the case %q has no source", row.Case)
		}
		functions := make([]string, len(row.Tools))
		for i, tool := range row.Tools {
			functions[i] = strings.TrimSuffix(strings.TrimPrefix(string(tool), "{"), "}")
		}
		body := a.Ask(members(functions))

		fmt.Fprintf(&replies, "%s\t%s\n", row.Case, a.reply(t, body, Said(row.Output)))
		if !strings.HasSuffix(row.Output, "<|call|>") {
			fmt.Fprintf(&replies, "%s cut\t%s\n", row.Case, a.reply(t, body, Cut(row.Output)))
		}
	}
	Compare(t, "testdata/parity.txt", replies.String())
}
