package harmony

import "math/bits"

// Blocks of 64 bytes of text are cut into pieces with operations on bit sets: each set has a
// bit for each byte of the block. To cut them takes no branches that depend on the text.
//
// A block begins where a piece begins. Its first bytes up to one that the rules below do not
// know are ASCII: where pieces begin between them follows from the pattern at [pieceEnd].

// blockBytes is the size of a block.
const blockBytes = 64

// blockClasses are the bytes of a block by class. Bytes that are in none are other characters.
type blockClasses struct {
	lower, upper, digit uint64
	// space has spaces, blank all white space that ends no line, and lineEnd what ends a line.
	space, blank, lineEnd uint64
	// Slashes and apostrophes are other characters too.
	slash, apostrophe uint64
	// hard has bytes that are not ASCII, and NUL, which the table of pieces cannot have.
	hard uint64
}

// The bits of classLanes. Slashes have those of space and of blank.
const (
	laneLower = 8 * iota
	laneUpper
	laneDigit
	laneSpace
	laneBlank
	laneLineEnd
	laneApostrophe
	laneHard
)

// classLanes has a bit for each class that a byte is in, in a byte of its own.
var classLanes = func() (t [256]uint64) {
	for c := range t {
		switch asciiClass[c] {
		case classUpper:
			t[c] = 1 << laneUpper
		case classLower:
			t[c] = 1 << laneLower
		case classNumber:
			t[c] = 1 << laneDigit
		case classSpace:
			t[c] = 1 << laneBlank
		case classNewline:
			t[c] = 1 << laneLineEnd
		case notASCII:
			t[c] = 1 << laneHard
		}
	}

	t[' '] = 1 << laneSpace
	t['/'] = 1<<laneSpace | 1<<laneBlank
	t['\''] = 1 << laneApostrophe
	t[0] = 1 << laneHard
	return t
}()

// lanes returns the bits of eight bytes: in byte c those of class c.
func lanes(w uint64) uint64 {
	return classLanes[byte(w)] | classLanes[byte(w>>8)]<<1 | classLanes[byte(w>>16)]<<2 | classLanes[byte(w>>24)]<<3 |
		classLanes[byte(w>>32)]<<4 | classLanes[byte(w>>40)]<<5 | classLanes[byte(w>>48)]<<6 | classLanes[w>>56]<<7
}

// classify returns the classes of the bytes s[i:i+64].
func classify(s string, i int) (c blockClasses) {
	s = s[i : i+blockBytes]
	r0, r1, r2, r3 := lanes(le64(s, 0)), lanes(le64(s, 8)), lanes(le64(s, 16)), lanes(le64(s, 24))
	r4, r5, r6, r7 := lanes(le64(s, 32)), lanes(le64(s, 40)), lanes(le64(s, 48)), lanes(le64(s, 56))

	// The eight numbers are a matrix of bytes. Transposed, each number is a class.
	const m32, m16, m8 = 0x00000000FFFFFFFF, 0x0000FFFF0000FFFF, 0x00FF00FF00FF00FF
	r0, r4 = r0&m32|r4<<32, r0>>32|r4&^m32
	r1, r5 = r1&m32|r5<<32, r1>>32|r5&^m32
	r2, r6 = r2&m32|r6<<32, r2>>32|r6&^m32
	r3, r7 = r3&m32|r7<<32, r3>>32|r7&^m32

	r0, r2 = r0&m16|r2&m16<<16, r0>>16&m16|r2&^m16
	r1, r3 = r1&m16|r3&m16<<16, r1>>16&m16|r3&^m16
	r4, r6 = r4&m16|r6&m16<<16, r4>>16&m16|r6&^m16
	r5, r7 = r5&m16|r7&m16<<16, r5>>16&m16|r7&^m16

	c.lower, c.upper = r0&m8|r1&m8<<8, r0>>8&m8|r1&^m8
	c.digit, c.space = r2&m8|r3&m8<<8, r2>>8&m8|r3&^m8
	c.blank, c.lineEnd = r4&m8|r5&m8<<8, r4>>8&m8|r5&^m8
	c.apostrophe, c.hard = r6&m8|r7&m8<<8, r6>>8&m8|r7&^m8

	c.slash = c.space & c.blank
	c.space &^= c.slash
	c.blank = c.blank&^c.slash | c.space
	return c
}

// blockStarts returns where pieces begin in the block s[i:i+64], whose first byte begins one.
// The last bit is the first piece that may end after the block, or at a byte that the rules
// do not know. At least two bytes must follow the block.
func blockStarts(s string, i int) uint64 {
	c := classify(s, i)
	letter := c.lower | c.upper
	other := ^(letter | c.digit | c.blank | c.lineEnd | c.hard)

	// What is absorbed by the other characters before it: line ends, and slashes after these.
	// The sum carries through what follows the first line end.
	absorbable := c.lineEnd | c.slash
	first := c.lineEnd & (other << 1)
	absorbed := absorbable&^(absorbable+first) | first
	other &^= absorbed
	lineEnd := c.lineEnd &^ absorbed
	white := c.blank | lineEnd

	// The last blank before another character is the prefix of a word, or a piece of its own.
	starts := white&^(white<<1) | c.blank&(lineEnd<<1) | c.blank&^(white>>1)

	// Other characters are a piece with a space before them, and of a single one a word can follow.
	otherStart := other &^ (other << 1) &^ (c.space << 1)
	prefix := c.blank | otherStart&^(other>>1)
	starts |= otherStart | letter&^(letter<<1)&^(prefix<<1) | c.upper&(c.lower<<1)

	// Numbers are cut every three digits.
	digits := c.digit &^ (c.digit << 1)
	starts |= digits
	four := c.digit & (c.digit << 1)
	four &= four << 2
	for digits = digits << 3 & four; digits != 0; digits = digits << 3 & four {
		starts |= digits
	}

	if found := c.apostrophe & (letter << 1) & (letter >> 1); found != 0 {
		starts = contractions(s, i, found, letter, starts)
	}

	// Blanks after a line end that others follow belong to it. And after an apostrophe there can
	// be a contraction.
	unknown := c.hard | (c.blank+c.blank&(lineEnd<<1))&^c.blank&lineEnd | c.apostrophe&(c.hard>>1|1<<63)
	last := uint(blockBytes - 1)
	if unknown != 0 {
		last = uint(bits.TrailingZeros64(unknown)) - 1
		if last > blockBytes {
			return 1
		}
	}

	// Where letters and digits are cut depends on nothing after it. Another run of one class up to
	// there may go on.
	run := other
	bit := uint64(1) << last
	switch {
	case (letter|c.digit)&bit != 0:
		return starts&(bit<<1-1) | 1
	case (c.blank|c.lineEnd)&bit != 0:
		run = c.blank | c.lineEnd
	case c.slash&bit != 0:
		run = other | absorbed
	}
	from := bits.Len64((bit<<1 - 1) &^ run)
	return starts&(2<<from-1) | 1
}

// contractions returns the starts with the contractions at some of the apostrophes found,
// which are between letters.
func contractions(s string, i int, found, letter, starts uint64) uint64 {
	end := -1
	for ; found != 0; found &= found - 1 {
		at := bits.TrailingZeros64(found)

		// A word has one contraction. After it an apostrophe is the prefix of a word.
		size := contractionEnd(s, i+at) - i - at
		if size == 0 || at == end {
			continue
		}

		end = at + size
		starts &^= (1<<size - 1) << at
		starts |= letter & (1 << end)
	}
	return starts
}
