package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
)

// specVersion is the CycloneDX version of the SBOMs.
const specVersion = "1.6"

// sbom returns the CycloneDX SBOM of a compiled program: the modules that Go has
// recorded in it, with their hashes and licences.
func (s *source) sbom(ctx context.Context, tool, binary string) ([]byte, error) {
	file, err := os.CreateTemp("", "sbom-*.json")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.Remove(file.Name()) }()
	if err := file.Close(); err != nil {
		return nil, err
	}

	// Compiling has filled the module cache. The tool looks for the program itself there
	// too: what it would find of a published version must not change the result.
	env := append(s.environment(platform{runtime.GOOS, runtime.GOARCH}), "GOPROXY=off", "GOSUMDB=off")
	_, err = output(ctx, s.dir, env, tool, "bin", "-json", "-licenses", "-std", "-noserial",
		"-output-version", specVersion, "-version", "v"+s.version, "-output", file.Name(), binary)
	if err != nil {
		return nil, err
	}

	text, err := os.ReadFile(file.Name())
	if err != nil {
		return nil, err
	}

	program, err := os.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	return s.fix(text, sha256.Sum256(program))
}

// fix replaces what differs between two runs of the tool: the time, and the hashes
// of the tool itself. It adds the licences that the tool cannot find. The serial
// number is derived from the program's hash.
func (s *source) fix(text []byte, hash [sha256.Size]byte) ([]byte, error) {
	var bom map[string]any
	if err := json.Unmarshal(text, &bom); err != nil {
		return nil, fmt.Errorf("SBOM: %w", err)
	}
	metadata, _ := bom["metadata"].(map[string]any)
	program, _ := metadata["component"].(map[string]any)
	if program == nil {
		return nil, errors.New("SBOM: it does not name the program")
	}

	metadata["timestamp"] = s.date
	// The tool is compiled on each machine anew.
	dropHashes(metadata["tools"])
	setLicense(program, "Apache-2.0")
	if err := completeLicenses(bom["components"]); err != nil {
		return nil, err
	}

	hash[6] = hash[6]&0x0f | 0x80 // a UUID of version 8
	hash[8] = hash[8]&0x3f | 0x80
	bom["serialNumber"] = fmt.Sprintf("urn:uuid:%x-%x-%x-%x-%x", hash[:4], hash[4:6], hash[6:8], hash[8:10],
		hash[10:16])

	var b bytes.Buffer
	e := json.NewEncoder(&b)
	// Go would write <, > and & as \u003c and so on, which people read badly.
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err := e.Encode(bom)
	return b.Bytes(), err
}

// setLicense states the licence of a component.
func setLicense(component map[string]any, id string) {
	// CycloneDX has evidence for what was found, and licenses for what is stated.
	delete(component, "evidence")
	component["licenses"] = []any{map[string]any{"license": map[string]any{"id": id}}}
}

// completeLicenses states the licence of the standard library, and checks that the
// tool has found one for every other component.
func completeLicenses(components any) error {
	list, _ := components.([]any)
	if len(list) == 0 {
		return errors.New("SBOM: it has no components")
	}
	for _, c := range list {
		component, _ := c.(map[string]any)
		// Go's licence is beside GOROOT's sources and in no module, so the tool does not find it.
		if component["name"] == "std" {
			setLicense(component, "BSD-3-Clause")
		}
		if component["licenses"] == nil && component["evidence"] == nil {
			return fmt.Errorf("SBOM: no licence was found for %v", component["name"])
		}
	}
	return nil
}

// dropHashes removes the member hashes from all objects in a JSON value.
func dropHashes(v any) {
	switch v := v.(type) {
	case map[string]any:
		delete(v, "hashes")
		for _, member := range v {
			dropHashes(member)
		}
	case []any:
		for _, element := range v {
			dropHashes(element)
		}
	}
}
