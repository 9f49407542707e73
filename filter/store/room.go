package store

import (
	"context"
	"errors"
	"fmt"
)

// A few bytes of a request can name much that is stored. Where the context of a call has a room
// ([WithRoom]), what is read is of a size that is known before, and that was taken of the room:
// nothing larger comes into memory.
//
//	size            what is taken                        round trips
//	to smallRead    readCopies times smallRead first     one: size and contents come together
//	above           readCopies times the size, which     two: the first one brings the size alone
//	                the first one has brought
//
// When the call returns, what it returns stays taken, for its caller, and the rest is given back.
// This holds for all methods that return what clients and models have written, except the
// metadata of a conversation and the text of an approval, whose writers bound them. The store in
// memory has all of it already: what it returns is taken, since it stays when the store drops it.

// ErrNoRoom is the error of a call for whose result there is no room. It wraps the room's own.
var ErrNoRoom = errors.New("no memory for what is to be read")

// Room takes memory for so many bytes; less than 0: it gives them back, which is not refused.
type Room func(bytes int) error

const (
	// smallRead is how many bytes are read without asking for their size first: more than most
	// responses have, and with its copies half of what a small request may hold (smallBytes of
	// package extproc).
	smallRead = 32 << 10
	// readCopies is how often what is read is in memory while it is read: as the driver has
	// received it (pgx takes buffers of a power of two, so up to twice), as the value that the
	// driver makes of it, and as what is returned.
	readCopies = 4
	// anySize is the limit of a call without a room.
	anySize = 1 << 40
)

// roomKey is the key of the room of a context.
type roomKey struct{}

// WithRoom returns a context for calls that take room for what they read.
func WithRoom(ctx context.Context, room Room) context.Context {
	return context.WithValue(ctx, roomKey{}, room)
}

// TakeRoom takes memory of the room of ctx, for what is made of what was read; less than 0: it
// gives it back. Without a room there is memory for all.
func TakeRoom(ctx context.Context, bytes int) error {
	room, _ := ctx.Value(roomKey{}).(Room)
	if room == nil {
		return nil
	}
	if err := room(bytes); err != nil {
		return fmt.Errorf("%w: %w", ErrNoRoom, err)
	}
	return nil
}

// sized makes a read whose size the server knows. read returns the size, and has the contents
// only if that is not above limit. What sized returns as the size stays taken.
func sized(ctx context.Context, read func(limit int) (size int, err error)) (size int, err error) {
	if ctx.Value(roomKey{}) == nil {
		return read(anySize)
	}

	// What is stored may grow between two reads: then the second one has no contents either. It
	// cannot go on for long, since all that is stored is bounded.
	for limit := smallRead; ; limit = size {
		if err := TakeRoom(ctx, readCopies*limit); err != nil {
			return 0, err
		}
		size, err = read(limit)

		kept := size
		if err != nil || size > limit {
			kept = 0
		}
		_ = TakeRoom(ctx, kept-readCopies*limit)
		if err != nil || size <= limit {
			return kept, err
		}
	}
}
