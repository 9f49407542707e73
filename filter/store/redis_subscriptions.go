package store

import (
	"context"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// subscriptions are the channels of which this process wants the news. They
// share one connection, which is made for the first of them, and which one
// goroutine owns: only that waits where the server does not answer.
type subscriptions struct {
	client redis.UniversalClient
	news   func(channel string)
	stop   context.CancelFunc
	wanted chan struct{} // has an element if there is a channel to subscribe to
	done   chan struct{} // closed when the connection is

	mu       sync.Mutex
	channels map[string]*subscription
}

type subscription struct {
	users int
	left  time.Time // when the last of them has gone
	made  bool      // the server has been asked
}

const (
	// subscriptionLinger is how long a subscription outlives its last user at
	// least: most come back for the next batch.
	subscriptionLinger = 2 * time.Second
	// subscriptionBeat is how often subscriptions that could not be made are
	// tried again, and those that nobody uses are ended.
	subscriptionBeat = time.Second
	// subscriptionTimeout bounds what is asked of the server, and how long
	// close waits.
	subscriptionTimeout = 2 * time.Second
)

// newSubscriptions makes subscriptions that call news when something has been
// published in a channel, and whenever something may have been missed: when the
// subscription begins, now and after the connection was lost.
func newSubscriptions(client redis.UniversalClient, news func(channel string)) *subscriptions {
	ctx, stop := context.WithCancel(context.Background())
	s := &subscriptions{
		client: client, news: news, stop: stop,
		wanted: make(chan struct{}, 1), done: make(chan struct{}),
		channels: map[string]*subscription{},
	}
	go s.run(ctx)
	return s
}

// use subscribes to a channel until done is called. It does not wait for the
// server.
func (s *subscriptions) use(channel string) (done func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	one := s.channels[channel]
	if one == nil {
		one = &subscription{}
		s.channels[channel] = one
		select {
		case s.wanted <- struct{}{}:
		default: // will be seen
		}
	}
	one.users++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		one.users--
		one.left = time.Now()
	}
}

// close ends the connection. Where the server does not answer, it may end a
// little later.
func (s *subscriptions) close() {
	s.stop()
	select {
	case <-s.done:
	case <-time.After(subscriptionTimeout):
	}
}

// run owns the connection until ctx ends.
func (s *subscriptions) run(ctx context.Context) {
	defer close(s.done)
	select {
	case <-ctx.Done():
		return
	case <-s.wanted:
	}
	pubsub := s.client.Subscribe(ctx)
	defer pubsub.Close() //nolint:errcheck // nothing is left to be done
	messages := pubsub.ChannelWithSubscriptions()
	beat := time.NewTicker(subscriptionBeat)
	defer beat.Stop()
	s.begin(ctx, pubsub)
	for {
		select {
		case <-ctx.Done():
			return
		case message := <-messages:
			switch message := message.(type) {
			case *redis.Message:
				s.news(message.Channel)
			case *redis.Subscription:
				s.news(message.Channel)
			}
		case <-s.wanted:
			s.begin(ctx, pubsub)
		case <-beat.C:
			s.end(ctx, pubsub)
			s.begin(ctx, pubsub)
		}
	}
}

// begin subscribes to the channels that are new. If that fails, the next beat
// does it.
func (s *subscriptions) begin(ctx context.Context, pubsub *redis.PubSub) {
	s.mu.Lock()
	var names []string
	for name, one := range s.channels {
		if !one.made && one.users > 0 {
			names = append(names, name)
		}
	}
	s.mu.Unlock()
	if len(names) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, subscriptionTimeout)
	defer cancel()
	if pubsub.Subscribe(ctx, names...) != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range names {
		s.channels[name].made = true
	}
}

// end unsubscribes from the channels to which nobody has come back.
func (s *subscriptions) end(ctx context.Context, pubsub *redis.PubSub) {
	s.mu.Lock()
	var names []string
	for name, one := range s.channels {
		if one.users == 0 && time.Since(one.left) > subscriptionLinger {
			names = append(names, name)
			delete(s.channels, name)
		}
	}
	s.mu.Unlock()
	if len(names) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, subscriptionTimeout)
	defer cancel()
	// If it cannot be sent there is no connection, and the next one begins without.
	_ = pubsub.Unsubscribe(ctx, names...)
}
