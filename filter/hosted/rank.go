package hosted

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"unicode"
)

// searchText is what a search knows of a tool.
type searchText struct {
	counts map[string]int // of its words
	length int            // of the counts together
}

// The bounds of a search.
const (
	maxIndexed    = 2 << 10 // bytes of a tool's name and description
	maxQueryWords = 64
	nameWeight    = 3 // how often a word of the name counts
)

// The usual parameters of BM25: how soon a word's repetition counts no more, and how
// much the length of a text counts.
const (
	saturation = 1.2
	lengthBias = 0.75
)

// newSearchText indexes a tool, once for all searches of a reply.
func newSearchText(name, description string) *searchText {
	t := &searchText{counts: map[string]int{}}
	add := func(text string, weight int) {
		for _, w := range searchWords(text) {
			t.counts[w] += weight
			t.length += weight
		}
	}
	add(name, nameWeight)
	add(description, 1)
	return t
}

// rank returns the indexes of the texts that fit a query best, at most limit, the best
// one first. Texts without a word of the query do not fit. It ranks by BM25, in which
// words that few texts have count more.
func rank(texts []*searchText, query string, limit int) []int {
	// A word counts once, however often the query has it.
	words := searchWords(query)
	// The model writes the query, and each word is looked for in each text.
	words = words[:min(len(words), maxQueryWords)]
	slices.Sort(words)
	words = slices.Compact(words)

	// How many texts have a word.
	having := make(map[string]int, len(words))
	total := 0
	for _, t := range texts {
		for _, w := range words {
			if t.counts[w] > 0 {
				having[w]++
			}
		}
		total += t.length
	}

	// The bounds keep the quotient defined where there are no texts, or no words in them.
	mean := float64(max(total, 1)) / float64(max(len(texts), 1))

	scores := make([]float64, len(texts))
	var fit []int
	for i, t := range texts {
		for _, w := range words {
			n := float64(t.counts[w])
			if n == 0 {
				continue
			}
			rarity := math.Log(1 + (float64(len(texts)-having[w])+0.5)/(float64(having[w])+0.5))
			scores[i] += rarity * n * (saturation + 1) /
				(n + saturation*(1-lengthBias+lengthBias*float64(t.length)/mean))
		}

		if scores[i] > 0 {
			fit = append(fit, i)
		}
	}

	slices.SortStableFunc(fit, func(a, b int) int { return cmp.Compare(scores[b], scores[a]) })

	return fit[:min(len(fit), limit)]
}

// searchWords returns the words of the beginning of a text, in lower case and without
// the s of a plural. Names are split where their letters change to upper case.
func searchWords(text string) []string {
	text = text[:min(len(text), maxIndexed)]
	var words []string
	var word strings.Builder
	end := func() {
		w := word.String()
		word.Reset()
		// Words such as bus and access keep their s.
		if len(w) > 3 && strings.HasSuffix(w, "s") && !strings.HasSuffix(w, "ss") {
			w = w[:len(w)-1]
		}
		if w != "" {
			words = append(words, w)
		}
	}
	lower := false
	for _, c := range text {
		if !unicode.IsLetter(c) && !unicode.IsDigit(c) {
			end()
			lower = false
			continue
		}
		// The words of getWeather are get and weather.
		if unicode.IsUpper(c) && lower {
			end()
		}
		lower = unicode.IsLower(c)
		word.WriteRune(unicode.ToLower(c))
	}

	end()

	return words
}
