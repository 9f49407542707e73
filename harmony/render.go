package harmony

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
)

// AnalysisPolicy says which old chain of thought a [Renderer] does not render.
type AnalysisPolicy uint8

const (
	// DropBeforeLastFinal drops the messages on the analysis channel before the
	// last final answer. The analysis of an unfinished tool turn comes after it
	// and is rendered. This is the default.
	DropBeforeLastFinal AnalysisPolicy = iota
	// KeepAnalysis drops nothing.
	KeepAnalysis
	// DropBeforeFirstFinal is the rule of openai-harmony's auto_drop_analysis:
	// if the last assistant message is on the final channel, the analysis
	// before the first final answer is dropped.
	DropBeforeFirstFinal
)

// DefaultCacheBytes is the memory limit of a Renderer's cache unless
// [WithCacheBytes] sets another one.
const DefaultCacheBytes = 64 << 20

// Renderer renders conversations as tokens. It is safe for concurrent use.
//
// Encoded messages are kept in a cache of limited size, by their content.
// Rendering a conversation again with one more message costs little more than
// that message.
type Renderer struct {
	// Set by the options.

	analysis        AnalysisPolicy
	referenceSchema bool
	cacheBytes      int

	// cache is nil if it is off.
	cache *messageCache
	// scratch has *[]byte for cache keys and rendered text.
	scratch sync.Pool
}

// RendererOption configures a [Renderer].
type RendererOption func(*Renderer)

// WithAnalysis sets which old chain of thought is dropped.
func WithAnalysis(p AnalysisPolicy) RendererOption {
	return func(r *Renderer) { r.analysis = p }
}

// WithReferenceSchema renders tool parameters exactly as openai-harmony 0.0.8,
// even where that is wrong: anyOf, allOf, $ref and const become any, integer
// enums become number, and text is not escaped.
func WithReferenceSchema() RendererOption {
	return func(r *Renderer) { r.referenceSchema = true }
}

// WithCacheBytes sets the memory limit of the cache of encoded messages, in
// bytes; 0 disables the cache.
func WithCacheBytes(n int) RendererOption {
	return func(r *Renderer) { r.cacheBytes = n }
}

// NewRenderer returns a Renderer.
func NewRenderer(opts ...RendererOption) *Renderer {
	r := &Renderer{
		cacheBytes: DefaultCacheBytes,
		scratch:    sync.Pool{New: func() any { return new([]byte) }},
	}

	for _, opt := range opts {
		opt(r)
	}

	// After the options, which set its size.
	if r.cacheBytes > 0 {
		r.cache = newMessageCache(r.cacheBytes)
	}
	return r
}

// AppendConversation appends the tokens of a conversation to dst. If it fails,
// it returns dst unchanged and an error that says what to change.
func (r *Renderer) AppendConversation(dst []Token, msgs []Message) ([]Token, error) {
	return r.appendConversation(dst, msgs, nil)
}

// AppendLimited is AppendConversation with a limit. It stops with a
// [*LimitError] when there are more than limit tokens, including those of dst,
// and with the context's error when ctx ends. It checks both every few tens of
// kilobytes of text, or more often, so a conversation that ends before the next check is
// returned completely, even if it has more than limit tokens.
func (r *Renderer) AppendLimited(ctx context.Context, dst []Token, msgs []Message, limit int) ([]Token, error) {
	return r.appendConversation(dst, msgs, &bounds{ctx: ctx, limit: limit, unchecked: checkBytes})
}

// rendering is the work on one conversation.
type rendering struct {
	*Renderer
	// functions: the conversation declares functions.
	functions bool
	bounds    *bounds

	// key is the memory of cache keys.
	key     *[]byte
	headers headers
	// last is the entry of the message before; nil if it has none.
	last *cacheEntry
}

