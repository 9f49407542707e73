package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// platform is an operating system and an architecture, in Go's words.
type platform struct{ os, arch string }

// releasePlatforms have an archive each.
var releasePlatforms = []platform{{"linux", "amd64"}, {"linux", "arm64"}, {"darwin", "amd64"}, {"darwin", "arm64"}}

// environment makes the go command independent of the machine's own settings.
func (s *source) environment(p platform) []string {
	// The oldest processors of each architecture: the level is in the machine code. Without cgo the
	// program is static, and no C compiler has a say.
	return append(os.Environ(),
		"CGO_ENABLED=0", "GOOS="+p.os, "GOARCH="+p.arch, "GOAMD64=v1", "GOARM64=v8.0",
		"GOTOOLCHAIN="+s.toolchain, "GOFLAGS=", "GOEXPERIMENT=", "GOFIPS140=off", "GOWORK=off")
}

// The programs of a release. Each has an image of its own, so that the filter's, which
// serves users, has no simulated engine. The filter's has no Envoy either: "run --simulate",
// which starts all three, is not for it.
const (
	filterProgram = "envoy-harmony"
	simProgram    = "engine-sim"
)

var programs = []string{filterProgram, simProgram}

// compile writes a program for a platform to a file.
func (s *source) compile(ctx context.Context, p platform, program, file string) error {
	// The program has its version, which names it better than a build id does.
	flags := "-s -w -buildid="
	if program == filterProgram {
		flags += fmt.Sprintf(
			" -X main.linkedVersion=%s -X main.linkedCommit=%s -X main.linkedDate=%s", s.version, s.commit, s.date)
	}

	// The version comes from the flags and not from git, so that a source without git builds the same.
	_, err := output(ctx, s.dir, s.environment(p),
		"go", "build", "-trimpath", "-buildvcs=false", "-ldflags", flags, "-o", file, "./cmd/"+program)
	return err
}

// writeRoots writes out/PROGRAM/ARCH for each program and platform: the files of the images.
func writeRoots(ctx context.Context, o *options) error {
	notices, err := o.source.notices(ctx)
	if err != nil {
		return err
	}
	license, err := os.ReadFile(filepath.Join(o.source.dir, "LICENSE"))
	if err != nil {
		return err
	}

	texts := map[string][]byte{"LICENSE": license, "THIRD_PARTY_NOTICES": notices}
	for _, program := range programs {
		for _, p := range o.platforms {
			root := filepath.Join(o.out, program, p.arch)
			if err := o.source.writeRoot(ctx, p, program, root, texts); err != nil {
				return err
			}
		}
	}
	return nil
}

// writeRoot writes the files of one image: the program for a platform, and texts about licences.
func (s *source) writeRoot(ctx context.Context, p platform, program, root string, texts map[string][]byte) error {
	// A file of an earlier build would get into the image.
	if err := os.RemoveAll(root); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(root, "licenses"), 0o755); err != nil {
		return err
	}

	if err := s.compile(ctx, p, program, filepath.Join(root, program)); err != nil {
		return err
	}
	for name, text := range texts {
		if err := os.WriteFile(filepath.Join(root, "licenses", name), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// output runs a program in a folder and returns its standard output. env nil is the
// environment of this process.
func output(ctx context.Context, dir string, env []string, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = dir, env
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, stderr.Bytes())
	}
	return stdout.String(), nil
}
