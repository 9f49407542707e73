package work_test

import (
	"context"
	"fmt"

	"github.com/envoy-harmony/envoy-harmony/filter/work"
)

func Example() {
	account := work.New(context.Background(), 1000)

	for _, items := range []int{600, 300, 200} {
		if err := account.Spend(items); err != nil {
			fmt.Printf("A conversation of %d items %v.\n", items, err)
			return
		}
		fmt.Println("read", items)
	}
	// Output:
	// read 600
	// read 300
	// A conversation of 200 items takes too much work to read, with all else that the request asks to be read or checked: make it smaller or simpler, or send fewer of its kind.
}
