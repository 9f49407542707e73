package harmony

import "iter"

// RepairKind is the kind of a repair of tolerant mode.
type RepairKind uint8

// The kinds of repair. Their String is used as a metric label.
const (
	RepairMissingStart       RepairKind = iota // a header without <|start|>
	RepairDoubleStart                          // <|start|> in a header
	RepairStrayStop                            // a stop token between messages, dropped
	RepairStrayMarker                          // a marker that starts no header, dropped
	RepairMissingHeader                        // text instead of a header
	RepairMissingMessage                       // a header without <|message|>
	RepairMissingEnd                           // a header within content
	RepairCutHeader                            // a truncated header, or its words between messages, dropped
	RepairLongHeader                           // a header longer than the limit, treated as text
	RepairHeaderText                           // words without meaning in a header, dropped
	RepairUnknownRole                          // an unknown role; assistant is assumed
	RepairMissingChannel                       // an assistant message without a channel
	RepairEmptyChannel                         // <|channel|> without a name
	RepairGluedChannel                         // a channel with other text glued to it
	RepairUnknownChannel                       // another channel than the three, or one in another case
	RepairDuplicateChannel                     // a second channel; the last one is used
	RepairBadRecipient                         // a recipient with characters that no name has
	RepairDuplicateRecipient                   // a second recipient; the last one is used
	RepairEndOfText                            // <|endoftext|> as the end of a message
	RepairUnknownID                            // an id outside the vocabulary
	RepairInvalidUTF8                          // invalid UTF-8
	repairKinds
)

var repairNames = [repairKinds]string{
	"missing_start", "double_start", "stray_stop", "stray_marker", "missing_header", "missing_message",
	"missing_end", "cut_header", "long_header", "header_text", "unknown_role", "missing_channel",
	"empty_channel", "glued_channel", "unknown_channel", "duplicate_channel", "bad_recipient",
	"duplicate_recipient", "end_of_text", "unknown_id", "invalid_utf8",
}

// String returns the name of the kind, such as missing_start.
func (k RepairKind) String() string {
	if k < repairKinds {
		return repairNames[k]
	}
	return "unknown"
}

// Repairs contains the number of repairs by kind.
type Repairs [repairKinds]int

// All yields the kinds that occurred with their number.
func (r *Repairs) All() iter.Seq2[RepairKind, int] {
	return func(yield func(RepairKind, int) bool) {
		for k, n := range r {
			if n > 0 && !yield(RepairKind(k), n) {
				return
			}
		}
	}
}

// Total returns the number of all repairs.
func (r *Repairs) Total() int {
	total := 0
	for _, n := range r {
		total += n
	}
	return total
}
