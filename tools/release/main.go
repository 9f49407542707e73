// Command release makes what is published: the container image, and the archives of
// a release. docs/release.md describes both.
//
// Everything that it writes is a function of the source, of the version, of the
// commit with its date, and of the Go toolchain that go.mod names: a second run, in
// another folder, writes the same bytes.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
)

const usage = `Usage: release COMMAND [flags]

Commands:
  root   compile the programs and write the files of their images, for each platform
  image  do the same, and build the image with docker, podman or buildah
  dist   write the archives of a release, with SBOMs and checksums
  check  look whether the folder is the tag of the version, and write its notes
  layout unpack an image that was written with -archive, and write its digests
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1) //nolint:gocritic // nothing is left for stop
	}
}

// options are the flags of all commands.
type options struct {
	source source
	out    string

	// platforms are those of root and image.
	platforms []platform
	// program is the one that image builds an image of, and the stage of the Dockerfile.
	program string
	// image is the name and tag of the image.
	image string
	// archive is the file for the image, as an OCI archive; "": the builder keeps it.
	archive string

	// sbomTool is the program cyclonedx-gomod.
	sbomTool string

	// dry: check prints what is missing and succeeds.
	dry bool
}

func run(ctx context.Context, args []string) error {
	commands := map[string]func(context.Context, *options) error{
		"root": writeRoots, "image": buildImage,
		"dist": writeDist, "check": check, "layout": writeLayout,
	}
	if len(args) == 0 || commands[args[0]] == nil {
		fmt.Fprint(os.Stderr, usage)
		return errors.New("name a command")
	}
	o, err := parse(args[0], args[1:])
	if err != nil {
		return err
	}

	// What is not set comes from the folder, so the flags are read before.
	if err := o.source.complete(ctx); err != nil {
		return err
	}
	return commands[args[0]](ctx, o)
}

func parse(command string, args []string) (*options, error) {
	o := &options{}
	f := flag.NewFlagSet(command, flag.ContinueOnError)
	f.StringVar(&o.source.dir, "source", filepath.Join("..", ".."), "the `folder` of the project")
	f.StringVar(&o.source.version, "version", "0.0.0-dev", "the `version`, without v")
	f.StringVar(&o.source.commit, "commit", "", "the `commit` (default: that of the folder)")
	f.StringVar(&o.source.date, "date", "", "the commit's `date`, RFC 3339 (default: that of the folder)")

	f.StringVar(&o.out, "out", "", "the `folder` to write to")
	f.StringVar(&o.program, "program", filterProgram, "the image's `program`: envoy-harmony or engine-sim")
	f.StringVar(&o.image, "image", "", "the image's `name:tag` (default: PROGRAM:VERSION)")
	f.StringVar(&o.archive, "archive", "", "write the image to this `file`, an OCI archive (layout: read it)")
	f.BoolVar(&o.dry, "dry", false, "check: print what is missing, and succeed")
	f.StringVar(&o.sbomTool, "sbom-tool", "", "the `program` cyclonedx-gomod")
	list := f.String("platforms", "linux/amd64", "the image's `platforms`, separated by commas")

	if err := f.Parse(args); err != nil {
		return nil, err
	}
	if f.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	if o.out == "" {
		return nil, errors.New("name the folder to write to with -out")
	}
	if !slices.Contains(programs, o.program) {
		return nil, fmt.Errorf("program %q: write one of %s", o.program, strings.Join(programs, ", "))
	}

	for name := range strings.SplitSeq(*list, ",") {
		goos, arch, ok := strings.Cut(name, "/")
		// The image has no other system: containers run on Linux.
		if !ok || goos != "linux" || arch == "" {
			return nil, fmt.Errorf("platform %q: write linux/ARCH, such as linux/arm64", name)
		}
		o.platforms = append(o.platforms, platform{goos, arch})
	}

	var err error
	// The compiler and the builders run in other folders.
	if o.out, err = filepath.Abs(o.out); err != nil {
		return nil, err
	}
	if o.source.dir, err = filepath.Abs(o.source.dir); err != nil {
		return nil, err
	}

	if o.image == "" {
		o.image = o.program + ":" + o.source.version
	}
	return o, nil
}
