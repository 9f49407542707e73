package main

import "slices"

// vocabularies are the words of the languages that strings are written in, by the names of
// the members that hold the strings.
var vocabularies = map[string][]string{
	"pattern":      regexWords,
	"regex":        regexWords,
	"guided_regex": regexWords,
	"definition":   slices.Concat(larkWords, regexWords),
	"grammar":      slices.Concat(larkWords, regexWords),
	"text":         answerWords,
	"arguments":    answerWords,
}

// texts are what any string grows by: dear to tokenize, to escape or to compare.
var texts = []string{"a", " ", "\n", "7", "é", "🙂", "<|start|>", "\"", "\x01", "\u2028", "qzx jv", "aB3$", "{\"a\":"}

// regexWords are the pieces of regular expressions.
var regexWords = []string{
	"a", "b", ".", "^", "$", "|", "a|b", "b^c|", "(?:a|b)", "(", ")", "*", "+", "?", "a*", ".*", "a{0,1000}", "{2}",
	"{0,9}", "[a-z]", "[^a]", "[", "]",
	`\d`, `\w`, `\b`, `\pL`, `\p{Greek}`, `[\pL]`, `\x{10FFFF}`, "(?i)", "(?i:k)", `\u00e9`, "é",
}

// larkWords are the pieces of grammars, in Lark's syntax and in that of EBNF.
var larkWords = []string{
	"\n", "#\n", "//\n", "# text\n", "\n| \"b\"", "| \"b\"\n", "a: \"b\"\n", "A: /a/\n", "start", "(", ")", "[", "]",
	"?", "*", "+", "~1..3", " ", "\"a\" ", "\"a\"i ", "/a/ ",
	"\"a\"..\"z\" ", "%ignore \" \"\n", "%import common.WORD\n", "WORD ", ": ", " -> b\n", "root ::= ", "'a' ",
}

// answerWords are the pieces of the texts of models: of words, and of JSON that is nearly
// right.
var answerWords = []string{
	"a", "ab ", " ", "\n", "1", "[", "]", "[],", "{", "}", "\"", "'", ",", ":", "\\",
	"\\u0061", "\"a\":", "1,", "```", "<think>", "é", "🙂",
}

// keywords are members of schemas.
var keywords = []string{
	`{"pattern":"a"}`, `{"pattern":"b^c|a"}`, `{"pattern":"[\\pL]"}`,
	`{"patternProperties":{"^a":{"pattern":"b$c"}}}`, `{"propertyNames":{"pattern":"a"}}`,
	`{"format":"date"}`, `{"minLength":1,"maxLength":99}`, `{"uniqueItems":true}`, `{"multipleOf":0.01}`,
	`{"prefixItems":[{}]}`, `{"contains":{},"minContains":1}`, `{"not":{"const":1}}`,
	`{"if":{"const":1},"then":{"const":2},"else":{}}`, `{"dependentSchemas":{"a":{}}}`,
	`{"dependentRequired":{"a":["b"]}}`, `{"unevaluatedProperties":false}`, `{"items":{"$ref":"#"}}`,
	`{"properties":{"a":{"$ref":"#"}}}`, `{"additionalProperties":{"type":"string"}}`, `{"required":["a"]}`,
	`{"type":["string","array","object"]}`, `{"enum":["a","b"]}`, `{"minProperties":1}`,
}
