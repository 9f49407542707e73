package main

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// descriptor is how an OCI image refers to one of its parts.
type descriptor struct {
	MediaType string `json:"mediaType"`
	Digest    string `json:"digest"`
	Platform  struct {
		Architecture string `json:"architecture"`
	} `json:"platform"`
}

// imageList is an index of OCI: a list of images.
type imageList struct {
	Manifests []descriptor `json:"manifests"`
}

// writeLayout unpacks an OCI archive to out/image, the folder that crane pushes, and writes the digests of the image
// and of its platforms to out/image.digest and out/image.ARCH.digest. They are known before anything is pushed: the
// registry gets these bytes.
func writeLayout(_ context.Context, o *options) error {
	if o.archive == "" {
		return errors.New("name the image's archive with -archive")
	}
	dir := filepath.Join(o.out, "image")
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if err := unpack(o.archive, dir); err != nil {
		return fmt.Errorf("%s: %w", o.archive, err)
	}

	var top, image imageList
	if err := readIndex(filepath.Join(dir, "index.json"), &top); err != nil {
		return err
	}
	// The one entry is the list of the platforms.
	if len(top.Manifests) != 1 || !strings.Contains(top.Manifests[0].MediaType, "index") {
		return fmt.Errorf("%s: index.json has not one list of images: build it for several platforms", o.archive)
	}
	digest := top.Manifests[0].Digest
	if err := readIndex(filepath.Join(dir, "blobs", strings.Replace(digest, ":", "/", 1)), &image); err != nil {
		return err
	}

	digests := map[string]string{"image.digest": digest}
	for _, m := range image.Manifests {
		digests["image."+m.Platform.Architecture+".digest"] = m.Digest
	}
	for name, digest := range digests {
		if err := os.WriteFile(filepath.Join(o.out, name), []byte(digest+"\n"), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func readIndex(file string, to *imageList) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, to); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return nil
}

// unpack writes the files of a tar archive to a folder.
func unpack(archive, dir string) error {
	f, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()

	for r := tar.NewReader(f); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}

		// A builder wrote the archive, but a name that leads outside would overwrite files of this machine.
		if !filepath.IsLocal(header.Name) {
			return fmt.Errorf("it has a file %q", header.Name)
		}
		if header.Typeflag != tar.TypeReg {
			continue
		}
		if err := writeFile(filepath.Join(dir, header.Name), r); err != nil {
			return err
		}
	}
}

func writeFile(name string, from io.Reader) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, from)
	return errors.Join(err, f.Close())
}
