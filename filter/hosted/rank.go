package hosted

import (
	"cmp"
	"math"
	"slices"
	"unicode"
	"unicode/utf8"
)

// The bounds of a search.
const (
	maxIndexed    = 2 << 10 // bytes of a tool's names and descriptions, or of a query
	maxQueryWords = 64
	nameWeight    = 3 // how often a word of the name counts
)

// The usual parameters of BM25: how soon a word's repetition counts no more, and how
// much the length of a text counts.
const (
	saturation = 1.2
	lengthBias = 0.75
)

// rank returns the indexes of the tools that fit a query best, at most limit, the best one
// first. Tools without a word of the query do not fit. It ranks by BM25, in which words that
// few tools have count more. It takes its steps of work before it reads a tool: an error of
// spend ends it with [ErrWork].
//
// Nothing is kept of the tools but numbers: an index of a tool's words took ten times the
// memory of the tool, and most replies search once.
func rank(spend func(steps int) error, tools []*Deferred, query string, limit int) ([]int, error) {
	s := search{words: map[string]int{}}
	// The model writes the query, and each word of a tool is looked for in it. A word counts
	// once, however often the query has it.
	most := maxQueryWords
	eachWord(query, func(word []byte) {
		if _, known := s.words[string(word)]; !known && most > 0 {
			s.words[string(word)] = len(s.words)
		}
		most--
	})
	s.having, s.counts = make([]int, len(s.words)), make([]int, len(s.words))

	var fit []int
	total := 0
	for i, d := range tools {
		length, err := s.count(spend, d)
		if err != nil {
			return nil, err
		}
		total += length

		fits := false
		for k, n := range s.counts {
			if n > 0 {
				s.having[k]++
				fits = true
			}
		}
		if fits {
			fit = append(fit, i)
		}
	}

	// How rare a word is, and how long the tools are, is known once all of them were read.
	scores := make([]float64, len(fit))
	mean := float64(max(total, 1)) / float64(max(len(tools), 1))
	for n, i := range fit {
		length, err := s.count(spend, tools[i])
		if err != nil {
			return nil, err
		}
		scores[n] = s.score(len(tools), float64(length)/mean)
	}

	order := make([]int, len(fit))
	for n := range order {
		order[n] = n
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(scores[b], scores[a]) })

	order = order[:min(len(order), limit)]
	for n, k := range order {
		order[n] = fit[k]
	}

	return order, nil
}

// search is a search by words while it runs.
type search struct {
	// The words of the query, with their places in what follows.
	words map[string]int
	// For each word, how many tools have it.
	having []int
	// For each word, how often the tool has it that was read last.
	counts []int
}

// bytesPerStep is how many bytes of a tool's text a step of work reads, each in some 15 ns.
const bytesPerStep = 3

// count counts the words of the query in a tool. It returns how many words the tool has.
func (s *search) count(spend func(steps int) error, d *Deferred) (int, error) {
	clear(s.counts)
	length, left := 0, maxIndexed

	// The description of a namespace, which all its tools have, is read where theirs is short.
	for _, part := range []struct {
		text   string
		weight int
	}{
		{d.Namespace, nameWeight},
		{d.Tool.Name, nameWeight},
		{d.Tool.Description, 1},
		{d.About, 1},
	} {
		text := part.text[:min(len(part.text), left)]
		left -= len(text)
		if spend(1+len(text)/bytesPerStep) != nil {
			return 0, ErrWork
		}

		eachWord(text, func(word []byte) {
			length += part.weight
			if k, ok := s.words[string(word)]; ok {
				s.counts[k] += part.weight
			}
		})
	}

	return length, nil
}

// score returns how well the tool fits that was counted last, whose length is a part of the mean.
func (s *search) score(tools int, length float64) float64 {
	score := 0.0
	for k, count := range s.counts {
		n := float64(count)
		if n == 0 {
			continue
		}
		rarity := math.Log(1 + (float64(tools-s.having[k])+0.5)/(float64(s.having[k])+0.5))
		score += rarity * n * (saturation + 1) / (n + saturation*(1-lengthBias+lengthBias*length))
	}

	return score
}

// eachWord calls do with each word of the beginning of a text, in lower case and without the s
// of a plural. Names are split where their letters change to upper case. A word is gone after
// its call.
func eachWord(text string, do func(word []byte)) {
	text = text[:min(len(text), maxIndexed)]
	var room [64]byte
	word := room[:0]
	end := func() {
		w := word
		word = word[:0]
		// Words such as bus and access keep their s.
		if len(w) > 3 && w[len(w)-1] == 's' && w[len(w)-2] != 's' {
			w = w[:len(w)-1]
		}
		if len(w) > 0 {
			do(w)
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
		word = utf8.AppendRune(word, unicode.ToLower(c))
	}

	end()
}
