package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"runtime"
	"runtime/coverage"
)

// Cost is what one request has cost. The figures do not depend on the speed of the
// machine or on its load.
type Cost struct {
	// Body is the bytes of the request, the answer of the model and the list of tools.
	Body int
	// Counted is Body, the bytes that were taken of the budget, and what the model and the tool
	// servers sent again.
	Counted int

	// Allocated is bytes allocated, whether freed or not.
	Allocated int64
	// Kept is the bytes that the outcome holds.
	Kept int64
	// Steps is the basic blocks that ran; 0 if the program is not built with counters.
	Steps int64
	// Hottest is the function in which most of them ran.
	Hottest function
}

// function is a function with counters, as the counters name it.
type function struct {
	pkg, index uint64
}

// lower returns the lower figures of two measurements of one scenario.
func (c *Cost) lower(other *Cost) Cost {
	low := *c
	low.Allocated = min(c.Allocated, other.Allocated)
	low.Kept = min(c.Kept, other.Kept)
	low.Steps = min(c.Steps, other.Steps)
	return low
}

// Allowance is what a request may cost: Fixed, and PerByte for each counted byte.
type Allowance struct {
	Fixed, PerByte float64
}

// of returns the share of the allowance that a figure uses up. More than 1 is too much.
func (a Allowance) of(figure int64, counted int) float64 {
	return float64(figure) / (a.Fixed + a.PerByte*float64(counted))
}

// Goal is a figure that the search drives up.
type Goal struct {
	Name    string
	Allowed Allowance
	Figure  func(c *Cost) int64
}

// Share is the share of the goal's allowance that a request uses up.
func (g *Goal) Share(c *Cost) float64 { return g.Allowed.of(g.Figure(c), c.Counted) }

// perByte is what candidates are chosen by: the figure for each byte.
func (g *Goal) perByte(c *Cost) float64 { return perByte(g.Figure(c), c) }

// perByte is a figure for each byte. Scenarios below 2 KiB count as if they had more, because
// each request has a cost of its own. The exponent lets what is in proportion to the bytes
// lose by growing, so that the search keeps such scenarios small and fast, and grows those
// that cost more than in proportion.
func perByte(figure int64, c *Cost) float64 {
	return float64(figure) / math.Pow(float64(2<<10+c.Counted), 1.2)
}

// task is what is measured. It returns how many bytes are counted besides those of the
// scenario, and what the request holds from now on.
type task func() (reserved int, outcome any)

// measure measures a task of a scenario with so many bytes. With kept, the outcome is
// weighed too, which takes some collections of garbage.
func measure(do task, size int, kept bool) Cost {
	var before, after runtime.MemStats
	if kept {
		// What is garbage before must not be subtracted from what the outcome holds.
		collect()
	}

	// It fails in a program without counters, or with counters that are not atomic.
	counting := coverage.ClearCounters() == nil
	runtime.ReadMemStats(&before)
	reserved, outcome := do()
	runtime.ReadMemStats(&after)

	c := Cost{Body: size, Counted: size + reserved, Allocated: int64(after.TotalAlloc - before.TotalAlloc)}
	if counting {
		c.Steps, c.Hottest, _ = steps() // without counters there are none
	}
	if kept {
		collect()
		runtime.ReadMemStats(&after)
		c.Kept = int64(after.HeapAlloc) - int64(before.HeapAlloc)
	}

	// Without it the outcome is garbage as soon as nothing refers to it, and weighs nothing.
	runtime.KeepAlive(outcome)
	return c
}

// collect collects garbage until pools are empty: what a pool holds survives one collection.
func collect() {
	runtime.GC()
	runtime.GC()
}

var errCounters = errors.New("the format of the counters is not known")

// steps returns the sum of the counters of basic blocks since they were cleared, and the function
// with the greatest part of it. It reads the file format of Go's coverage counters, as
// https://go.dev/src/internal/coverage/defs.go describes it.
func steps() (sum int64, hottest function, err error) {
	var b bytes.Buffer
	if err := coverage.WriteCounters(&b); err != nil {
		return 0, function{}, err
	}

	p := b.Bytes()
	// The format of Go's coverage counters: a header of the file, one of the segment, then the counters.
	const fileHeader, segmentHeader = 32, 16
	if len(p) < fileHeader+segmentHeader || string(p[:4]) != "\x00cwm" {
		return 0, function{}, errCounters
	}

	const flavorAt, uleb128 = 24, 2
	if p[flavorAt] != uleb128 {
		return 0, function{}, errCounters
	}

	p = p[fileHeader:]

	// The header of the segment: how many functions, and the lengths of two tables of texts.
	functions := binary.LittleEndian.Uint64(p)
	texts := int(binary.LittleEndian.Uint32(p[8:]) + binary.LittleEndian.Uint32(p[12:]))
	begin := segmentHeader + texts
	begin = (begin + 3) &^ 3 // what precedes the counters is padded to a multiple of 4

	if begin > len(p) {
		return 0, function{}, errCounters
	}

	return sumCounters(p[begin:], functions)
}

// sumCounters sums the counters of functions, and returns the function with the greatest sum.
// Each function is the number of its counters, its package, itself, and the counters.
func sumCounters(p []byte, functions uint64) (sum int64, hottest function, err error) {
	next := func() uint64 {
		v, n := binary.Uvarint(p)
		if n <= 0 {
			err = errCounters
			return 0
		}
		p = p[n:]
		return v
	}

	var most int64
	for range functions {
		counters := next()
		f := function{pkg: next(), index: next()}
		var own int64
		for range counters {
			own += int64(next())
			if err != nil {
				return 0, function{}, err
			}
		}

		sum += own
		if own > most {
			most, hottest = own, f
		}
	}

	return sum, hottest, err
}
