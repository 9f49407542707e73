package main

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// ociIndex, ociManifest and ociConfig are parts of the OCI image format.
type (
	ociDescriptor struct {
		Digest    string
		MediaType string
		Platform  struct{ OS, Architecture string }
	}
	ociIndex    struct{ Manifests []ociDescriptor }
	ociManifest struct {
		Config ociDescriptor
		Layers []ociDescriptor
	}
	ociConfig struct {
		Architecture, OS string
		Created          time.Time
		Config           struct {
			User            string
			Entrypoint, Cmd []string
			Labels          map[string]string
			ExposedPorts    map[string]struct{}
		}
	}
)

// archive is an image in an OCI archive.
type archive struct {
	t     *testing.T
	files map[string][]byte
}

func readArchive(t *testing.T, file string) *archive {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	a := &archive{t, map[string][]byte{}}
	for r := tar.NewReader(f); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return a
		}
		if err != nil {
			t.Fatal(err)
		}
		if a.files[filepath.Clean(h.Name)], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
}

// blob returns the content of a digest, after checking it.
func (a *archive) blob(digest string) []byte {
	a.t.Helper()
	content := a.files["blobs/"+strings.Replace(digest, ":", "/", 1)]
	if got := fmt.Sprintf("sha256:%x", sha256.Sum256(content)); got != digest {
		a.t.Fatalf("the archive has no %s", digest)
	}
	return content
}

func parseJSON[T any](t *testing.T, text []byte) (v T) {
	t.Helper()
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// digest returns the digest of the image, or of its list of platforms.
func (a *archive) digest() string {
	a.t.Helper()
	index := parseJSON[ociIndex](a.t, a.files["index.json"])
	if len(index.Manifests) != 1 {
		a.t.Fatalf("the archive has %d images", len(index.Manifests))
	}
	return index.Manifests[0].Digest
}

// platform returns the image of a platform: its configuration and its layers.
func (a *archive) platform(arch string) (config ociConfig, layers [][]byte) {
	a.t.Helper()
	text := a.blob(a.digest())
	for _, m := range parseJSON[ociIndex](a.t, text).Manifests { // a list of platforms
		if m.Platform.Architecture == arch {
			text = a.blob(m.Digest)
		}
	}
	manifest := parseJSON[ociManifest](a.t, text)
	for _, l := range manifest.Layers {
		layers = append(layers, a.blob(l.Digest))
	}
	config = parseJSON[ociConfig](a.t, a.blob(manifest.Config.Digest))
	if config.Architecture != arch || config.OS != "linux" {
		a.t.Fatalf("image of %s/%s, want linux/%s", config.OS, config.Architecture, arch)
	}
	return config, layers
}

// imageBuilder skips the test if no builder works, and keeps what podman and buildah
// store in a folder of the test.
func imageBuilder(t *testing.T) {
	t.Helper()
	b, err := findBuilder(t.Context())
	if err != nil {
		t.Skip("SKIPPED, the image was not tested: " + err.Error())
	}
	if b != "docker" {
		dir, err := os.MkdirTemp("", "release-image-") //nolint:usetesting // its path must be short
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
		settings := fmt.Sprintf("[storage]\ndriver = \"vfs\"\ngraphroot = %q\nrunroot = %q\n", dir+"/graph", dir+"/run")
		if err := os.WriteFile(dir+"/storage.conf", []byte(settings), 0o600); err != nil {
			t.Fatal(err)
		}
		t.Setenv("CONTAINERS_STORAGE_CONF", dir+"/storage.conf")
	}
	t.Log("builder: " + b)
}

// build builds the image of a source's program for platforms and returns it.
func build(t *testing.T, s source, program, platforms string) *archive {
	t.Helper()
	dir := t.TempDir()
	args := []string{
		"image", "-program", program, "-source", s.dir, "-version", s.version, "-commit", s.commit, "-date", s.date,
		"-platforms", platforms, "-image", "localhost/envoy-harmony-test:1.2.3", "-out", dir, "-archive", filepath.Join(dir, "image.tar"),
	}
	if err := run(t.Context(), args); err != nil {
		t.Fatal(err)
	}
	return readArchive(t, filepath.Join(dir, "image.tar"))
}

// The image has the files, the user and the labels of docs/release.md and nothing
// else; it is the same from two folders; its program runs in it.
func TestImage(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("SKIPPED, the image was not tested: its program runs on Linux")
	}
	imageBuilder(t)
	first, second := copyTree(t), copyTree(t)
	here := "linux/" + runtime.GOARCH
	image, again := build(t, first, filterProgram, here), build(t, second, filterProgram, here)
	if image.digest() != again.digest() {
		t.Errorf("two folders, two images: %s, %s", image.digest(), again.digest())
	}
	config, layers := image.platform(runtime.GOARCH)
	checkConfig(t, config)
	root := t.TempDir()
	program := extract(t, layers, filterProgram, root)
	checkProgram(t, program, platform{"linux", runtime.GOARCH})
	t.Run("version", func(t *testing.T) {
		out, err := inside(t, root, nil, "/envoy-harmony", "version").Output()
		if err != nil || !strings.HasPrefix(string(out), "envoy-harmony 1.2.3\n") {
			t.Errorf("%v, %q", err, out)
		}
	})
	t.Run("serve", func(t *testing.T) { checkServe(t, root) })
	t.Run("roots", func(t *testing.T) { checkRoots(t, root) })
}

