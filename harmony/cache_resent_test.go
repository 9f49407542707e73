package harmony

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// resent changes a conversation as clients do between two requests: they add messages,
// edit one, leave some out, or change the head.
func resent(random *rand.Rand, msgs []Message) []Message {
	msgs = slices.Clone(msgs)
	text := func() Content { return Text(strings.Repeat("word ", random.IntN(40)) + strconv.Itoa(random.IntN(30))) }
	next := func() Message {
		switch random.IntN(4) {
		case 0:
			return Message{Role: RoleAssistant, Channel: ChannelFinal, Content: []Content{text()}}
		case 1:
			return Message{Role: RoleAssistant, Channel: ChannelAnalysis, Content: []Content{text()}}
		case 2:
			return Message{Role: RoleTool, Name: "functions.f", Recipient: "assistant", Channel: ChannelCommentary, Content: []Content{text()}}
		}
		return Message{Role: RoleUser, Content: []Content{text(), text()}[random.IntN(2):]}
	}
	efforts := []Effort{EffortLow, EffortMedium, EffortHigh}
	switch n := len(msgs); random.IntN(6) {
	case 0:
		tools := []Namespace{{Name: "functions", Tools: []Tool{{Name: "f"}, {Name: "g"}}[random.IntN(2):]}}
		msgs[1].Content = []Content{&DeveloperContent{Instructions: strconv.Itoa(random.IntN(3)), Tools: tools[random.IntN(2):]}}
	case 1:
		msgs[0].Content = []Content{&SystemContent{Effort: efforts[random.IntN(3)], StartDate: strconv.Itoa(random.IntN(3)), Channels: []string{"final"}}}
	case 2:
		msgs[2+random.IntN(n-2)] = next()
	case 3:
		msgs = slices.Delete(msgs, 2+random.IntN(n-2), n)
	case 4:
		msgs = slices.Insert(msgs, 2+random.IntN(n-2), next())
	}
	for range 1 + random.IntN(3) {
		msgs = append(msgs, next())
	}
	return msgs
}

// checkResent renders conversations that grow, change and alternate, and compares each
// with what a renderer without a cache makes of it.
func checkResent(t *testing.T, cached *Renderer, random *rand.Rand, requests int) {
	t.Helper()
	plain := NewRenderer(WithCacheBytes(0))
	conversations := make([][]Message, 3)
	for i := range conversations {
		conversations[i] = []Message{
			{Role: RoleSystem, Content: []Content{&SystemContent{Effort: EffortMedium, Channels: []string{"final"}}}},
			{Role: RoleDeveloper, Content: []Content{&DeveloperContent{Instructions: strconv.Itoa(i)}}},
			textMessage("Hi."),
		}
	}
	for range requests {
		i := random.IntN(len(conversations))
		conversations[i] = resent(random, conversations[i])
		if len(conversations[i]) > 60 {
			conversations[i] = conversations[i][:3]
		}
		got, err := cached.AppendConversation(nil, conversations[i])
		want, wantErr := plain.AppendConversation(nil, conversations[i])
		if err != nil || wantErr != nil {
			t.Error(err, wantErr)
			return
		}
		if !slices.Equal(got, want) {
			t.Errorf("%d messages are rendered otherwise with a cache", len(conversations[i]))
			return
		}
	}
}

// A conversation has the same tokens with and without a cache, whatever was rendered
// before it and by whom.
func TestCacheIsExact(t *testing.T) {
	t.Parallel()
	for _, size := range []int{1, 8 << 10, 64 << 10, DefaultCacheBytes} {
		r := NewRenderer(WithCacheBytes(size))
		var all sync.WaitGroup
		for i := range uint64(4) {
			all.Go(func() { checkResent(t, r, rand.New(rand.NewPCG(i, 9)), 150) })
		}
		all.Wait()
	}
}

// FuzzCacheIsExact is the same with any changes.
func FuzzCacheIsExact(f *testing.F) {
	f.Add(uint64(1), uint64(2), uint16(9000))
	f.Fuzz(func(t *testing.T, a, b uint64, size uint16) {
		checkResent(t, NewRenderer(WithCacheBytes(int(size))), rand.New(rand.NewPCG(a, b)), 20)
	})
}

// The messages of a re-sent conversation are found one by the other, and entries that
// the cache has dropped are not kept by those that preceded them.
func TestCacheFollows(t *testing.T) {
	t.Parallel()
	r := NewRenderer(WithCacheBytes(1 << 20))
	msgs := []Message{textMessage("one"), textMessage("two"), textMessage("three")}
	entry := func(i int) *cacheEntry {
		k := newMessageKey(nil, &msgs[i], false)
		e, _ := r.cache.find(r.cache.hash(k), k)
		return e
	}
	for range 2 {
		if _, err := r.AppendConversation(nil, msgs); err != nil {
			t.Fatal(err)
		}
	}
	second, last := newMessageKey(nil, &msgs[1], false), newMessageKey(nil, &msgs[2], false)
	if _, tokens := r.cache.after(entry(0), last); tokens != nil {
		t.Error("the entry of another message follows")
	}
	if e, tokens := r.cache.after(entry(1), last); tokens == nil || e != entry(2) {
		t.Error("the entry of the next message does not follow")
	}
	first, dropped := entry(0), entry(1)
	for i := range 2000 { // more than the cache keeps
		if _, err := r.AppendConversation(nil, []Message{textMessage(strconv.Itoa(i) + strings.Repeat(" other", 200))}); err != nil {
			t.Fatal(err)
		}
	}
	if first.next.Load() != nil || dropped.content.Load() != nil || dropped.next.Load() != nil {
		t.Error("the text of an entry that was dropped is still in memory")
	}
	first.follow(dropped) // as if its message had been rendered just now
	first.generation.Store(r.cache.shards[first.hash%cacheShards].generation.Load())
	if _, tokens := r.cache.after(first, second); tokens != nil {
		t.Error("an entry that was dropped follows")
	}
}
