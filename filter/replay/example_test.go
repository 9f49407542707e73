package replay_test

import (
	"context"
	"fmt"

	"github.com/envoy-harmony/envoy-harmony/filter"
	"github.com/envoy-harmony/envoy-harmony/filter/config"
	"github.com/envoy-harmony/envoy-harmony/filter/record"
)

// A recorded chat is made again. Then its record has another output of the model.
func Example() {
	err := record.ReadFile("../testdata/records/repair.json", func(r *record.Record) {
		cfg, err := config.Parse("the record", []byte(r.Config))
		if err != nil {
			fmt.Println(err)
			return
		}
		cfg.Responses.SealKeys = nil // no record has them
		player, err := filter.NewPlayer(cfg, filter.Options{})
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(len(player.Play(context.Background(), r).Differences), "differences")
		for i := range r.Events {
			if t := r.Events[i].Tokens; t != nil && len(t.IDs) > 0 {
				t.IDs[0]++
			}
		}
		for _, d := range player.Play(context.Background(), r).Differences {
			fmt.Println("after a change:", d.Cause)
		}
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// 0 differences
	// after a change: reply
}
