package models

import (
	"flag"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/config"
)

var update = flag.Bool("update", false, "write the golden files")

// A card has the form of Codex 0.169 and 0.171, byte for byte.
func TestCodexCardIsPinned(t *testing.T) {
	t.Parallel()
	c := card{model: `gpt-oss-"20b"`, contextLength: 131072, effort: "medium", constrains: true}
	got := c.append(nil)
	path := filepath.Join("testdata", "codex-0.169.json")
	if *update {
		if err := os.WriteFile(path, append(got, '\n'), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if diff := cmp.Diff(string(want), string(got)+"\n"); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

// codexForm are the members of a ModelInfo that Codex 0.169 and 0.171 read, as their binaries have them
// (codex debug models), with the values that it takes. "" is any value.
var codexForm = map[string]string{
	"slug": "", "display_name": "", "priority": "", "supported_in_api": "true false", "support_verbosity": "true false",
	"visibility": "list hide none", "shell_type": "default local shell_command unified_exec disabled",
	"truncation_policy.mode": "bytes tokens", "truncation_policy.limit": "", "experimental_supported_tools": "",
	"supported_reasoning_levels": "", "supported_reasoning_levels.#.effort": "", "supported_reasoning_levels.#.description": "",
	"base_instructions": "", "default_reasoning_level": "", "context_window": "", "max_context_window": "", "input_modalities": "",
	"truncation_policy": "",

	"apply_patch_tool_type": "freeform", // optional, and every one above is there
}

func TestCodexCardHasTheForm(t *testing.T) {
	t.Parallel()
	for _, constrains := range []bool{false, true} {
		got := gjson.ParseBytes(card{model: "m", contextLength: 500, effort: "low", constrains: constrains}.append(nil))
		for path, values := range codexForm {
			value := got.Get(path)
			if want := constrains || path != "apply_patch_tool_type"; value.Exists() != want {
				t.Errorf("%s is %s", path, value.Raw)
			} else if want && values != "" && !slices.Contains(strings.Fields(values), value.String()) {
				t.Errorf("%s is %s, which is none of %s", path, value.Raw, values)
			}
		}
		for _, key := range slices.Sorted(maps.Keys(got.Map())) {
			if _, known := codexForm[key]; !known {
				t.Errorf("Codex does not know %s", key)
			}
		}
	}
}

// Versions of Codex whose form is known get a card for each Harmony model of the list.
func TestCodexCards(t *testing.T) {
	t.Parallel()
	const a = `{"object":"list","data":[{"id":"gpt-oss-20b","max_model_len":4096},{"id":"lora"}],"models":[{"name":"gpt-oss-20b","model":"x"}]}`
	const upstream = `{"object":"list","data":[{"id":"gpt-4"},{"id":"gpt-5"}],"x":1,"models":[{"slug":"gpt-4","y":2},{"slug":"gpt-5"},{"slug":3},{"name":"gpt-4"},5]}`
	aliases := func(c *config.Config) {
		c.Aliases = []config.Alias{{Name: "gpt-5", Model: "gpt-oss-20b"}, {Name: "claude-*", Model: "gpt-oss-20b"}}
		c.Models = append(c.Models, config.Model{Match: "20b", Effort: "high"})
	}
	for _, tt := range []struct {
		name, upstream, version string
		config                  func(*config.Config)
		want                    string // slugs, with the window and the effort of ours; -: no cards
	}{
		{"one engine", a, "0.169.0", nil, "gpt-oss-20b:4096:medium"},
		{"a patch of it", a, "0.169.12", nil, "gpt-oss-20b:4096:medium"},
		{"the next one whose form is the same", a, "0.171.0", nil, "gpt-oss-20b:4096:medium"},
		{"several sources", upstream, "0.169.0", aliases, "gpt-5:4096:high gpt-oss-20b:4096:high gpt-4::"},
		{"an engine that reports no window", "", "0.169.0", func(c *config.Config) {
			c.HarmonyModels = append(c.HarmonyModels, "=mine")
			c.Models = append(c.Models, config.Model{Match: "=mine", Engine: "c"})
		}, "gpt-oss-20b:4096:medium mine:131072:medium"},
		{"a configured window", "", "0.169.0", func(c *config.Config) { c.ModelDefaults.ContextLength = 99 }, "gpt-oss-20b:99:medium"},
		{"models of no card", `{"data":[{"id":"x"}],"models":{"slug":"x"}}`, "0.169.0", func(c *config.Config) { c.HarmonyModels, c.Models = []string{"=none"}, nil }, "none:131072:medium"},
		{"another version", "", "0.170.0", nil, "-"},
		{"a version that begins alike", "", "0.1690.0", nil, "-"},
		{"no version", "", "", nil, "-"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			d := newTestDirectory(t, &fakeGateway{answers: map[string]string{"": tt.upstream, "a": a, "b": `{"data":[]}`}}, tt.config)
			o := d.get("/v1/models?client_version=" + tt.version)
			got := gjson.ParseBytes(o.Answer)
			if !gjson.ValidBytes(o.Answer) || strings.Count(string(o.Answer), `"models":`) > 1 || got.Get("object").Str != "list" || got.Get("data.#").Int() == 0 {
				t.Fatalf("the list is %s", o.Answer)
			}
			cards := []string{}
			for _, c := range got.Get("models").Array() {
				cards = append(cards, c.Get("slug").String()+":"+c.Get("context_window").Raw+":"+c.Get("default_reasoning_level").Str)
			}
			if !got.Get("models").Exists() {
				cards = []string{"-"}
			}
			if diff := cmp.Diff(tt.want, strings.Join(cards, " ")); diff != "" {
				t.Errorf("cards (-want +got):\n%s", diff)
			}
		})
	}
}

// The list of OpenAI's clients is the same, whatever else Codex gets.
func TestCodexListIsOpenAIs(t *testing.T) {
	t.Parallel()
	d := newTestDirectory(t, &fakeGateway{answers: map[string]string{"": `{"data":[{"id":"gpt-4"}],"x":1,"models":[{"name":"y"}]}`, "a": `{"data":[{"id":"gpt-oss-20b"}]}`}}, nil)
	plain, codex := string(d.get("/v1/models").Answer), gjson.ParseBytes(d.get("/v1/models?client_version=0.169.0").Answer)
	if want := `{"object":"list","data":[{"id":"gpt-4"},{"id":"gpt-oss-20b"}],"x":1,"models":[{"name":"y"}]}`; plain != want {
		t.Errorf("%s, want %s", plain, want)
	}
	if got := codex.Get("data").Raw + codex.Get("x").Raw; got != gjson.Get(plain, "data").Raw+"1" {
		t.Errorf("Codex's list has other members: %s", codex)
	}
}

// An engine that enforces no grammars has no patch tool, whose grammar keeps patches whole.
func TestCodexPatchTool(t *testing.T) {
	t.Parallel()
	for kind, want := range map[string]string{"vllm": "freeform", "sglang": "freeform", "llamacpp": ""} {
		d := newTestDirectory(t, &fakeGateway{answers: map[string]string{"a": `{"data":[{"id":"gpt-oss-20b"}]}`}}, func(c *config.Config) {
			c.Engines, c.Models = []config.Engine{{Name: "a", Kind: kind}}, nil
		})
		if got := gjson.GetBytes(d.get("/v1/models?client_version=0.169.0").Answer, "models.0.apply_patch_tool_type").Str; got != want {
			t.Errorf("%s: %q, want %q", kind, got, want)
		}
	}
}
