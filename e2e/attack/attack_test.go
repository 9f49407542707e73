//go:build attack

package attack

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/envoy-harmony/envoy-harmony/e2e/stack"
)

// area is a group of attacks on one stack.
type area struct {
	name    string
	config  func(*testing.T, *stackConfig) // changes the configuration of the stack; nil: none
	attacks []attack
}

// attack is one hostile input. run sends it, checks what comes back and calls
// [attempt.see].
type attack struct {
	name  string
	want  string // the expectation in words, or statuses as [statusIs] reads them
	heavy bool   // only with ATTACK_HEAVY=1
	alone bool   // no other client sends requests, because the attack ends processes
	fresh bool   // has a stack of its own, so that its memory can be measured
	grow  int64  // bound of the filter's memory growth in bytes; 0: [defaultGrowth]
	run   func(*attempt)
}

// defaultGrowth bounds the growth of the filter's resident memory in an attack. It is
// wide: it finds work that grows with another power of the input, not a percentage.
const defaultGrowth = 768 << 20

// areas returns all attacks.
func areas() []area {
	return []area{
		jsonArea(), tokenizerArea(), contextArea(), schemaArea(), limitArea(),
		markerArea(), bodyArea(), httpArea(), bypassArea(), http2Area(), socketArea(), slowSocketArea(),
		isolationArea(), approvalArea(), addressArea(), toolHeaderArea(), hostileToolArea(), secretArea(), recordArea(), reloadArea(), sealArea(),
		engineArea(), clientArea(), budgetArea(), quotaArea(), sessionArea(), cardinalityArea(), storeArea(), diskArea(), faultArea(), replicaArea(), simulatorArea(), manyArea(),
		workArea(), memoryArea(512), memoryArea(1024), memoryArea(2048),
	}
}

// TestAttack runs the attacks that the regular expression ATTACK selects by
// "area/name", all without it, and prints a table.
func TestAttack(t *testing.T) {
	selected, err := regexp.Compile("(?i)" + os.Getenv("ATTACK"))
	if err != nil {
		t.Fatalf("ATTACK is not a regular expression: %v", err)
	}

	heavy := os.Getenv("ATTACK_HEAVY") != ""
	all := areas()
	total := 0
	for i := range all {
		kept := all[i].attacks[:0]
		for _, a := range all[i].attacks {
			if selected.MatchString(all[i].name+"/"+a.name) && (heavy || !a.heavy) {
				kept = append(kept, a)
			}
		}
		all[i].attacks = kept
		total += len(kept)
	}

	if total == 0 {
		t.Fatalf("ATTACK=%s selects no attack", os.Getenv("ATTACK"))
	}

	table := newAttackTable(os.Stdout, total)
	stack.AtEnd = table.summary
	for _, area := range all {
		if len(area.attacks) > 0 {
			t.Run(area.name, func(t *testing.T) { area.run(t, table) })
		}
	}
}

// run runs the attacks of an area one after the other.
func (ar area) run(t *testing.T, table *attackTable) {
	var shared *target
	for _, a := range ar.attacks {
		if shared != nil && shared.dead() != "" {
			shared = nil // the attack that ended it has failed
		}
		if shared == nil && !a.fresh {
			shared = startStack(t, ar.config)
		}
		t.Run(strings.ReplaceAll(a.name, "/", "∕"), func(t *testing.T) {
			table.begin(ar.name, a.name)
			s := shared
			if a.fresh {
				s = startStack(t, ar.config)
			}
			try := &attempt{T: t, target: s, attack: a}
			defer func() { table.add(ar.name, try) }()
			try.measure(func() { a.run(try) })
		})
	}
}
