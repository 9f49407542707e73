package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// builder is a program that builds images from a Dockerfile.
type builder string

// errNoBuilder is returned where no builder works.
var errNoBuilder = errors.New(
	"no image builder works here: install docker with buildx and start its daemon, or install podman or buildah")

// findBuilder returns the first of docker, podman and buildah that works, or the one that BUILDER names.
func findBuilder(ctx context.Context) (builder, error) {
	wanted := os.Getenv("BUILDER")
	for _, probes := range [][]string{
		{"docker", "docker buildx version", "docker info"},
		{"podman", "podman info"},
		{"buildah", "buildah info"},
	} {
		if wanted != "" && wanted != probes[0] {
			continue
		}

		// That a program is installed says little: docker may have no daemon or no buildx.
		if works(ctx, probes[1:]) {
			return builder(probes[0]), nil
		}
	}
	if wanted != "" {
		return "", fmt.Errorf("%w: BUILDER=%s allows no other", errNoBuilder, wanted)
	}
	return "", errNoBuilder
}

func works(ctx context.Context, probes []string) bool {
	for _, probe := range probes {
		args := strings.Fields(probe)
		if exec.CommandContext(ctx, args[0], args[1:]...).Run() != nil {
			return false
		}
	}
	return true
}

// buildImage compiles the program here and builds the image of it. The folder of the
// compiled files replaces the build stage of the Dockerfile, so that no base image is
// needed.
func buildImage(ctx context.Context, o *options) error {
	b, err := findBuilder(ctx)
	if err != nil {
		return err
	}
	roots := *o
	roots.out = filepath.Join(o.out, "out") // as in the Dockerfile
	if err := writeRoots(ctx, &roots); err != nil {
		return err
	}

	if b != "docker" && len(o.platforms) > 1 {
		// They add to a list of that name, and would leave the platforms of an earlier build in it.
		_ = exec.CommandContext(ctx, string(b), "manifest", "rm", o.image).Run()
	}
	for _, args := range b.commands(o) {
		cmd := exec.CommandContext(ctx, string(b), args...)
		// buildx takes the time of the image from here, the others from a flag.
		cmd.Env = append(os.Environ(), "SOURCE_DATE_EPOCH="+o.epoch())
		cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
		fmt.Fprintln(os.Stderr, b, strings.Join(args, " "))
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("%s %s: %w", b, args[0], err)
		}
	}
	return nil
}

// epoch is the time of everything in the image, in seconds since 1970.
func (o *options) epoch() string { return strconv.FormatInt(o.source.time.Unix(), 10) }

// commands returns the arguments of each execution of the builder.
func (b builder) commands(o *options) [][]string {
	names := make([]string, len(o.platforms))
	for i, p := range o.platforms {
		names[i] = p.os + "/" + p.arch
	}

	args := []string{
		"build", "--target", o.program,
		"--file", filepath.Join(o.source.dir, "Dockerfile"), "--platform", strings.Join(names, ","),
		"--build-context", "build=" + o.out,
		"--build-arg", "VERSION=" + o.source.version, "--build-arg", "COMMIT=" + o.source.commit,
		"--build-arg", "COMMIT_DATE=" + o.source.date,
	}

	if b == "docker" {
		// Files get the image's time as well, not only its description.
		to := "type=docker,rewrite-timestamp=true"
		if o.archive != "" {
			to = "type=oci,rewrite-timestamp=true,dest=" + o.archive
		}

		// A provenance has the time and the machine of the build.
		return [][]string{append(append([]string{"buildx"}, args...), "--provenance=false", "--tag", o.image,
			"--output", to, o.out)}
	}

	several := len(o.platforms) > 1
	args = append(args, "--format", "oci", "--timestamp", o.epoch())
	if several {
		// A tag names one image: several platforms need a list.
		args = append(args, "--manifest", o.image, o.out)
	} else {
		args = append(args, "--tag", o.image, o.out)
	}

	switch to := "oci-archive:" + o.archive; {
	case o.archive == "":
		return [][]string{args}
	case several:
		// Without --all the archive has the list alone.
		return [][]string{args, {"manifest", "push", "--all", o.image, to}}
	default:
		return [][]string{args, {"push", o.image, to}}
	}
}
