package diagnosis

import "sort"

// Compare says how a prompt differs from an earlier one, and from the output to that if it is a step
// that the prompt goes on with.
func Compare(earlier, now *Print) Finding {
	if !now.goesOnWith(earlier) {
		earlier = earlier.prompt()
	}

	f := Finding{Known: true}
	switch {
	case earlier.head.Model != now.head.Model:
		f.Cause = Model
	case earlier.head.Salt != now.head.Salt:
		f.Cause = Salt
	}

	// The engine shares nothing between models, nor between salts.
	shortest := min(earlier.tokens, now.tokens)
	if f.Cause != None {
		f.Lost, f.Role = shortest, RoleSystem
		return f
	}

	blocks := sharedBlocks(earlier.blocks, now.blocks)
	f.Shared = blocks * BlockTokens
	f.Output = max(0, f.Shared-earlier.asked)
	if blocks == shortest/BlockTokens {
		return f
	}

	// Where they differ is known to the block. The message is known exactly, so that the token is
	// not put before its beginning.
	f.Lost = shortest - f.Shared
	f.Message = firstDifferent(earlier.parts, now.parts)
	at := f.Message
	if at < len(now.parts) {
		f.Token, f.Role = max(f.Shared, int(now.parts[at].start)), now.parts[at].role
	}
	f.Cause = cause(earlier, now, at)
	return f
}

// goesOnWith reports whether the prompt continues an earlier one by a step with calls, as the output
// to that is. It may be another step: a client may have changed it. Anything else in its place,
// such as an answer or a user's text, is another branch of the conversation, which has lost nothing.
func (p *Print) goesOnWith(earlier *Print) bool {
	begun := earlier.begun()
	if earlier.asked == earlier.tokens || begun < 1 || begun >= len(p.parts) {
		return false
	}
	if p.parts[begun-1].sum != earlier.parts[begun-1].sum {
		return false
	}

	for _, part := range p.parts[begun:] {
		if part.role != RoleAssistant {
			return false
		}
		if part.called != 0 {
			return true
		}
	}
	return false
}

// sharedBlocks returns how many blocks two prompts begin with in common. The sum of a
// block is of all before it too.
func sharedBlocks(a, b []uint64) int {
	// Each sum contains those before it: from the first different one on, all are.
	return sort.Search(min(len(a), len(b)), func(i int) bool { return a[i] != b[i] })
}

// firstDifferent returns the index of the first message that differs. The sum of a
// message is of all before it too.
func firstDifferent(a, b []part) int {
	return sort.Search(min(len(a), len(b)), func(i int) bool { return a[i].sum != b[i].sum })
}

// cause returns why two prompts differ, whose first difference is in a message.
func cause(earlier, now *Print, message int) Cause {
	was, is := earlier.head, now.head
	if message == 0 {
		switch {
		case was.Date != is.Date:
			return Date
		case was.Effort != is.Effort:
			return Effort
		// The message says where calls of tools go, if there are tools.
		case was.Builtins != is.Builtins, (was.Tools == 0) != (is.Tools == 0):
			return Tools
		}
		return System
	}

	// A developer message after the first user's text is history, not the beginning.
	before, after := earlier.part(message), now.part(message)
	if before.role == RoleDeveloper || after.role == RoleDeveloper {
		if !earlier.conversed(message) || !now.conversed(message) {
			return beginningCause(was, is)
		}
	}

	switch {
	case was.Summary != is.Summary:
		return Compacted
	case is.Truncated:
		return Truncated
	case message >= earlier.begun() && earlier.asked < earlier.tokens:
		return outputCause(earlier, now, message)
	// The client cannot change the form of a call, only what it says. With the turn's answer other
	// spellings of that go, too.
	case before.called != 0 && before.called == after.called &&
		(before.header != after.header || !earlier.answered(message) && now.answered(message)):
		return Respelled
	case earlier.part(message).channel != analysis || now.part(message).channel == analysis:
		return History
	}
	return lostReasoning(now, message)
}

// lostReasoning returns why reasoning is missing, in whose place a message stands.
func lostReasoning(now *Print, message int) Cause {
	// Behind an answer the format drops reasoning. Without one, the client has not sent it.
	if now.answered(message) {
		return Reasoning
	}
	return ReasoningLost
}

// outputCause returns why a prompt differs from the output to the earlier one, whose step it has.
func outputCause(earlier, now *Print, message int) Cause {
	before, after := earlier.part(message), now.part(message)
	switch {
	case before.thinks() && !after.thinks():
		return lostReasoning(now, message)
	// With the turn's answer the store is asked for steps alone that begin without reasoning.
	case earlier.respells, now.answered(message) && !now.head.Stored:
		return Respelled
	// It would be as the model wrote it if it said the same. Without the store a call has at least its
	// header, and what it says is up to the client.
	case now.head.Stored, before.called != 0 && before.called == after.called && before.header == after.header:
		return History
	}
	return Respelled
}

// beginningCause returns what of the developer messages before the first user's text
// has changed, in the order in which it stands there.
func beginningCause(was, is Head) Cause {
	switch {
	case was.Instructions != is.Instructions:
		return Instructions
	case was.Tools != is.Tools && was.AnyOrder == is.AnyOrder:
		return ToolsReordered
	case was.Tools != is.Tools:
		return Tools
	case was.Format != is.Format:
		return Format
	}
	return Instructions
}

// part returns the i-th message; none if there are fewer.
func (p *Print) part(i int) part {
	if i < len(p.parts) {
		return p.parts[i]
	}
	return part{}
}

// conversed reports whether a user's text precedes the i-th message.
func (p *Print) conversed(i int) bool {
	for _, part := range p.parts[:min(i, len(p.parts))] {
		if part.role == RoleUser {
			return true
		}
	}
	return false
}