// The simulated engine has an image of its own, which serves without arguments.
func TestImageOfSimulator(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("SKIPPED, the image was not tested: its program runs on Linux")
	}
	imageBuilder(t)

	image := build(t, copyTree(t), simProgram, "linux/"+runtime.GOARCH)
	config, layers := image.platform(runtime.GOARCH)
	if c := config.Config; c.User != "65532:65532" || !slices.Equal(c.Entrypoint, []string{"/engine-sim"}) ||
		!slices.Equal(c.Cmd, []string{"--listen=:8000"}) || c.Labels["org.opencontainers.image.title"] != simProgram {
		t.Errorf("configuration %+v", c)
	}

	root := t.TempDir()
	extract(t, layers, simProgram, root)
	out, err := inside(t, root, nil, "/engine-sim", "--help").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "engine-sim") {
		t.Errorf("%v, %q", err, out)
	}
}

// One image has both platforms.
func TestImagePlatforms(t *testing.T) {
	imageBuilder(t)
	image := build(t, copyTree(t), filterProgram, "linux/amd64,linux/arm64")
	for _, arch := range []string{"amd64", "arm64"} {
		config, layers := image.platform(arch)
		checkConfig(t, config)
		checkProgram(t, extract(t, layers, filterProgram, t.TempDir()), platform{"linux", arch})
	}
}

func checkConfig(t *testing.T, c ociConfig) {
	t.Helper()
	if c.Config.User != "65532:65532" || !slices.Equal(c.Config.Entrypoint, []string{"/envoy-harmony"}) ||
		!slices.Equal(c.Config.Cmd, []string{"serve", "--config", "/etc/envoy-harmony/config.yaml"}) || len(c.Config.ExposedPorts) != 2 {
		t.Errorf("configuration %+v", c.Config)
	}
	if want := time.Date(2026, 2, 3, 2, 5, 6, 0, time.UTC); !c.Created.Equal(want) {
		t.Errorf("created %v, want %v", c.Created, want)
	}
	for label, want := range map[string]string{
		"title": "envoy-harmony", "version": "1.2.3", "revision": "0123456789abcdef", "created": "2026-02-03T02:05:06Z", "licenses": "Apache-2.0",
	} {
		if got := c.Config.Labels["org.opencontainers.image."+label]; got != want {
			t.Errorf("label %s: %q, want %q", label, got, want)
		}
	}
}

// extract writes the files of the layers to root, checks that there are no others
// than documented, and returns the program.
func extract(t *testing.T, layers [][]byte, program, root string) []byte {
	t.Helper()
	var text []byte
	files := map[string]string{}
	for _, layer := range layers {
		headers, contents := untar(t, layer)
		for name, h := range headers {
			if h.Typeflag == tar.TypeDir {
				continue
			}
			files[name] = fmt.Sprintf("%c %o %d:%d", h.Typeflag, h.Mode&0o7777, h.Uid, h.Gid)
			path := filepath.Join(root, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, contents[name], h.FileInfo().Mode().Perm()); err != nil {
				t.Fatal(err)
			}
		}
		if found := contents[program]; found != nil {
			text = found
		}
	}
	want := map[string]string{program: "0 755 0:0", "licenses/LICENSE": "0 644 0:0", "licenses/THIRD_PARTY_NOTICES": "0 644 0:0"}
	if len(files) != len(want) {
		t.Errorf("files %v", files)
	}
	for name, mode := range want {
		if files[name] != mode {
			t.Errorf("%s: type, mode and owner %q, want %q", name, files[name], mode)
		}
	}
	return text
}

