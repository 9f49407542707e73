package config

import (
	"fmt"
	"strings"
)

// DidYouMean returns "; did you mean NAME?" with the one of names that a word may be a slip
// of, or "".
func DidYouMean(word string, names []string) string {
	// A third of the letters may be wrong: more is another word.
	best, least := "", max(1, len(word)/3)+1
	for _, name := range names {
		// url for urls, or timeout for call_timeout, is no slip of letters.
		n := distance(word, name)
		if strings.Contains(name, word) && len(word) > 2 {
			n = min(n, 1)
		}
		if n < least {
			best, least = name, n
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf("; did you mean %s?", best)
}

// distance returns how many letters have to be added, removed, replaced or exchanged with
// their neighbour, to make one word of another.
func distance(a, b string) int {
	// Words come from files and command lines: a long one is none of ours.
	const longest = 64
	if len(a) > longest || len(b) > longest {
		return longest
	}

	// The rows of the table of distances between beginnings: the last two, and this one.
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		row[0] = i + 1
		for j := range len(b) {
			replaced := last[j]
			if a[i] != b[j] {
				replaced++
			}
			row[j+1] = min(replaced, last[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