func (r *Renderer) appendConversation(dst []Token, msgs []Message, b *bounds) ([]Token, error) {
	work := rendering{Renderer: r, functions: hasFunctionTools(msgs), bounds: b, key: r.scratch.Get().(*[]byte)}
	defer r.scratch.Put(work.key)

	out := dst
	dropBefore := r.dropAnalysisBefore(msgs)
	for i := range msgs {
		if i < dropBefore && msgs[i].Channel == ChannelAnalysis {
			continue
		}

		// Each message costs something beside its text, so that many empty ones end too.
		if !b.spend(messageWork, len(out)) {
			return dst, b.err
		}

		var err error
		if out, err = work.appendMessage(out, &msgs[i]); err != nil {
			return dst, fmt.Errorf("message %d: %w", i, err)
		}
	}
	return out, nil
}

// messageWork is the cost of a message in addition to its text, in bytes of
// text.
const messageWork = 64

// AppendCompletion appends the tokens of a conversation and the start of the
// message that the model generates next: <|start|> and its role.
func (r *Renderer) AppendCompletion(dst []Token, msgs []Message, next Role) ([]Token, error) {
	if !next.known() {
		return dst, fmt.Errorf("next message: %w", unknownRole(next))
	}

	out, err := r.AppendConversation(dst, msgs)
	if err != nil {
		return dst, err
	}
	return AppendEncode(append(out, TokenStart), string(next)), nil
}

// AppendTraining appends the tokens of a conversation as a training example: if
// the last message is an assistant message on the final channel, it ends with
// <|return|>.
func (r *Renderer) AppendTraining(dst []Token, msgs []Message) ([]Token, error) {
	out, err := r.AppendConversation(dst, msgs)
	if err != nil {
		return dst, err
	}

	if n := len(msgs); n > 0 && msgs[n-1].Role == RoleAssistant && msgs[n-1].Channel == ChannelFinal {
		out[len(out)-1] = TokenReturn
	}
	return out, nil
}

// dropAnalysisBefore returns the index of the message before which analysis is
// dropped.
func (r *Renderer) dropAnalysisBefore(msgs []Message) int {
	isAssistant := func(m Message) bool { return m.Role == RoleAssistant }
	isFinal := func(m Message) bool { return m.Channel == ChannelFinal }

	switch r.analysis {
	case DropBeforeLastFinal:
		for i, m := range slices.Backward(msgs) {
			if isAssistant(m) && isFinal(m) {
				return i
			}
		}
	case DropBeforeFirstFinal:
		for _, m := range slices.Backward(msgs) {
			if isAssistant(m) {
				if isFinal(m) {
					// Of any role, as in the reference.
					return slices.IndexFunc(msgs, isFinal)
				}
				break
			}
		}
	case KeepAnalysis:
	}
	return 0
}

// hasFunctionTools reports whether a developer message declares a function. The
// system message then names the channel for calls.
func hasFunctionTools(msgs []Message) bool {
	for i := range msgs {
		for _, c := range msgs[i].Content {
			dev, ok := c.(*DeveloperContent)
			if ok && dev != nil && slices.ContainsFunc(dev.Tools, func(ns Namespace) bool {
				return ns.Name == "functions" && len(ns.Tools) > 0
			}) {
				return true
			}
		}
	}
	return false
}

// appendMessage appends one message, from the cache if possible.
func (r *rendering) appendMessage(dst []Token, m *Message) ([]Token, error) {
	if err := m.validate(); err != nil {
		return dst, err
	}

	// What the model wrote has its tokens already. The entry before stays the last one, so that
	// the message after this is found by it when the conversation is sent again.
	if len(m.Written) > 0 {
		dst = append(dst, m.Written...)
		r.bounds.spend(4*len(m.Written), len(dst)) // the next call of spend reports the error
		return dst, nil
	}

	// A key copies the instructions, so those that no entry can hold are not looked up at all.
	if r.cache == nil || m.Role == RoleDeveloper && !r.cache.accepts(m.instructionBytes()) {
		r.last = nil
		return r.encodeMessage(dst, m)
	}

	key := newMessageKey((*r.key)[:0], m, r.functions)
	*r.key = key.head

	// In a conversation that is sent again, this message follows the one before: no hash and no lock.
	e, tokens := r.cache.after(r.last, key)
	hash := uint64(0)

	if tokens == nil {
		hash = r.cache.hash(key)
		e, tokens = r.cache.find(hash, key)
	}
	if tokens == nil {
		start := len(dst)
		out, err := r.encodeMessage(dst, m)
		if err != nil {
			return dst, err
		}
		dst, e = out, r.cache.add(hash, key, out[start:])
	} else {
		dst = append(dst, tokens...)
		r.bounds.spend(4*len(tokens), len(dst)) // the next call of spend reports the error
	}

	r.last.follow(e)
	r.last = e
	return dst, nil
}

