package main

import (
	"cmp"
	"slices"
	"time"
)

// Sample is what was measured of one target in one or more windows.
type Sample struct {
	// Units are tokens or requests.
	Units int
	Time  time.Duration
	Usage Usage

	// Latency is from when a token was due to its arrival; of requests, to the last byte.
	Latency []time.Duration
	// First is from when a request was due to its first token.
	First []time.Duration

	// Failed is how many streams ended with an error, Err the first of them.
	Failed int
	Err    error
}

// fail notes a stream that ended with an error.
func (s *Sample) fail(err error) {
	if err == nil {
		return
	}
	s.Failed++
	if s.Err == nil {
		s.Err = err
	}
}

// Add adds another window. Of memory the last figure counts.
func (s *Sample) Add(o *Sample) {
	s.Units += o.Units
	s.Time += o.Time
	s.Latency = append(s.Latency, o.Latency...)
	s.First = append(s.First, o.First...)
	if s.Usage.CPU == nil {
		s.Usage.CPU = map[string]time.Duration{}
	}
	for name, t := range o.Usage.CPU {
		s.Usage.CPU[name] += t
	}
	s.Usage.Memory = o.Usage.Memory
	s.Failed += o.Failed
	s.Err = cmp.Or(s.Err, o.Err)
}

// Quantile returns the value that a share of all are not above; 0 if there are none.
func Quantile(all []time.Duration, share float64) time.Duration {
	if len(all) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(all))
	// A share of 1 would be an index beyond the end.
	return sorted[min(int(share*float64(len(sorted))), len(sorted)-1)]
}
