package store

import (
	"context"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// subscriptions are the Redis channels that this process is subscribed to. They
// share one connection, which is opened for the first subscription. One
// goroutine owns the connection, so that only it blocks if the server does not
// answer.
type subscriptions struct {
	client redis.UniversalClient
	notify func(channel string)
	stop   context.CancelFunc
	wanted chan struct{} // has an element if a channel needs a subscription
	done   chan struct{} // closed after the connection has been closed

	mu       sync.Mutex
	channels map[string]*subscription
}

type subscription struct {
	users      int
	unused     time.Time // when users became 0
	subscribed bool      // SUBSCRIBE has been sent
}

const (
	// subscriptionLinger is the least time for which an unused subscription is
	// kept: most followers come back for the next batch.
	subscriptionLinger = 2 * time.Second
	// subscriptionInterval is how often failed subscriptions are retried and
	// unused ones are ended.
	subscriptionInterval = time.Second
	// subscriptionTimeout is the timeout of requests to the server and of
	// close.
	subscriptionTimeout = 2 * time.Second
)

// newSubscriptions returns subscriptions that call notify for every message in
// a channel. They also call it whenever a message may have been missed: at the
// start of a subscription and after the connection was lost.
func newSubscriptions(client redis.UniversalClient, notify func(channel string)) *subscriptions {
	ctx, stop := context.WithCancel(context.Background())
	s := &subscriptions{
		client: client, notify: notify, stop: stop,
		wanted: make(chan struct{}, 1), done: make(chan struct{}),
		channels: map[string]*subscription{},
	}
	go s.run(ctx)
	return s
}

// use subscribes to a channel until the caller calls done. It does not wait for
// the server.
func (s *subscriptions) use(channel string) (done func()) {
	s.mu.Lock()
	defer s.mu.Unlock()

	one := s.channels[channel]
	if one == nil {
		one = &subscription{}
		s.channels[channel] = one
		select {
		case s.wanted <- struct{}{}:
		default:
			// The element is there already.
		}
	}

	one.users++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		// The subscription stays for a while: see subscriptionLinger.
		one.users--
		one.unused = time.Now()
	}
}

// close closes the connection. If the server does not answer, the connection
// may close a little later.
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

	// No connection is made until somebody follows a stream.
	select {
	case <-ctx.Done():
		return
	case <-s.wanted:
	}

	pubsub := s.client.Subscribe(ctx)
	defer pubsub.Close() //nolint:errcheck // nothing to do about an error

	messages := pubsub.ChannelWithSubscriptions()
	ticker := time.NewTicker(subscriptionInterval)
	defer ticker.Stop()

	s.subscribe(ctx, pubsub)
	for {
		select {
		case <-ctx.Done():
			return
		case message := <-messages:
			switch message := message.(type) {
			case *redis.Message:
				s.notify(message.Channel)
			case *redis.Subscription:
				// Events may have been stored before the subscription began, or while the connection
				// was lost.
				s.notify(message.Channel)
			}
		case <-s.wanted:
			s.subscribe(ctx, pubsub)
		case <-ticker.C:
			s.unsubscribe(ctx, pubsub)
			s.subscribe(ctx, pubsub)
		}
	}
}

// subscribe subscribes to the new channels. After an error, the next tick
// retries.
func (s *subscriptions) subscribe(ctx context.Context, pubsub *redis.PubSub) {
	s.mu.Lock()
	var names []string
	for name, one := range s.channels {
		if !one.subscribed && one.users > 0 {
			names = append(names, name)
		}
	}
	s.mu.Unlock()
	if len(names) == 0 {
		return
	}

	// Without the lock: followers that come and go must not wait for the server.
	ctx, cancel := context.WithTimeout(ctx, subscriptionTimeout)
	defer cancel()

	// They stay unsubscribed after an error, and the next tick tries again.
	if pubsub.Subscribe(ctx, names...) != nil {
		return
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	// None of them is gone: this goroutine is the only one that deletes channels.
	for _, name := range names {
		s.channels[name].subscribed = true
	}
}

// unsubscribe ends the subscriptions that have been unused for
// subscriptionLinger.
func (s *subscriptions) unsubscribe(ctx context.Context, pubsub *redis.PubSub) {
	s.mu.Lock()
	var names []string
	for name, one := range s.channels {
		if one.users == 0 && time.Since(one.unused) > subscriptionLinger {
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
	// An error means that there is no connection, and a new connection does not
	// subscribe to these channels.
	_ = pubsub.Unsubscribe(ctx, names...)
}
