// Command strictness writes the grammars of tool_strictness for tools of real agents, one JSON object a line: the words
// of the setting, with 1, 32, 128 and 512 tools of e2e/corpus. "make bench-strictness" measures them.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/constraint"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/request"
	"github.com/envoy-harmony/envoy-harmony/filter/turn/toolset"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

func main() {
	if err := write(os.Stdout, "e2e/corpus/requests"); err != nil {
		fmt.Fprintln(os.Stderr, "strictness:", err)
		os.Exit(1)
	}
}

// row is a grammar with what it is of.
type row struct {
	Setting string `json:"setting"`
	Tools   int    `json:"tools"`
	// First is the recipient of the first tool.
	First string `json:"first"`
	// Schemas is how many of the tools' schemas are enforced.
	Schemas int    `json:"schemas"`
	Tag     string `json:"tag"`
}

func write(w io.Writer, folder string) error {
	tools, err := toolsOf(folder)
	if err != nil {
		return fmt.Errorf("reading the tools of the corpus: %w", err)
	}

	lines := json.NewEncoder(w)
	for _, n := range []int{1, 32, 128, 512} {
		for _, setting := range []string{request.StrictnessNames, request.StrictnessAll} {
			r, err := grammar(setting, repeated(tools, n))
			if err != nil {
				return err
			}
			if err := lines.Encode(r); err != nil {
				return fmt.Errorf("writing a grammar: %w", err)
			}
		}
	}
	return nil
}

// toolsOf returns the functions of the corpus, one of each name.
func toolsOf(folder string) ([]harmony.Tool, error) {
	files, err := filepath.Glob(filepath.Join(folder, "*.jsonl"))
	if err != nil || len(files) == 0 {
		return nil, errors.Join(err, fmt.Errorf("%s has no requests: run this in the project's folder", folder))
	}

	c := collection{seen: map[string]bool{}}
	for _, file := range files {
		if err := c.read(file); err != nil {
			return nil, err
		}
	}
	return c.tools, nil
}

type collection struct {
	tools []harmony.Tool
	seen  map[string]bool
}

func (c *collection) read(file string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()

	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		c.collect(gjson.ParseBytes(lines.Bytes()))
	}
	return lines.Err()
}

// collect adds the tools anywhere in a value: requests have them in lists, namespaces and items.
func (c *collection) collect(v gjson.Result) {
	name, parameters := v.Get("name").Str, v.Get("parameters")
	if !parameters.IsObject() {
		parameters = v.Get("input_schema")
	}
	if name != "" && parameters.IsObject() && !c.seen[name] {
		c.seen[name] = true
		c.tools = append(c.tools, harmony.Tool{Name: name, Parameters: []byte(parameters.Raw)})
	}
	if v.IsObject() || v.IsArray() {
		v.ForEach(func(_, inner gjson.Result) bool {
			c.collect(inner)
			return true
		})
	}
}

// repeated returns n tools: those there are, and then again with other names.
func repeated(tools []harmony.Tool, n int) []harmony.Tool {
	all := make([]harmony.Tool, n)
	for i := range all {
		all[i] = tools[i%len(tools)]
		if again := i / len(tools); again > 0 {
			all[i].Name = fmt.Sprintf("%s_%d", all[i].Name, again+1)
		}
	}
	return all
}

func grammar(setting string, tools []harmony.Tool) (*row, error) {
	rc := &request.Context{
		Env: &request.Env{Limits: request.DefaultLimits()}, Model: &request.Model{ToolStrictness: setting},
	}
	in := &request.Input{Tools: []harmony.Namespace{{Name: "functions", Tools: tools}}}
	set, refusal := toolset.New(rc, in, nil)
	if refusal != nil {
		return nil, refusal
	}
	spec, refusal := toolset.NewSpec(rc, in, in.Choice, set)
	if refusal != nil {
		return nil, refusal
	}

	r := &row{
		Setting: setting, Tools: len(tools), First: spec.Tools[0].Recipient,
		Tag: string(constraint.AppendStructuralTag(nil, spec.Format(nil))),
	}
	r.Schemas = len(slices.DeleteFunc(slices.Clone(spec.Tools), func(t constraint.Tool) bool {
		return t.Enforced.Schema == nil
	}))
	return r, nil
}
