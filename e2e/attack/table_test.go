//go:build attack

package attack

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// attackTable prints a row for each attack while they run, and then a table of the
// areas. Both are Markdown.
type attackTable struct {
	file     *os.File
	terminal bool
	color    bool
	total    int
	done     int
	failed   int
	begun    time.Time
	areas    []*areaResult
}

// areaResult is the result of an area.
type areaResult struct {
	name          string
	count, failed int
	cpu           time.Duration
	growth        int64 // the largest
}

var attackColumns = []struct {
	name  string
	width int
}{{"area", 11}, {"attack", 50}, {"expected", 26}, {"seen", 44}, {"CPU s", 6}, {"peak MB", 7}, {"result", 6}}

func newAttackTable(file *os.File, total int) *attackTable {
	t := &attackTable{file: file, total: total, begun: time.Now()}
	if info, err := file.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
		t.terminal = os.Getenv("TERM") != "dumb"
		t.color = t.terminal && os.Getenv("NO_COLOR") == ""
	}
	cells, rules := make([]string, len(attackColumns)), make([]string, len(attackColumns))
	for i, c := range attackColumns {
		cells[i], rules[i] = c.name, strings.Repeat("-", c.width)
	}
	t.row("", cells...)
	t.row("", rules...)
	return t
}

// begin shows which attack runs, on a terminal.
func (t *attackTable) begin(area, name string) {
	if t.terminal {
		fmt.Fprintf(t.file, "\r\x1b[K%d of %d, %s: %s/%s", t.done+1, t.total, time.Since(t.begun).Round(time.Second), area, name)
	}
}

// add prints the row of an attack that has ended.
func (t *attackTable) add(area string, a *attempt) {
	if t.terminal {
		fmt.Fprint(t.file, "\r\x1b[K")
	}
	if len(t.areas) == 0 || t.areas[len(t.areas)-1].name != area {
		t.areas = append(t.areas, &areaResult{name: area})
	}
	r := t.areas[len(t.areas)-1]
	r.count, r.cpu, r.growth = r.count+1, r.cpu+a.cpu, max(r.growth, a.growth)
	t.done++
	result, color := "ok", "32"
	if a.Failed() {
		result, color = "FAIL", "31"
		r.failed++
		t.failed++
	}
	if a.seen == "" {
		a.seen = "not finished"
	}
	t.row(color, area, a.attack.name, a.attack.want, a.seen, fmt.Sprintf("%.2f", a.cpu.Seconds()), strconv.FormatInt(a.growth>>20, 10), result)
}

// row prints cells, the last one with a color.
func (t *attackTable) row(color string, cells ...string) {
	var b strings.Builder
	for i, cell := range cells {
		width := attackColumns[i].width
		cell = strings.ReplaceAll(strings.Join(strings.Fields(cell), " "), "|", "¦")
		if utf8.RuneCountInString(cell) > width {
			cell = string([]rune(cell)[:width-1]) + "…"
		}
		padded := cell + strings.Repeat(" ", width-utf8.RuneCountInString(cell))
		if i == len(cells)-1 && t.color && color != "" {
			padded = "\x1b[" + color + "m" + padded + "\x1b[0m"
		}
		fmt.Fprintf(&b, "| %s ", padded)
	}
	fmt.Fprintln(t.file, b.String()+"|")
}

// summary prints the table of the areas, for docs/reliability.md, and one line.
func (t *attackTable) summary() {
	fmt.Fprintln(t.file, "\n| area | attacks | failed | CPU of the filter | largest growth of its memory |\n|---|---|---|---|---|")
	var cpu time.Duration
	var growth int64
	for _, r := range t.areas {
		fmt.Fprintf(t.file, "| %s | %d | %d | %.1f s | %d MB |\n", r.name, r.count, r.failed, r.cpu.Seconds(), r.growth>>20)
		cpu, growth = cpu+r.cpu, max(growth, r.growth)
	}
	fmt.Fprintf(t.file, "| all | %d | %d | %.1f s | %d MB |\n\n", t.done, t.failed, cpu.Seconds(), growth>>20)
	verdict := "all as expected"
	if t.failed > 0 {
		verdict = fmt.Sprintf("%d not as expected", t.failed)
	}
	if t.done < t.total {
		verdict += fmt.Sprintf(", %d did not run", t.total-t.done)
	}
	fmt.Fprintf(t.file, "%s: %d attacks in %s, %s\n", time.Now().UTC().Format(time.DateOnly), t.done, time.Since(t.begun).Round(time.Second), verdict)
}
