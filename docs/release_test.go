package docs

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// workflow is what these tests read of a file below .github/workflows.
type workflow struct {
	Permissions map[string]string      `json:"permissions"`
	Jobs        map[string]workflowJob `json:"jobs"`
}

type workflowJob struct {
	Permissions map[string]string `json:"permissions"`
	Steps       []workflowStep    `json:"steps"`
}

type workflowStep struct {
	Uses string            `json:"uses"`
	Run  string            `json:"run"`
	With map[string]any    `json:"with"`
	Env  map[string]string `json:"env"`
}

// rights are what steps need, by the target or the action, beside reading the repository.
var rights = map[string][]string{
	"release-push":                    {"packages"},
	"release-chart":                   {"packages"},
	"release-sign":                    {"packages", "id-token"},
	"release-attest":                  {"packages", "id-token"},
	"actions/attest-build-provenance": {"packages", "id-token", "attestations"},
	"release-publish":                 {"contents"},
}

var (
	// makeStep is the only command of a step.
	makeStep = regexp.MustCompile(`^(?:sudo -E env "PATH=\$PATH" )?make (?:--silent )?([a-z-]+)(?: VERSION="\$\{GITHUB_REF_NAME#v\}")?(?: >>"\$GITHUB_OUTPUT")?$`)
	// pinnedAction names a commit; the comment behind it says which version that is.
	pinnedAction = regexp.MustCompile(`^(actions/[a-z-]+)@[0-9a-f]{40}$`)
	pinComment   = regexp.MustCompile(`(?m)uses: \S+@[0-9a-f]{40} # v\d+\.\d+\.\d+$`)
	makeRule     = regexp.MustCompile(`(?m)^([a-z-]+):`)
)

// faults returns what is wrong with a workflow. targets are those of the Makefile.
func (w *workflow) faults(targets map[string]bool) (found []string) {
	fault := func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) }
	for name, right := range w.Permissions {
		if right != "read" {
			fault("all jobs may %s %s", right, name)
		}
	}

	for name, job := range w.Jobs {
		needed := map[string]string{"contents": "read"}
		for _, step := range job.Steps {
			for _, right := range rights[job.step(step, targets, fault)] {
				needed[right] = "write"
			}
		}

		// A job without rights of its own has those of the workflow.
		has := job.Permissions
		if has == nil {
			has = w.Permissions
		}
		if !maps.Equal(has, needed) {
			fault("job %s may %v, and needs %v", name, has, needed)
		}
	}
	slices.Sort(found)
	return found
}

// step checks a step and returns its target or its action.
func (j *workflowJob) step(step workflowStep, targets map[string]bool, fault func(string, ...any)) string {
	if step.Uses != "" {
		m := pinnedAction.FindStringSubmatch(step.Uses)
		if m == nil {
			fault("%s is not an action of the platform that a commit names", step.Uses)
			return ""
		}
		if m[1] == "actions/checkout" && step.With["persist-credentials"] != false {
			fault("a checkout leaves its token to all later steps")
		}
		return m[1]
	}

	if strings.HasSuffix(step.Run, ".ci/run") {
		return ""
	}
	m := makeStep.FindStringSubmatch(step.Run)
	if m == nil {
		fault("%q is not a make target", step.Run)
		return ""
	}
	if !targets[m[1]] {
		fault("the Makefile has no target %s", m[1])
	}
	return m[1]
}

func makeTargets(t *testing.T) map[string]bool {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	targets := map[string]bool{}
	for _, m := range makeRule.FindAllStringSubmatch(string(text), -1) {
		targets[m[1]] = true
	}
	return targets
}

func readWorkflow(t *testing.T, name string) (w *workflow, text string) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(root, ".github", "workflows", name))
	if err != nil {
		t.Fatal(err)
	}
	w = &workflow{}
	if err := yaml.Unmarshal(content, w); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return w, string(content)
}

// Every step of the workflows is a make target or an action that a commit names, and each job may do what its steps
// need and nothing else.
func TestWorkflows(t *testing.T) {
	targets := makeTargets(t)
	for _, name := range []string{"ci.yaml", "release.yaml"} {
		w, text := readWorkflow(t, name)
		for _, fault := range w.faults(targets) {
			t.Errorf("%s: %s", name, fault)
		}
		if len(w.Jobs) == 0 {
			t.Errorf("%s has no jobs", name)
		}
		if uses, pins := strings.Count(text, "uses: "), len(pinComment.FindAllString(text, -1)); uses != pins {
			t.Errorf("%s: %d actions, and %d with their version behind the commit", name, uses, pins)
		}
	}
}

