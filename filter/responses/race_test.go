//go:build race

package responses

func init() { raceDetector = true }
