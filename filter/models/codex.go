package models

import (
	"cmp"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/envoy-harmony/envoy-harmony/filter/jsontext"
	"github.com/envoy-harmony/envoy-harmony/filter/turn"
	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// The Codex CLI asks for the models as GET /v1/models?client_version=0.171.0, if its provider
// has command-backed auth. It reads the member models of the answer, a card (ModelInfo) for
// each model; an answer without that member is an error. For a model without a card it
// assumes a window of 272,000 tokens, and warns.

const (
	// clientVersion is the parameter of the query by which Codex says which version it is.
	clientVersion = "client_version"
	// cardsMember is the member of the list that has the cards.
	cardsMember = "models"
)

// codexVersions are the versions of Codex whose form of a card is known, each as the
// beginning of its client_version.
var codexVersions = []string{"0.169.", "0.171."}

// readsCards reports whether a client of this version reads our cards. Codex refuses a whole
// list for one card that has not its form, so that no other version gets them.
func readsCards(version string) bool {
	return slices.ContainsFunc(codexVersions, func(known string) bool { return strings.HasPrefix(version, known) })
}

// card is what Codex wants to know of a Harmony model.
type card struct {
	// model is the name that requests have.
	model string
	// contextLength is how many tokens prompt and output may have together.
	contextLength int
	// effort is the level where a request names none.
	effort string
	// constrains says that the model's engine enforces grammars.
	constrains bool
}

// codexInstructions is the text that Codex puts before everything else. Its own, which models
// without a card get, is not in reach of a card: an empty text is none at all. This one says
// what the descriptions of Codex's tools do not say.
const codexInstructions = `You are a coding agent in the Codex CLI. You and the user share the working directory ` +
	`on the user's computer.

Work until the request is done, then stop. Do what was asked, and no more.
- Read the code before you change it. Search with rg and rg --files if they are installed.
- Change files with the tool apply_patch if you have it, else with shell commands.
- Mend the cause of a fault. Keep the style of the code around your change.
- Check your work: build it, and run the tests that concern it. Say so if you could not.
- Changes that you find and did not make are the user's: leave them. Do not commit, and do not discard changes ` +
	`with git, unless the user asks for it.
- A file AGENTS.md has rules for its directory and all below it. The deeper file counts more, and what the user ` +
	`says counts most.
- Before a longer piece of work, say in one sentence what you are about to do.

Your last message says what you changed and how you checked it, in a few sentences. Name places as path:line. Do not ` +
	`repeat files that the user can open.
`

// effortDescriptions are the levels of effort of gpt-oss, as Codex's list of them shows them.
var effortDescriptions = []struct {
	effort harmony.Effort
	text   string
}{
	{harmony.EffortLow, "Answers soon, with little reasoning"},
	{harmony.EffortMedium, "Reasons as much as most tasks need"},
	{harmony.EffortHigh, "Reasons long, for hard problems"},
}

// append appends the card in the form of Codex 0.169 and 0.171. What is left out is as Codex has it for
// a model without a card.
func (c card) append(dst []byte) []byte {
	w := jsontext.Writer(dst).Open().Text("slug", c.model).Text("display_name", c.model)

	// Codex adds its own catalogue, whose best model has 1. The models of this list come
	// before it, in their order: the first is the one that Codex takes if none is configured.
	w = w.Text("visibility", "list").Bool("supported_in_api", true).Int("priority", 0)

	// The larger of the two windows bounds a model_context_window of Codex's user. Codex
	// compacts at nine tenths of the window. What a command prints after that count has to
	// fit into the last tenth, with the summary.
	window := int64(c.contextLength)
	w = w.Int("context_window", window).Int("max_context_window", window)
	w = w.Key("truncation_policy").Open().Text("mode", "tokens").Int("limit", window/16).Close()

	w = w.Text("default_reasoning_level", c.effort).Key("supported_reasoning_levels").OpenList()
	for _, level := range effortDescriptions {
		w = w.Open().Text("effort", string(level.effort)).Text("description", level.text).Close()
	}
	w = w.CloseList().Bool("support_verbosity", false).Literal("input_modalities", `["text"]`)

	// Each shell tool of Codex is a function, and it is Codex that knows its platform. The
	// patch tool is a custom tool whose grammar keeps patches well formed, if it is enforced.
	w = w.Text("shell_type", "default").Literal("experimental_supported_tools", "[]")
	if c.constrains {
		w = w.Text("apply_patch_tool_type", "freeform")
	}
	return w.Text("base_instructions", codexInstructions).Close()
}

// card returns the card of a Harmony model.
func (d *Directory) card(id string) card {
	settings, _ := d.o.Config.Model(id)
	c := card{model: id, effort: settings.Effort}
	c.contextLength = cmp.Or(d.ContextLength(&settings), turn.DefaultContextLength)
	if dialect := d.o.Dialects[settings.Engine]; dialect != nil {
		c.constrains = dialect.Traits().Constrains
	}
	return c
}

// appendCards appends the member models of a list: the cards of its Harmony models, and
// those that the upstream has of its own.
func (d *Directory) appendCards(dst []byte, l *list) []byte {
	w := jsontext.Writer(dst).Key(cardsMember).OpenList()
	for _, m := range l.models {
		if d.isHarmony(m.id) {
			w = d.card(m.id).append(w)
		}
	}

	// llama.cpp has a member of this name too, in the form of another API: without slugs.
	l.base.Get(cardsMember).ForEach(func(_, theirs gjson.Result) bool {
		if slug := theirs.Get("slug"); slug.Type == gjson.String && !d.isHarmony(slug.Str) {
			w = append(w.Element(), theirs.Raw...)
		}
		return true
	})
	return w.CloseList()
}
