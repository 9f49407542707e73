package diagnosis

import (
	"bytes"
	"slices"

	"github.com/envoy-harmony/envoy-harmony/harmony"
)

// BlockTokens is the number of tokens of a block. Engines cache blocks of as many
// tokens, or of a multiple.
const BlockTokens = 16

// Head is what the beginning of a prompt is made of, as hashes.
type Head struct {
	// Model is the model's name at the engine.
	Model string
	// Salt is the hash of the request's cache_salt.
	Salt Sum

	// First is the hash of the first user's text, by which prompts of one conversation are recognized.
	First Sum
	// Date is the one in the system message, as are Effort and Builtins, its tools.
	Date     Sum
	Effort   Sum
	Builtins Sum
	// Instructions come before the first user's text, in the same message as the tools.
	Instructions Sum
	// Tools are hashed in their order.
	Tools Sum
	// AnyOrder is of the same tools, whatever their order and that of their schemas' members.
	AnyOrder Sum
	// Format is the output format that the model is told.
	Format Sum
	// Summary stands in the place of messages; 0: there is none.
	Summary Sum
	// Stored says that what the model wrote in the newest step is known.
	Stored bool
	// Truncated says that the oldest turns were dropped.
	Truncated bool
}

// AddTools adds the tools of a list of namespaces to the sums of all tools.
func (h *Head) AddTools(namespaces []harmony.Namespace) {
	for i := range namespaces {
		n := &namespaces[i]
		h.Tools = h.Tools.With(n.Name).With(n.Description)
		h.AnyOrder += Text(n.Name).With(n.Description)
		for j := range n.Tools {
			t := &n.Tools[j]
			named := Text(n.Name).With(t.Name).With(t.Description)
			h.Tools = Sum(mix(uint64(h.Tools)^k1, uint64(named)^k2)) ^ Text(t.Parameters)
			// A sum of the tools does not depend on their order.
			h.AnyOrder += Sum(mix(uint64(named)^k1, uint64(Pieces(t.Parameters))^k2))
		}
	}
}

// Print is what is remembered of a prompt, and of the output to it. It is immutable.
type Print struct {
	head   Head
	tokens int
	asked  int // how many of the tokens are the prompt; the others are the output
	// Later prompts do not have the output as the model wrote it, whatever the client does.
	respells bool

	blocks []uint64 // the sum of each whole block and of all before it
	parts  []part   // the messages; the last one may be incomplete
	few    [fewParts]part
}

// part is a message of a prompt.
type part struct {
	sum     uint64 // of its tokens and of all before it
	start   uint32 // index of its first token
	called  uint32 // the hash of whom it calls; 0: nobody
	header  uint32 // of such a message: the hash of its header
	role    Role
	channel channel
}

// channel is the channel of a message, as far as it matters here.
type channel uint8

const (
	otherChannel channel = iota
	analysis
	final
)

// NewPrint returns the print of a prompt. It keeps no part of it.
func NewPrint(head Head, prompt []harmony.Token) *Print {
	return (&Print{head: head}).Extend(0, prompt)
}

// Extend returns the print of another prompt with the same head. Both have the first
// same tokens in common, which are not read again.
func (p *Print) Extend(same int, prompt []harmony.Token) *Print { return p.extend(same, 0, prompt) }

// Followed returns the print of the same prompt with the output to it. respells says that later
// prompts do not have the output as it is.
func (p *Print) Followed(prompt, output []harmony.Token, respells bool) *Print {
	p = p.prompt()
	// The output begins within a block, and within a message. What precedes both is not needed.
	offset := p.tokens
	if last := len(p.parts) - 1; last >= 0 {
		offset = int(p.parts[last].start)
	}
	offset -= offset % BlockTokens

	next := p.extend(p.tokens, offset, slices.Concat(prompt[offset:], output))
	next.asked, next.respells = p.tokens, respells
	return next
}

// extend is Extend by the prompt's tokens from the offset on: whole blocks, and no more than the
// messages before the last of the same.
func (p *Print) extend(same, offset int, prompt []harmony.Token) *Print {
	tokens := offset + len(prompt)
	next := &Print{head: p.head, tokens: tokens, asked: tokens, blocks: make([]uint64, tokens/BlockTokens)}
	same = min(same, p.tokens, tokens)

	// Each sum contains all before it, so that whole blocks of the same beginning are taken over: a
	// long conversation is hashed once.
	var sum uint64
	n := same / BlockTokens
	copy(next.blocks, p.blocks[:n])
	if n > 0 {
		sum = next.blocks[n-1]
	}

	for ; n < len(next.blocks); n++ {
		sum = blockSum(sum, (*[BlockTokens]harmony.Token)(prompt[n*BlockTokens-offset:]))
		next.blocks[n] = sum
	}

	// The last message may go on after the beginning: it is read again.
	next.parts = p.partsBefore(same)
	from := 0
	if last := len(next.parts) - 1; last >= 0 {
		from = int(next.parts[last].start)
		next.parts = next.parts[:last]
	}
	next.addParts(prompt, from, offset)
	return next
}

// upTo returns the sum of all tokens before the end, of a prompt that is given from the offset on.
func (p *Print) upTo(prompt []harmony.Token, end, offset int) uint64 {
	var sum uint64
	blocks := end / BlockTokens
	if blocks > 0 {
		sum = p.blocks[blocks-1]
	}
	return restSum(sum, prompt[blocks*BlockTokens-offset:end-offset])
}

