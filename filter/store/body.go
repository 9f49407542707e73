package store

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"

	"github.com/envoy-harmony/envoy-harmony/filter/work"
)

// bodyFormat is the version of the encoding of a response's body, which servers
// store without interpreting it. A body is the version, the object, the input
// and the output. Every byte string is preceded by its length and every list by
// the number of its items, as unsigned varints.
const bodyFormat = 1

var errBody = errors.New("a stored response is damaged or was written by another version")

// appendBody appends a response's object, input and output.
func appendBody(b []byte, r *Response) []byte {
	b = append(b, bodyFormat)
	b = appendText(b, r.Object)
	for _, items := range [][]Item{r.Input, r.Output} {
		b = binary.AppendUvarint(b, uint64(len(items)))
		for _, item := range items {
			b = appendText(b, []byte(item.ID))
			b = appendText(b, item.JSON)
		}
	}
	return b
}

func appendText(b, text []byte) []byte {
	return append(binary.AppendUvarint(b, uint64(len(text))), text...)
}

// bodySize returns an upper bound of the length of a response's body.
func bodySize(r *Response) int {
	size := 16 + len(r.Object)
	for _, items := range [][]Item{r.Input, r.Output} {
		for _, item := range items {
			size += 2*binary.MaxVarintLen32 + len(item.ID) + len(item.JSON)
		}
	}
	return size
}

// bodyStepBytes is how many bytes of a body are read in one step of a request's work.
const bodyStepBytes = 16

// decodeBody sets the members of r that appendBody encodes. They refer to b. It takes the
// steps of the account of ctx first: a request that names one item has the whole body of a
// response read.
func decodeBody(ctx context.Context, b []byte, r *Response) error {
	// A few bytes of a request can name a long chain: what is read of it counts as work.
	if err := work.From(ctx).Spend(1 + len(b)/bodyStepBytes); err != nil {
		return err
	}
	if len(b) == 0 || b[0] != bodyFormat {
		return errBody
	}

	d := bodyDecoder{b: b[1:]}
	r.Object = d.text()
	r.Input = d.items()
	r.Output = d.items()
	if d.failed || len(d.b) > 0 {
		return errBody
	}

	return nil
}

// clone returns a copy that does not refer to the body the item was decoded
// from.
func (i Item) clone() Item { return Item{ID: i.ID, JSON: bytes.Clone(i.JSON)} }

// take adds to found those items of a response whose ids are wanted, as copies that do not
// refer to its body. Of several items with one id it takes the last.
func (r *Response) take(wanted map[string]bool, found map[string]Item) {
	for _, items := range [][]Item{r.Input, r.Output} {
		for _, i := range items {
			if wanted[i.ID] {
				found[i.ID] = i.clone()
			}
		}
	}
}

// foundBytes is how many bytes items have that were taken of responses.
func foundBytes(found map[string]Item) (n int) {
	for id, i := range found {
		n += len(id) + len(i.JSON)
	}
	return n
}

type bodyDecoder struct {
	b      []byte
	failed bool
}

// uvarint reads a count of bytes or items that follow, so it is at most the
// number of remaining bytes.
func (d *bodyDecoder) uvarint() int {
	// Every number is of bytes or elements that follow.
	n, size := binary.Uvarint(d.b)
	if size <= 0 || n > uint64(len(d.b)-size) {
		d.failed, d.b = true, nil
		return 0
	}
	d.b = d.b[size:]
	return int(n)
}

func (d *bodyDecoder) text() []byte {
	// Without spare capacity: an append to what is returned must not write into what follows.
	n := d.uvarint()
	text := d.b[:n:n]
	d.b = d.b[n:]
	return text
}

func (d *bodyDecoder) items() []Item {
	n := d.uvarint()
	if n == 0 {
		return nil
	}

	// An item has at least two bytes, so that a damaged number takes no more memory than the body.
	items := make([]Item, 0, min(n, len(d.b)/2))
	for range n {
		items = append(items, Item{ID: string(d.text()), JSON: d.text()})
		if d.failed {
			return nil
		}
	}

	return items
}