// inside returns a command in root, as the image's user. All files there are root's,
// so the command cannot write any.
func inside(t *testing.T, root string, env []string, args ...string) *exec.Cmd {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("SKIPPED, the program was not run in the image: chroot needs root")
	}
	for dir := root; dir != "/"; dir = filepath.Dir(dir) { // the folders of tests are root's alone
		if err := os.Chmod(dir, 0o755); dir != os.TempDir() && err != nil {
			t.Fatal(err)
		}
		if dir == filepath.Dir(os.TempDir()) || filepath.Dir(dir) == os.TempDir() {
			break
		}
	}
	cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
	cmd.Path, cmd.Dir, cmd.Err = args[0], "/", nil // of the new root
	cmd.Env = append([]string{}, env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Credential: &syscall.Credential{Uid: 65532, Gid: 65532, NoSetGroups: false}}
	return cmd
}

// checkServe starts the filter with the image's user, waits until it is ready, and
// ends it with a signal.
func checkServe(t *testing.T, root string) {
	port := freePort(t)
	admin := "127.0.0.1:" + port
	cmd := inside(t, root, nil, "/envoy-harmony", "serve", "--engine", "vllm=http://127.0.0.1:1", "--listen", "127.0.0.1:0", "--admin", admin)
	var logs bytes.Buffer
	cmd.Stderr = &logs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for begun := time.Now(); !ready(t.Context(), "http://"+admin+"/readyz"); time.Sleep(20 * time.Millisecond) {
		select {
		case err := <-ended:
			t.Fatalf("it ended: %v\n%s", err, logs.Bytes())
		default:
		}
		if time.Since(begun) > time.Minute {
			_ = cmd.Process.Kill()
			t.Fatalf("it is not ready: %v\n%s", <-ended, logs.Bytes())
		}
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Errorf("it ended with %v\n%s", err, logs.Bytes())
	}
	if !strings.Contains(logs.String(), `"version":"1.2.3"`) {
		t.Errorf("the log does not have the version:\n%s", logs.Bytes())
	}
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

func ready(ctx context.Context, url string) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return false
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// checkRoots runs the program's own test of its root certificates in the image.
func checkRoots(t *testing.T, root string) {
	cmd := exec.CommandContext(t.Context(), "go", "test", "-c", "-o", filepath.Join(root, "roots.test"), "./cmd/envoy-harmony")
	cmd.Dir, cmd.Env = filepath.Join("..", ".."), append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	out, err := inside(t, root, []string{"ROOTS_SERVER=none"}, "/roots.test", "-test.run", "^TestRootsOfProgram$", "-test.v").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: TestRootsOfProgram") {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestCommands(t *testing.T) {
	o := &options{
		source: source{dir: "/src", version: "1.2.3", commit: "abc", date: "1970-01-01T00:01:00Z", time: time.Unix(60, 0)},
		out:    "/out", program: filterProgram, image: "i:1", archive: "/a.tar", platforms: []platform{{"linux", "amd64"}},
	}
	several := *o
	several.platforms = []platform{{"linux", "amd64"}, {"linux", "arm64"}}
	local := *o
	local.archive = ""
	const common = "build --target envoy-harmony --file /src/Dockerfile --platform %s --build-context build=/out --build-arg VERSION=1.2.3 --build-arg COMMIT=abc --build-arg COMMIT_DATE=1970-01-01T00:01:00Z"
	one, both := fmt.Sprintf(common, "linux/amd64"), fmt.Sprintf(common, "linux/amd64,linux/arm64")
	for _, tt := range []struct {
		builder builder
		options *options
		want    []string
	}{
		{"docker", o, []string{"buildx " + one + " --provenance=false --tag i:1 --output type=oci,rewrite-timestamp=true,dest=/a.tar /out"}},
		{"docker", &local, []string{"buildx " + one + " --provenance=false --tag i:1 --output type=docker,rewrite-timestamp=true /out"}},
		{"podman", &local, []string{one + " --format oci --timestamp 60 --tag i:1 /out"}},
		{"buildah", o, []string{one + " --format oci --timestamp 60 --tag i:1 /out", "push i:1 oci-archive:/a.tar"}},
		{"podman", &several, []string{both + " --format oci --timestamp 60 --manifest i:1 /out", "manifest push --all i:1 oci-archive:/a.tar"}},
	} {
		var got []string
		for _, args := range tt.builder.commands(tt.options) {
			got = append(got, strings.Join(args, " "))
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: %q, want %q", tt.builder, got, tt.want)
		}
	}
}

func TestNoBuilder(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if _, err := findBuilder(t.Context()); !errors.Is(err, errNoBuilder) {
		t.Errorf("error %v", err)
	}
}
