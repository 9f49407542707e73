//go:build race

package extproc

func init() { raceDetector = true }