// partsBefore returns the messages that begin before a token.
func (p *Print) partsBefore(token int) []part {
	n := len(p.parts)
	for n > 0 && int(p.parts[n-1].start) >= token {
		n--
	}
	return p.parts[:n]
}

// The capacity for the messages of a prompt: a few, and as many as there are of a usual
// length.
const (
	fewParts     = 6
	usualMessage = 512
)

// addParts adds the messages of a prompt that begin at from or after it. The prompt is given from the
// offset on.
func (p *Print) addParts(prompt []harmony.Token, from, offset int) {
	// Short prompts need no memory of their own for this.
	room := p.few[:0]
	if n := len(p.parts) + (p.tokens-from)/usualMessage; n >= fewParts {
		room = make([]part, 0, n+fewParts)
	}

	p.parts = append(room, p.parts...)
	for from < p.tokens {
		next := p.tokens
		if n := slices.Index(prompt[from+1-offset:], harmony.TokenStart); n >= 0 {
			next = from + 1 + n
		}
		part := newPart(prompt[from-offset:next-offset], from)
		part.sum = p.upTo(prompt, next, offset)
		p.parts = append(p.parts, part)
		from = next
	}
}

// The tokens of the words of headers that matter here. Each word has one.
const (
	systemToken    harmony.Token = 17360
	developerToken harmony.Token = 77944
	userToken      harmony.Token = 1428
	assistantToken harmony.Token = 173781
	analysisToken  harmony.Token = 35644
	finalToken     harmony.Token = 17196
)

// maxHeader is how many tokens of a message are searched for its channel: names of tools
// can be long.
const maxHeader = 256

func newPart(message []harmony.Token, start int) part {
	p := part{start: uint32(start), role: RoleTool}
	if len(message) < 2 {
		p.role = NoRole
		return p
	}

	// Each role is one token; anything else is the name of a tool.
	switch message[1] {
	case systemToken:
		p.role = RoleSystem
	case developerToken:
		p.role = RoleDeveloper
	case userToken:
		p.role = RoleUser
	case assistantToken:
		p.role = RoleAssistant
	}

	for i, token := range message[:min(len(message), maxHeader)] {
		if token == harmony.TokenMessage {
			break
		}
		if token == harmony.TokenChannel && i+1 < len(message) {
			switch message[i+1] {
			case analysisToken:
				p.channel = analysis
			case finalToken:
				p.channel = final
			}
			break
		}
	}

	// A call on a wrong channel is one too.
	if p.role == RoleAssistant && p.channel != final {
		p.addCall(message)
	}
	return p
}

// plainHeader is how many tokens a header has without a recipient: <|start|>, the role, and the channel.
const plainHeader = 4

// addCall sets what tells calls from one another, and spellings of the same header.
func (p *part) addCall(message []harmony.Token) {
	end := slices.Index(message[:min(len(message), maxHeader)], harmony.TokenMessage)
	if end <= plainHeader {
		return
	}

	// A text ends where the next control token is spelled out.
	var buffer [4 * maxHeader]byte
	header, err := harmony.AppendDecode(buffer[:0], message[:end])
	_, recipient, found := bytes.Cut(header, []byte(" to="))
	if err != nil || !found {
		return
	}
	if n := bytes.IndexAny(recipient, " <"); n >= 0 {
		recipient = recipient[:n]
	}
	p.called, p.header = uint32(Text(recipient))|1, uint32(Text(header)) //nolint:gosec // parts of hashes
}

// has reports whether the messages from the i-th on include one for which is returns
// true.
func (p *Print) has(i int, is func(part) bool) bool {
	return i < len(p.parts) && slices.ContainsFunc(p.parts[i:], is)
}

// answered reports whether the messages from the i-th on include an answer.
func (p *Print) answered(i int) bool {
	return p.has(i, func(p part) bool { return p.channel == final })
}

// first returns the print of the first tokens of the prompt.
func (p *Print) first(tokens int) *Print {
	if tokens >= p.tokens {
		return p
	}
	first := &Print{
		head: p.head, tokens: tokens, asked: tokens,
		blocks: p.blocks[:tokens/BlockTokens], parts: slices.Clone(p.partsBefore(tokens)),
	}

	// Of the message that a prompt ends with it has the beginning alone.
	if last := len(first.parts) - 1; last >= 0 {
		part := &first.parts[last]
		part.channel, part.called, part.header = otherChannel, 0, 0
	}
	return first
}

// prompt returns the print without the output.
func (p *Print) prompt() *Print { return p.first(p.asked) }

// begun returns the index of the first message of the output. The prompt ends with its beginning.
func (p *Print) begun() int { return len(p.partsBefore(p.asked)) - 1 }

// thinks reports whether the message is reasoning.
func (p part) thinks() bool { return p.channel == analysis && p.called == 0 }

// Tokens returns the number of tokens of the prompt.
func (p *Print) Tokens() int { return p.tokens }

// Bytes returns the approximate size of the print in memory.
func (p *Print) Bytes() int64 {
	const overhead, partBytes = 400, 24
	return int64(overhead + len(p.head.Model) + 8*cap(p.blocks) + partBytes*cap(p.parts))
}
