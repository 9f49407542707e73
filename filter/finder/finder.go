// Package finder finds any of several words in a text in one pass, by the automaton of Aho
// and Corasick: a text costs at most two moves a byte, however many words there are.
//
// A [Finder] does not change, and any number of texts can be searched with it. A search is
// only a [State], from 0 on, which [Finder.Move] advances by one byte.
package finder

// Finder knows the words.
type Finder struct {
	nodes   []node // of the trie of the words; the first is its root
	longest int    // bytes of the longest word
}

// State is what a search knows of the text so far: the longest end of it that is the
// beginning of a word. 0 is the state of an empty text.
type State int32

// Match is a word that ends a text.
type Match struct {
	Word   int32 // index of the word, the first of equal ones
	Length int32 // bytes of it; 0: no word ends here
}

// node stands for a beginning of words.
type node struct {
	// The trie.
	c        byte        // that leads here
	depth    int32       // bytes of this beginning
	child    State       // the first child; 0: none
	next     State       // the next child of the parent; 0: none
	children *[256]State // all of them by their byte, where they are many

	// The automaton.
	fail  State // the longest end of this beginning that is a beginning too
	match Match // the longest word that ends here
}

// fewChildren is how many children a node has as a list.
const fewChildren = 4

// New returns a finder of words; empty ones are not found.
func New(words []string) *Finder {
	most := 1
	for _, word := range words {
		most += len(word)
	}
	f := &Finder{nodes: make([]node, 1, most)}
	for i, word := range words {
		f.insert(i, word)
	}
	f.index()

	// In the order of their depth: what a beginning fails to is shorter.
	queue := make([]State, 1, len(f.nodes))
	for len(queue) > 0 {
		parent := queue[0]
		queue = queue[1:]
		for n := f.nodes[parent].child; n != 0; n = f.nodes[n].next {
			queue = append(queue, n)
			// A single byte fails to the empty text, the zero value.
			if parent == 0 {
				continue
			}
			fail, _ := f.Move(f.nodes[parent].fail, f.nodes[n].c)
			f.nodes[n].fail = fail
			// A word that is the whole of this beginning is longer than what ends it.
			if f.nodes[n].match.Length == 0 {
				f.nodes[n].match = f.nodes[fail].match
			}
		}
	}

	return f
}

func (f *Finder) insert(index int, word string) {
	at := State(0)
	for i := range len(word) {
		n := f.child(at, word[i])
		if n == 0 {
			n = State(len(f.nodes)) //nolint:gosec // words are bounded
			f.nodes = append(f.nodes, node{c: word[i], next: f.nodes[at].child, depth: f.nodes[at].depth + 1})
			f.nodes[at].child = n
		}
		at = n
	}
	if f.nodes[at].match.Length == 0 {
		f.nodes[at].match = Match{int32(index), int32(len(word))} //nolint:gosec // words are bounded
	}
	f.longest = max(f.longest, len(word))
}

// index makes the tables of the nodes that have many children, and of the root.
func (f *Finder) index() {
	for i := range f.nodes {
		count := 0
		for n := f.nodes[i].child; n != 0; n = f.nodes[n].next {
			count++
		}
		// The root gets a table in any case: a text comes back to it at most of its bytes.
		if i > 0 && count <= fewChildren {
			continue
		}
		table := new([256]State)
		for n := f.nodes[i].child; n != 0; n = f.nodes[n].next {
			table[f.nodes[n].c] = n
		}
		f.nodes[i].children = table
	}
}

func (f *Finder) child(at State, c byte) State {
	parent := &f.nodes[at]
	if parent.children != nil {
		return parent.children[c]
	}
	n := parent.child
	for n != 0 && f.nodes[n].c != c {
		n = f.nodes[n].next
	}

	return n
}

// Move returns the state of a text with another byte, and how many moves that took.
func (f *Finder) Move(at State, c byte) (to State, moves int) {
	for {
		moves++
		if to = f.child(at, c); to != 0 || at == 0 {
			return to, moves
		}
		at = f.nodes[at].fail
	}
}

// Match returns the longest word that ends the text.
func (f *Finder) Match(at State) Match { return f.nodes[at].match }

// Begun returns the bytes of the longest end of the text that is the beginning of a word.
func (f *Finder) Begun(at State) int { return int(f.nodes[at].depth) }

// Longest returns the bytes of the longest word.
func (f *Finder) Longest() int { return f.longest }

// Size returns how many beginnings of words the finder knows, and how many of these are words
// that begin no other word.
func (f *Finder) Size() (beginnings, leaves int) {
	for i := range f.nodes {
		if i > 0 && f.nodes[i].child == 0 {
			leaves++
		}
	}

	return len(f.nodes), leaves
}
