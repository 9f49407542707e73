// Package diagnosis finds out why a prompt does not begin with the tokens that an
// engine has in its prefix cache.
//
// A [Print] is what remains of a prompt, and of the calls that were its output: a hash of
// each block of tokens and of each message, and hashes of the fields that the beginning is
// made of. It has no text.
// [Compare] says how many tokens two prompts share, which message is the first that
// differs, and what has changed. [Prompts] remembers the last prompts of sessions, so
// that the next one can be compared with them.
package diagnosis

// Cause is why a prompt does not continue an earlier one, or why the engine did not
// have its beginning in the cache.
type Cause uint8

// The causes. Those up to Salt concern all of a prompt or the fields of its beginning,
// in their order there.
const (
	None           Cause = iota // the prompt continues the earlier one
	Model                       // another model
	Salt                        // another cache_salt, so that the engine must not share
	System                      // the system message: identity, knowledge cutoff, channels
	Date                        // the date in the system message
	Effort                      // the reasoning effort in the system message
	Instructions                // the instructions before the first user's text
	Tools                       // the tools
	ToolsReordered              // the same tools, but they or members of their schemas are in another order
	Format                      // the output format
	Compacted                   // a summary has taken the place of messages
	Truncated                   // the oldest turns were dropped because the conversation is longer than the context
	Reasoning                   // that of a turn with its answer is not shown any more: the format demands that
	ReasoningLost               // the reasoning of an unfinished turn is missing
	History                     // another message differs
	NotCached                   // the engine did not have tokens that it was sent before
	OtherReplica                // the same, and another replica has answered than before
	// A call of the model, as it wrote it before, is spelled in another way now. It comes last, because
	// records have the numbers.
	Respelled
)

var causeNames = [...]string{
	"", "model", "cache_salt", "system", "date", "effort", "instructions", "tools", "tools_reordered", "format",
	"compacted", "truncated", "reasoning", "reasoning_lost", "history", "not_cached", "other_replica", "respelled",
}

// String returns the cause's name in logs and metrics; "" for None.
func (c Cause) String() string { return causeNames[c] }

// Role is the role of a message in a prompt.
type Role uint8

// The roles. A message without a role that the format has is a tool's.
const (
	NoRole Role = iota
	RoleSystem
	RoleDeveloper
	RoleUser
	RoleAssistant
	RoleTool
)

var roleNames = [...]string{"", "system", "developer", "user", "assistant", "tool"}

// String returns the role's name in logs.
func (r Role) String() string { return roleNames[r] }

// Finding is what comparing a prompt with an earlier one has found.
type Finding struct {
	// Known says that there is an earlier prompt.
	Known bool
	// Cause is None if the prompt continues it, as far as whole blocks go.
	Cause Cause
	// Shared is how many tokens both begin with, in whole blocks of [BlockTokens].
	Shared int
	// Output is how many of these the engine has written, and was not sent.
	Output int `json:",omitempty"`
	// Lost is how many tokens after them the engine could have had in its cache; 0 if Cause is None.
	Lost int

	// The first difference; 0 if Cause is None.
	// Token is its index in the prompt, at most one block too small.
	Token int
	// Message is the index of the message in the prompt; the system message is 0.
	Message int
	// Role is that of the message.
	Role Role

	// Elsewhere says that the earlier prompt belongs to another session.
	Elsewhere bool
	// Replica has answered the earlier prompt; "": unknown.
	Replica string
}

// leastMissed is how many tokens the engine must have been sent before, so that their
// absence from its cache is reported: engines cache blocks, of which some are large.
const leastMissed = 512

// Missed returns why the engine had less than half of the shared tokens that it was sent in its
// cache: [OtherReplica] or [NotCached], or None if it had them. cached is what the engine
// reports; a negative number means that it reports nothing. replica is the one that has
// answered; "": unknown.
func (f Finding) Missed(cached int, replica string) Cause {
	sent := f.Shared - f.Output
	switch {
	case !f.Known || cached < 0 || sent < leastMissed || cached >= sent/2:
		return None
	case replica != "" && f.Replica != "" && replica != f.Replica:
		return OtherReplica
	}
	return NotCached
}