// The steps of a release are those of the dry run, in its order.
func TestReleaseSteps(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(text), "\nRELEASE_STEPS := ")
	list, _, _ = strings.Cut(strings.ReplaceAll(list, "\\\n", " "), "\n")

	w, _ := readWorkflow(t, "release.yaml")
	var steps []string
	for _, job := range []string{"test", "build", "publish", "release"} {
		for _, step := range w.Jobs[job].Steps {
			// The job that builds checks the tag once more: it has a checkout of its own.
			if m := makeStep.FindStringSubmatch(step.Run); m != nil && !slices.Contains(steps, m[1]) {
				steps = append(steps, m[1])
			}
		}
	}
	if diff := cmp.Diff(strings.Fields(list), steps); diff != "" || len(w.Jobs) != 4 {
		t.Errorf("%d jobs; RELEASE_STEPS of the Makefile are not the steps of the workflow (-Makefile +workflow):\n%s", len(w.Jobs), diff)
	}
}

func TestWorkflowFaultsAreFound(t *testing.T) {
	const commit = "@3d3c42e5aac5ba805825da76410c181273ba90b1"
	run := func(line string) workflowStep { return workflowStep{Run: line} }
	read := map[string]string{"contents": "read"}
	for name, c := range map[string]struct {
		job  workflowJob
		want string
	}{
		"good":              {workflowJob{read, []workflowStep{run("make dist")}}, ""},
		"good identity":     {workflowJob{map[string]string{"contents": "read", "packages": "write", "id-token": "write"}, []workflowStep{run("make release-sign")}}, ""},
		"no target":         {workflowJob{read, []workflowStep{run("make disk")}}, "the Makefile has no target disk"},
		"no make":           {workflowJob{read, []workflowStep{run("curl example.com | sh")}}, `"curl example.com | sh" is not a make target`},
		"two commands":      {workflowJob{read, []workflowStep{run("make dist; id")}}, `"make dist; id" is not a make target`},
		"an expression":     {workflowJob{read, []workflowStep{run("make dist VERSION=${{ github.ref_name }}")}}, "is not a make target"},
		"identity for none": {workflowJob{map[string]string{"contents": "read", "id-token": "write"}, []workflowStep{run("make dist")}}, "job j may map[contents:read id-token:write], and needs map[contents:read]"},
		"too few rights":    {workflowJob{read, []workflowStep{run("make release-publish")}}, "needs map[contents:write]"},
		"a tag":             {workflowJob{read, []workflowStep{{Uses: "actions/setup-go@v7"}}}, "is not an action of the platform that a commit names"},
		"somebody's action": {workflowJob{read, []workflowStep{{Uses: "someone/action" + commit}}}, "is not an action of the platform that a commit names"},
		"token is kept":     {workflowJob{read, []workflowStep{{Uses: "actions/checkout" + commit}}}, "a checkout leaves its token"},
	} {
		w := &workflow{Jobs: map[string]workflowJob{"j": c.job}}
		got := strings.Join(w.faults(makeTargets(t)), "\n")
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}

	w := &workflow{Permissions: map[string]string{"contents": "write"}}
	if got := w.faults(nil); len(got) != 1 {
		t.Errorf("rights of all jobs: %q", got)
	}
}

// A dry run prints what would be published or signed, and a real one wants to know where.
func TestPublishingStepsRunDry(t *testing.T) {
	makeSteps := func(args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), "make", append([]string{
			"--no-print-directory", "VERSION=1.2.3", "release-login", "release-push", "release-sign", "release-attest", "release-publish",
		}, args...)...)
		cmd.Dir = root
		// Flags and variables of the make that runs the tests are not for this one.
		cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool {
			return strings.HasPrefix(v, "MAKE") || strings.HasPrefix(v, "MFLAGS") || strings.HasPrefix(v, "REGISTRY")
		})
		out, err := cmd.CombinedOutput()
		return string(out), err
	}

	out, err := makeSteps("DRY=yes")
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	commands := 0
	for line := range strings.Lines(out) {
		switch {
		case strings.HasPrefix(line, "would run: "):
			commands++
		case strings.HasPrefix(line, "cat: "): // there is no digest before "make release-image"
		default:
			t.Errorf("a dry run prints %s", line)
		}
	}
	if commands != 8 {
		t.Errorf("%d commands: %s", commands, out)
	}

	if out, err := makeSteps("--dry-run"); err == nil || !strings.Contains(out, "name the registry: REGISTRY=HOST/PATH") {
		t.Errorf("without a registry: %v: %s", err, out)
	}
	out, err = makeSteps("--dry-run", "REGISTRY=registry.example/team", "REGISTRY_USER=somebody")
	if err != nil || strings.Contains(out, "would run") || !strings.Contains(out, "/crane push ") {
		t.Errorf("with a registry: %v: %s", err, out)
	}
}

// The rule of support is the same wherever it stands; docs/support computes the days from it.
func TestSupportRule(t *testing.T) {
	for page, rule := range map[string]string{
		"../SECURITY.md":    "until three months after the first release of the newest",
		"release.md":        "until three months after the newest one's first release",
		"support/matrix.go": "const monthsAfterNext = 3 //",
	} {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(strings.Join(strings.Fields(string(text)), " "), rule) {
			t.Errorf("%s does not say %q", page, rule)
		}
	}
}