// instructionBytes returns the length of the message's instructions, which are
// copied into its cache key.
func (m *Message) instructionBytes() int {
	n := 0
	for _, c := range m.Content {
		if dev, ok := c.(*DeveloperContent); ok {
			n += len(dev.Instructions)
		}
	}
	return n
}

// validate returns an error for messages that cannot be rendered.
func (m *Message) validate() error {
	if !m.Role.known() {
		return unknownRole(m.Role)
	}
	if m.Role == RoleTool && m.Name == "" {
		return errors.New("a tool message needs the name of its tool, such as functions.get_weather")
	}

	for _, c := range m.Content {
		switch c := c.(type) {
		case Text:
		case *SystemContent:
			// A nil pointer in the interface has a type, but nothing to render.
			if c == nil {
				return unknownContent(c)
			}
			if m.Role != RoleSystem {
				return fmt.Errorf("system content in a message of role %s: put it into a system message", m.Role)
			}
		case *DeveloperContent:
			if c == nil {
				return unknownContent(c)
			}
			if m.Role != RoleDeveloper {
				return fmt.Errorf("developer content in a message of role %s: put it into a developer message", m.Role)
			}
		default:
			return unknownContent(c)
		}
	}
	return nil
}

func unknownRole(role Role) error {
	return fmt.Errorf("role %q: use system, developer, user, assistant or tool", role)
}

func unknownContent(c Content) error {
	return fmt.Errorf("content of type %T, or nil: use Text, *SystemContent or *DeveloperContent", c)
}

func (role Role) known() bool {
	switch role {
	case RoleSystem, RoleDeveloper, RoleUser, RoleAssistant, RoleTool:
		return true
	}
	return false
}

// encodeMessage renders and encodes one message.
func (r *rendering) encodeMessage(dst []Token, m *Message) ([]Token, error) {
	dst = r.headers.append(dst, m)
	for _, c := range m.Content {
		var err error
		if dst, err = r.encodeContent(dst, c); err != nil {
			return dst, err
		}
	}

	// The model ends its calls with <|call|>, so calls in the history end with it too.
	if m.Role == RoleAssistant && m.Recipient != "" {
		return append(dst, TokenCall), nil
	}
	return append(dst, TokenEnd), nil
}

func (r *rendering) encodeContent(dst []Token, c Content) ([]Token, error) {
	if text, ok := c.(Text); ok {
		return appendBounded(dst, string(text), r.bounds)
	}

	// Instructions that exceed the limit by far are refused before they are copied.
	if dev, ok := c.(*DeveloperContent); ok && !r.bounds.admits(len(dev.Instructions), len(dst)) {
		return dst, r.bounds.err
	}

	buf := r.scratch.Get().(*[]byte)
	defer r.scratch.Put(buf)

	var err error
	switch c := c.(type) {
	case *SystemContent:
		*buf, err = c.appendText((*buf)[:0], r.functions, r.referenceSchema)
	case *DeveloperContent:
		*buf, err = c.appendText((*buf)[:0], r.referenceSchema)
	}

	if err != nil {
		return dst, err
	}
	return appendBounded(dst, string(*buf), r.bounds)
}
