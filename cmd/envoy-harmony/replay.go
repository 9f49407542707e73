package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"

	"github.com/envoy-harmony/envoy-harmony/filter"
	"github.com/envoy-harmony/envoy-harmony/filter/config"
	"github.com/envoy-harmony/envoy-harmony/filter/record"
	"github.com/envoy-harmony/envoy-harmony/filter/replay"
)

const replayUsage = `Usage: envoy-harmony replay [flags] RECORDS...

Makes recorded exchanges again, without engines, stores and tools, and compares: would
this version write the same prompts, and the same replies? RECORDS are files, or folders
of files, as record.folder has them. The configuration is that of each record, without its
secrets; the environment overrides it: ENVOY_HARMONY_RESPONSES_SEAL_KEYS lets sealed
reasoning be read.

The exit status is 1 if anything differs, if a file or the configuration of a record cannot
be read, and if there is nothing to compare.

With -engine, engines are asked again with the same prompts, and what they say is
compared with what was recorded: by channel, in tokens and in time. The filter and Envoy
are not needed for that.

Flags:
`

// replayCommand replays records.
func replayCommand(ctx context.Context, p program, args []string) error {
	flags := recordFlags(p, "replay", replayUsage)
	file := flags.String("config", "",
		"configuration `FILE` in place of that in the records, such as for its seal keys")
	show := flags.Int("show", 20, "how many differences are shown; 0: all")

	var engines []*replay.Engine
	flags.Func("engine",
		"ask an engine, `KIND=URL`, such as vllm=http://10.0.0.1:8000; may be repeated", func(v string) error {
			e, err := newEngine(v)
			engines = append(engines, e)
			return err
		})
	model := flags.String("engine-model", "", "the engines' `name` of the model (default: that of the records)")
	greedy := flags.Bool("greedy", false, "ask with temperature 0")

	paths, err := parseRecords(p, flags, args)
	if err != nil {
		return err
	}

	r := replayer{
		ctx: ctx, program: p, show: *show, players: map[string]*replay.Player{}, skipped: map[string]int{},
		causes: map[string]int{},
	}
	if err := r.readConfig(*file); err != nil {
		return err
	}

	for _, e := range engines {
		e.Model, e.Greedy = *model, *greedy
		r.asked = append(r.asked, &asked{engine: e})
	}
	return r.replay(paths)
}

// replayer replays records, and counts what became of them.
type replayer struct {
	ctx     context.Context //nolint:containedctx // of the command, of the same life
	program program
	config  *config.Config
	show    int
	shown   int
	players map[string]*replay.Player // by the text of the configuration

	asked                   []*asked // with -engine
	same, different, unread int
	refused                 int // records whose configuration this version does not take
	skipped, causes         map[string]int
}

// readConfig reads the configuration that takes the place of that in the records.
func (r *replayer) readConfig(file string) error {
	if file == "" {
		return nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("read the configuration: %w", err)
	}
	if r.config, err = config.Parse(file, text); err != nil {
		return fmt.Errorf("read the configuration: %w", err)
	}
	return nil
}

// replay replays the records of files and folders, and writes what came of it.
func (r *replayer) replay(paths []string) error {
	files, err := record.Files(paths)
	if err != nil {
		return err
	}

	each := r.play
	if len(r.asked) > 0 {
		each = r.ask
	}

	for _, name := range files {
		if err := record.ReadFile(name, func(rec *record.Record) { each(name, rec) }); err != nil {
			fmt.Fprintln(r.program.stderr, err)
			r.unread++
		}
	}

	// Differences between engines are what was asked for, and no failure.
	if len(r.asked) > 0 {
		return r.compared(r.program.stdout)
	}

	r.summary(r.program.stdout)
	switch {
	case r.different > 0 || r.unread > 0 || r.refused > 0:
		return fmt.Errorf(
			"%d of %d records differ, %d files and %d configurations cannot be read",
			r.different, r.same+r.different, r.unread, r.refused)
	case r.same == 0:
		return errors.New("no record was replayed, so nothing is known: name files or folders with whole records " +
			"that are not redacted (record.content: true)")
	}
	return nil
}

func (r *replayer) play(file string, rec *record.Record) {
	player, err := r.player(rec)
	if err != nil {
		r.skipped["its configuration: "+err.Error()]++
		// A finding too: after an update this version would not start with it.
		r.refused++
		return
	}
	switch played := player.Play(r.ctx, rec); {
	case played.Skipped != "":
		r.skipped[played.Skipped]++
	case len(played.Differences) == 0:
		r.same++
	default:
		r.different++
		r.differ(file, rec, played.Differences)
	}
}

func (r *replayer) differ(file string, rec *record.Record, differences []replay.Difference) {
	causes := map[string]bool{}
	for _, d := range differences {
		// A cause counts once for a record, however many differences it makes.
		causes[d.Cause] = true
		if r.show == 0 || r.shown < r.show {
			r.shown++
			fmt.Fprintf(r.program.stdout, "%s (%s): %s\n", cmp.Or(rec.ID, "a record"), file, d)
		}
	}
	for cause := range causes {
		r.causes[cause]++
	}
}

// player returns what replays a record.
func (r *replayer) player(rec *record.Record) (*replay.Player, error) {
	// Thousands of records have the same configuration, and a player is not cheap to make.
	key := rec.Config
	if r.config != nil {
		key = ""
	}

	if p := r.players[key]; p != nil {
		return p, nil
	}

	cfg := r.config
	if cfg == nil {
		var err error
		if cfg, err = config.Parse("the record", []byte(rec.Config)); err != nil {
			return nil, fmt.Errorf("read the configuration: %w", err)
		}
		cfg.Responses.SealKeys = nil // no record has them
	}

	// After the record's own: what no record has, such as seal keys, comes from here.
	if _, err := cfg.ApplyEnv(r.program.environ); err != nil {
		return nil, err
	}

	p, err := filter.NewPlayer(cfg, filter.Options{})
	if err != nil {
		return nil, err
	}
	r.players[key] = p
	return p, nil
}

func (r *replayer) summary(w io.Writer) {
	fmt.Fprintf(w, "same       %6d\n", r.same)
	fmt.Fprintf(w, "different  %6d\n", r.different)
	for _, cause := range slices.Sorted(maps.Keys(r.causes)) {
		fmt.Fprintf(w, "  %-8s %6d\n", cause, r.causes[cause])
	}
	r.skips(w)
}

// skips writes why records were skipped.
func (r *replayer) skips(w io.Writer) {
	skipped := 0
	for _, n := range r.skipped {
		skipped += n
	}
	fmt.Fprintf(w, "skipped    %6d\n", skipped)
	for _, why := range slices.Sorted(maps.Keys(r.skipped)) {
		fmt.Fprintf(w, "  %6d  %s\n", r.skipped[why], why)
	}
}
