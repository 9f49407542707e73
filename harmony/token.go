package harmony

// Token is an id of the o200k_harmony vocabulary, from 0 to 201087. Strict
// parsing also accepts 201088, the last reserved token of the reference.
type Token = uint32

// LastToken is the greatest token that [AppendDecode] decodes.
const LastToken = lastSpecial

// The special tokens of the Harmony format.
const (
	TokenStartOfText Token = 199998 // <|startoftext|>
	TokenEndOfText   Token = 199999 // <|endoftext|>; engines use it as end of sequence
	TokenReturn      Token = 200002 // <|return|> ends the final answer
	TokenConstrain   Token = 200003 // <|constrain|> precedes a content type
	TokenChannel     Token = 200005 // <|channel|> precedes a channel name
	TokenStart       Token = 200006 // <|start|> begins a message header
	TokenEnd         Token = 200007 // <|end|> ends a message
	TokenMessage     Token = 200008 // <|message|> ends a header and begins the content
	TokenCall        Token = 200012 // <|call|> ends a tool call
)
