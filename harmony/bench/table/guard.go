package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
)

// maxLoss is the loss of a ratio above which the run fails.
const maxLoss = 0.15

// recorded returns the path of the ratios of the last accepted run.
func recorded(root string) string {
	return filepath.Join(root, "harmony", "bench", "table", "ratios.json")
}

// ratios returns the shortest time of each benchmark as a ratio to the shortest one of
// the yardstick, in millionths with four digits. Other work on the machine makes times
// longer, never shorter.
func (f figures) ratios() map[string]float64 {
	all := map[string]float64{}
	if len(f[yardstickName]["ns/op"]) == 0 {
		return all
	}
	yard := slices.Min(f[yardstickName]["ns/op"])
	for name := range f {
		if times := f[name]["ns/op"]; len(times) > 0 && name != yardstickName {
			all[name], _ = strconv.ParseFloat(strconv.FormatFloat(slices.Min(times)/yard*1e6, 'g', 4, 64), 64)
		}
	}
	return all
}

// writeRatios records ratios.
func writeRatios(path string, ratios map[string]float64) error {
	text, err := json.MarshalIndent(ratios, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644) //nolint:gosec // figures
}

// readRatios reads what was recorded.
func readRatios(path string) (ratios map[string]float64, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	err = json.Unmarshal(text, &ratios)
	return ratios, err
}

// lost reports whether a benchmark is slower than recorded.
func lost(before, now map[string]float64) bool { return compare(io.Discard, before, now) != nil }

var errLoss = errors.New("benchmarks are slower than recorded, beside the yardstick; run again alone, or accept it with -update")

// compare prints benchmarks whose ratio has changed by more than maxLoss, and those
// without a recorded one. It returns an error if one is slower.
func compare(w io.Writer, before, now map[string]float64) (err error) {
	for _, name := range slices.Sorted(maps.Keys(now)) {
		was, known := before[name]
		change := now[name]/was - 1
		switch {
		case !known:
			fmt.Fprintf(w, "new: %s, %s millionths of the yardstick: record it with -update\n", name, number(now[name]))
		case change > maxLoss:
			err = errLoss
			fmt.Fprintf(w, "LOSS: %s takes %.0f %% longer: %s millionths of the yardstick, recorded %s\n", name, change*100, number(now[name]), number(was))
		case change < -maxLoss:
			fmt.Fprintf(w, "gain: %s takes %.0f %% less: %s millionths of the yardstick, recorded %s\n", name, -change*100, number(now[name]), number(was))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if _, measured := now[name]; !measured {
			fmt.Fprintf(w, "gone: %s was recorded: remove it with -update\n", name)
		}
	}
	return err
}
