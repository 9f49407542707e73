// Package prompt turns conversations into the tokens of prompts.
//
// A [Conversation] is that of a request, checked and put in order: results follow their calls, texts have
// their phases, and calls have their results. [Conversation.Render] makes the [Prompt] of it, in steps each
// of which knows only the one before: items become Harmony messages, and messages become tokens. What
// precedes them is the head: the system message with the date of the conversation and the effort, and the
// developer message with instructions, tools and output format. If it is longer than the context, and the
// request allows it, the oldest turns are left out.
//
// A conversation grows by its end, and requests send all of it each time. So a [Prefix] has the beginning
// as tokens. The prompt with a prefix is the one without, token for token, and costs what the items cost
// that follow it. [Extend] makes one. The next turn of a reply goes on with the tokens of the one before, see
// [Append].
//
// The order of all that decides what of it engines have in their caches: a prompt must begin with the
// tokens of the one before, as the model wrote them. What the model wrote comes from package kept.
//
// The package knows Harmony, and the forms that the model was trained on. It knows no output, and no engine.
// Rendering can take seconds; it ends with its context.
package prompt
